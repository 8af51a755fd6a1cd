"""Accuracy at an accounted epsilon."""
