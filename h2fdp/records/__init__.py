"""The run directory: everything a run leaves behind, and how it is read again."""
