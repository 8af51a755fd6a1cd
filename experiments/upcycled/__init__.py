"""Upcycled-FL's tables."""
