"""The command line: one file for each command. Slow imports are inside the commands."""
