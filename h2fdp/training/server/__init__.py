"""Server updates: what the cloud does with the average of the uploads."""

from h2fdp.training.server.average import Average
from h2fdp.training.server.section import ServerSection, UpcycleSection, server_update
from h2fdp.training.server.update import ServerUpdate, Uploaded

__all__ = ["Average", "ServerSection", "ServerUpdate", "UpcycleSection", "Uploaded", "server_update"]
