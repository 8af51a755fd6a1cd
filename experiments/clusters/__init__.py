"""Recipes of Ray clusters, and programs that try them."""
