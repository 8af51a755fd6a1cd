"""Accountants: what a composition of noisy releases reveals to its observer about one record of one device.

Everything is in units of a release's sensitivity.
"""

from h2fdp.privacy.accounting.accountants import ACCOUNTANTS, Accountant, AccountantName, coarse, total_rdp
from h2fdp.privacy.accounting.mixtures import Bound, Composition, Mixture, ReleaseType, Sampling, mixture_of
from h2fdp.privacy.accounting.renyi import ORDERS, epsilon_at_order, epsilon_from_rdp, rdp_of

__all__ = [
    "ACCOUNTANTS",
    "ORDERS",
    "Accountant",
    "AccountantName",
    "Bound",
    "Composition",
    "Mixture",
    "ReleaseType",
    "Sampling",
    "coarse",
    "epsilon_at_order",
    "epsilon_from_rdp",
    "mixture_of",
    "rdp_of",
    "total_rdp",
]
