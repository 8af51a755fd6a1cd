"""Inputs divided by a public bound on their norm, for mechanisms that need them no longer than 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from h2fdp.data.drawn import DrawnData
from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.errors import UserError

_VALUES_AT_ONCE = 4_000_000
_ROUNDING = 1e-5  # relative, of norms in 32 bits


def within_unit_ball(data: DeviceData, bound: float) -> DeviceData:
    """The data with all inputs divided by `bound`, after every device's record was checked.

    Raises:
        UserError: a record that is longer.
    """
    assert isinstance(data, (FederatedData, DrawnData))
    longest = _longest(data)
    if longest > bound * (1 + _ROUNDING):
        # How long it is is private: a bound that follows it would be no public one.
        text = (
            f"a device has a record of larger norm; expected a public bound on the norm of all inputs, found {bound:g}"
        )
        raise UserError(text, key="method.privacy.input_bound")
    scaling = data.scaling
    return replace(data, scaling=replace(scaling, deviation=tuple(bound * each for each in scaling.deviation)))


def _longest(data: DeviceData) -> float:
    """The largest norm of a device's record, as the model sees it."""
    devices, width = len(data.sizes), int(np.prod(data.shape))
    at_once = max(1, _VALUES_AT_ONCE // (width * max(1, int(data.sizes.max()))))
    longest = 0.0
    for first in range(0, devices, at_once):
        records, _ = data.subnet(first, min(at_once, devices - first))
        seen = records.x.astype(np.float64) * data.scaling.scale + data.scaling.shift
        longest = max(longest, float(np.sqrt((seen.reshape(len(seen), -1) ** 2).sum(axis=1)).max(initial=0.0)))
    return longest
