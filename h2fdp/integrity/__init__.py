"""Whether run directories and sweeps are whole, and whether accounts are those of the ledger."""

from h2fdp.integrity.check import check
from h2fdp.integrity.runs import Findings

__all__ = ["Findings", "check"]
