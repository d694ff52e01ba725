"""Records of what crosses a process or a file, and the plain English of their codes."""
