"""Whether run directories and sweeps are whole, and whether their numbers agree with each other."""

from h2fdp.integrity.check import check
from h2fdp.integrity.findings import Findings

__all__ = ["Findings", "check"]
