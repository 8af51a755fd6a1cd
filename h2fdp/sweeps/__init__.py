"""Sweeps: the grid of a file's `sweep:` section, run side by side, in one table."""

from h2fdp.sweeps.api import Sweep, sweep

__all__ = ["Sweep", "sweep"]
