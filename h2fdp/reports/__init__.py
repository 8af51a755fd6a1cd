"""Reports: one HTML page about runs, which needs no network; tables and figures of sweeps. Nothing is run for them."""

from h2fdp.reports.writing import report

__all__ = ["report"]
