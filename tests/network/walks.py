"""Traces of devices that stay where they are with a probability, and else move to another edge server."""

import numpy as np

from h2fdp.network.mobility import Line, Mobility


def walking(subnets, stay, intervals=20, seed=1):
    """From each interval to the next, each other edge server being as probable."""
    rng = np.random.default_rng(seed)
    names = [name for subnet in subnets for name in subnet.device_names()]
    at, lines = np.repeat(np.arange(len(subnets)), [subnet.size for subnet in subnets]), []
    for interval in range(2, intervals + 1):
        moves = rng.random(len(at)) >= stay
        at = np.where(moves, (at + rng.integers(1, len(subnets), len(at))) % len(subnets), at)
        lines += [Line(interval, names[device], subnets[at[device]].name) for device in np.flatnonzero(moves)]
    return Mobility(lines)
