"""The command line: `entry` starts every command, `main` parses and runs one verb."""
