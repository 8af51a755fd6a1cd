"""Models by name, or the user's own; their parameters as one vector.

`build` and `ParameterLayout` need torch, which takes a second or two to import, so they are loaded at their first use:
files can be checked and models listed without it.
"""
