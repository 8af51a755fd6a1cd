"""What lies between the devices of a star and the cloud: access points, and the wire behind each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from h2fdp.errors import UserError
from h2fdp.topology.arrays import ABOVE_ZERO, FINITE, Floats, Integers, read_only


@dataclass(frozen=True, eq=False)
class Relays:
    """The access points of a star, in the order of its devices: first all devices of the first one, and so on.

    They are the edge servers of the tree that the star was made of. They pass messages on and are no parties, but the
    air and the wires are as they were: their names key the fading, devices of one share a channel, and each message
    takes the wire from there to the cloud. A few values for each access point, so a million devices cost next to
    nothing; arrays are read-only.

    Attributes:
        names: (A,) of the access points.
        sizes: (A,) the number of devices of each.
        rate_bps: (A,) of the wire from each to the cloud; infinite where messages cost nothing.
        power_dbm: (A,) with which each sends over its wire.
    """

    names: tuple[str, ...]
    sizes: Integers
    rate_bps: Floats
    power_dbm: Floats

    def __post_init__(self) -> None:
        count = len(self.names)
        if len(set(self.names)) < count:  # two of one name would have the same fading
            raise UserError("expected each access point once", key="relays.names")
        sizes: Integers = np.array(self.sizes, dtype=np.int64)
        if count == 0 or sizes.shape != (count,) or sizes.min() < 1:
            raise UserError("expected the number of devices, at least 1, of each access point", key="relays.sizes")
        sizes.flags.writeable = False
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "rate_bps", read_only(self.rate_bps, ABOVE_ZERO, count, "relays.rate_bps"))
        object.__setattr__(self, "power_dbm", read_only(self.power_dbm, FINITE, count, "relays.power_dbm"))

    @property
    def devices(self) -> int:
        """The number of devices of all access points."""
        return int(self.sizes.sum())

    def of_devices(self, values: Floats) -> Floats:
        """(s,) for each device the value of its access point, from (A,) values."""
        return np.repeat(values, self.sizes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Relays):
            return NotImplemented
        return self.names == other.names and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("sizes", "rate_bps", "power_dbm")
        )

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash
