"""The command line: `main` parses and runs one verb. A job's own entry point needs nothing of this room but
`internal`.
"""
