"""Local steps of chains of linear layers, compiled by numba: one device at a time, its model in the first caches."""
