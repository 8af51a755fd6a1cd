"""Benchmarks: timings live here, never in a test. `make bench` runs them all."""
