"""Runs under faults of processes and machines."""
