"""The command line: one file for each command; whatever is slow to import is imported inside the command."""
