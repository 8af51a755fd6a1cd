"""Experiment files to run first, and a folder for each study that fills pages of the documentation."""
