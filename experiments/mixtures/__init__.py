"""Mixtures of methods against plain h2fdp."""
