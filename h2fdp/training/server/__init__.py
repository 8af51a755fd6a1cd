"""Server updates: what the cloud does with the average of the uploads."""

from h2fdp.training.server.average import Average
from h2fdp.training.server.feddyn import FedDynServer
from h2fdp.training.server.momentum import Momentum
from h2fdp.training.server.scaffold import ScaffoldServer
from h2fdp.training.server.section import SERVERS, ServerSection, UpcycleSection, server_update
from h2fdp.training.server.upcycled import Upcycled
from h2fdp.training.server.update import Kept, ServerUpdate, Uploaded
from h2fdp.training.server.yogi import Yogi

__all__ = [
    "SERVERS",
    "Average",
    "FedDynServer",
    "Kept",
    "Momentum",
    "ScaffoldServer",
    "ServerSection",
    "ServerUpdate",
    "UpcycleSection",
    "Upcycled",
    "Uploaded",
    "Yogi",
    "server_update",
]
