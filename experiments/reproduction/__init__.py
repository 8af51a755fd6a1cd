"""Reproductions: a paper's figures run, drawn, and its claims judged by rule from the tables of sweeps."""
