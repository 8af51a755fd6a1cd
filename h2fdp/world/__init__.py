"""The simulated world: edge servers that are offline, devices that drop out or are slow, and what then arrives."""

from h2fdp.world.arrivals import Points, Turnout, drawn_turnout, epochs_turnout, reached
from h2fdp.world.faults import Faults

__all__ = ["Faults", "Points", "Turnout", "drawn_turnout", "epochs_turnout", "reached"]
