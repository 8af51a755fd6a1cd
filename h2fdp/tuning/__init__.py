"""Tuning: a search for the best values of keys, what it may reveal included."""

from h2fdp.tuning.api import Tuned, tune

__all__ = ["Tuned", "tune"]
