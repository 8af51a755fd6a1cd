"""A network with untrusted edge servers and trusted ones, some under a trusted aggregator."""

from h2fdp import Topology
from h2fdp.network import Aggregator
from tests.networks import placed


def subnet(name, trust, size, parent=None):
    return placed(name, trust, [9.0] * size, [9.0] * size, parent=parent)


NETWORK = Topology(
    "mixed",
    (subnet("a", False, 5), subnet("b", True, 4, "top"), subnet("c", False, 3, "top"), subnet("d", True, 1, "top")),
    aggregators=(Aggregator("top", True, parent=None),),
)
