"""Whether devices can choose their transmit power as `control.power` says."""

from __future__ import annotations

import numpy as np

from h2fdp.config import Document
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.topology import Topology


def check_transmit_power(experiment: ExperimentFile, topology: Topology, document: Document | None = None) -> None:
    """Refuse a least power that leaves a device no choice.

    Raises:
        UserError: a device whose own power is not above the least.
    """
    form = experiment.control.power
    if form is None:
        return
    for subnet in topology.subnets:
        row = int(np.argmin(subnet.power_dbm))
        if subnet.power_dbm[row] <= form.least_dbm:
            text = f"expected a number below {subnet.power_dbm[row]:g}, the power_dbm of {subnet.device_name(row)}"
            where = "" if document is None else document.where(("control", "power", "least_dbm"))
            raise UserError(f"{text}; found {form.least_dbm:g}", where, "control.power.least_dbm")
