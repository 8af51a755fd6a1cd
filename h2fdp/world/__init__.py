"""The simulated world: edge servers that are offline, devices that drop out or are slow, and what then arrives."""

from h2fdp.world.arrivals import CompletedWork, Faults, Points, completed_epochs, completed_work, reached

__all__ = ["CompletedWork", "Faults", "Points", "completed_epochs", "completed_work", "reached"]
