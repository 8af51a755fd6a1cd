"""Numerical evidence beside the proofs."""
