"""From Renyi divergences to (epsilon, delta)."""

from __future__ import annotations

import numpy as np

from h2fdp.privacy.accounting.renyi import ORDERS


def epsilon_from_rdp(rdp: np.ndarray, delta: float) -> np.ndarray:
    """The smallest epsilon over all orders.

    Guarantee: (epsilon, delta)-DP for whatever has these divergences, in total. The orders may be compared because the
    divergences are known without looking at the data.
    Source: Canonne, Kamath and Steinke 2020, Prop. 12, and delta <= sqrt(1 - exp(-KL)): as in dp-accounting.

    Args:
        rdp: (..., len(ORDERS)) divergences at `ORDERS`.

    Returns:
        (...) epsilons, at least 0; a 0-dimensional array for one account.
    """
    return np.asarray(_epsilon_at(ORDERS, np.asarray(rdp), delta).min(axis=-1))


def epsilon_at_order(rdp: np.ndarray, order_index: int, delta: float) -> np.ndarray:
    """The epsilon of one order fixed in advance, as an RDP filter needs (Feldman and Zrnic 2021).

    Args:
        rdp: (..., len(ORDERS)).
        order_index: a position in `ORDERS`.
    """
    return np.asarray(_epsilon_at(ORDERS[order_index], np.asarray(rdp)[..., order_index], delta))


def classic_epsilon_from_rdp(rdp: np.ndarray, delta: float) -> np.ndarray:
    """rdp + log(1/delta)/(order - 1), the smallest over orders 2..64 (Mironov 2017, Prop. 3; as in ALI-DPFL)."""
    classic = ORDERS <= 64
    return np.asarray((np.asarray(rdp)[..., classic] - np.log(delta) / (ORDERS[classic] - 1)).min(axis=-1))


def _epsilon_at(orders: np.ndarray, rdp: np.ndarray, delta: float) -> np.ndarray:
    assert 0 < delta < 1, delta
    converted = rdp + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    indistinguishable = delta**2 + np.expm1(-rdp) > 0
    return np.where(indistinguishable, 0.0, np.maximum(converted, 0.0))
