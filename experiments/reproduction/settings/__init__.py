"""Claims over settings: a paper's open parameters as axes of a design, its claims judged in each setting that works."""
