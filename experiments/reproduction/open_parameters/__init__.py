"""Searches for the parameters that the H2FDP paper leaves open."""
