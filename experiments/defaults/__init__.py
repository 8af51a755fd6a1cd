"""Accuracy of the defaults on fourteen tasks."""
