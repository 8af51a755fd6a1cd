"""Reports: one HTML page about runs, which needs no network, and pictures for papers. Nothing is run for them."""

from h2fdp.reports.writing import report

__all__ = ["report"]
