"""Experiment files, and the studies that fill tables of the documentation."""
