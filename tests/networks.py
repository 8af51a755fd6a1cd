"""Small networks for tests."""

from h2fdp.network import Subnet


def placed(name, trust, distance_m, power_dbm, *rest, **more):
    """A subnet whose devices are so far away, and send with so much power."""
    return Subnet(name, trust, {"distance_m": distance_m, "power_dbm": power_dbm}, *rest, **more)
