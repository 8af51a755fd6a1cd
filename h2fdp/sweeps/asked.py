"""The networks of a `study:` section: each combination of its values as settings of the study's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from h2fdp.config import Document
from h2fdp.errors import UserError
from h2fdp.experiment.file import Setting, apply_settings, changed_topology
from h2fdp.experiment.sections import StudySection
from h2fdp.run.network_plan import NetworkPlan

WHERE, TRUST, EPSILON, EDGES = "study", "topology.trust.trusted", "privacy.epsilon", "topology.edges"
_EXACT = Setting("topology.trust", {"exact": True}, WHERE)


@dataclass
class Asked:
    """A network of a study.

    Attributes:
        values: `trust`, `epsilon` and `edges`, those that vary.
        settings: that make it of the study's file.
        plan: None until it is planned.
        score, half: read from the curve, with half of its band; nan where there is no curve.
        measured: by a run; nan where there was none.
    """

    values: dict[str, Any]
    settings: tuple[Setting, ...]
    plan: NetworkPlan | None = None
    score: float = np.nan
    half: float = np.nan
    measured: float = np.nan

    @property
    def row(self) -> dict[str, Any]:
        """For tables and files."""
        assert self.plan is not None, "it was planned"
        known = asdict(self.plan)
        sizes = {key: known[key] for key in ("edges", "devices", "noise", "joules", "seconds", "bytes")}
        read = {"score": self.score, "low": self.score - self.half, "high": self.score + self.half}
        return {**{key: each for key, each in self.values.items() if key != "edges"}, **sizes, **read} | {
            "measured": self.measured
        }


def asked_in(document: Document, settings: Sequence[Setting], section: StudySection, epsilon: float) -> list[Asked]:
    """The networks of a `study:` section, the last key changing fastest: edges, epsilon, trust.

    Args:
        epsilon: of the file.

    Raises:
        UserError: edge servers that are not one line with `repeat`, whose number could be another.
    """
    epsilons = section.epsilon or [float(f"{epsilon * times:.3g}") for times in (0.25, 0.5, 1, 2, 4)]
    sizes: Sequence[int | list[int] | None] = section.edges or [None]
    shares: Sequence[float | None] = section.trust or [None]
    found = []
    for size, target, share in product(sizes, epsilons, shares):
        values: dict[str, Any] = {} if size is None else {"edges": size}
        own = [] if size is None else [Setting(EDGES, resized(document, settings, size), WHERE)]
        if share is not None:
            values["trust"] = share
            own = [*(own or _open(document, settings)), _EXACT, Setting(TRUST, share, WHERE)]
        found.append(Asked(values | {"epsilon": target}, (*own, Setting(EPSILON, target, WHERE))))
    return found


def listed_in(document: Document, settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """The edge servers as a topology file lists them."""
    copy = document.copy()
    reaching = apply_settings(copy, settings) or [Setting("name", "study", WHERE)]
    wanted = copy.values().get("topology")
    listed: list[dict[str, Any]] = changed_topology(copy, wanted, reaching).values()["edges"]
    return listed


def _open(document: Document, settings: Sequence[Setting]) -> list[Setting]:
    """Settings without the trust that single edge servers state, so that shares are those of all; none where none
    does."""
    listed = listed_in(document, settings)
    without = _untold(listed)
    return [] if without == listed else [Setting(EDGES, without, WHERE)]


def _untold(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [{key: each for key, each in server.items() if key not in ("trust", "trusted")} for server in listed]
    return [each | ({"edges": _untold(each["edges"])} if "edges" in each else {}) for each in found]


def resized(document: Document, settings: Sequence[Setting], size: int | list[int]) -> list[dict[str, Any]]:
    """The edge servers of a network of one line with another number of them, and of devices of each."""
    edges, devices = (size, None) if isinstance(size, int) else size
    listed = _untold(listed_in(document, settings))
    if len(listed) != 1 or not isinstance(listed[0].get("devices"), dict):
        text = "expected a network with one line of edge servers, {name: ..., repeat: ..., devices: {count: ...}}"
        raise UserError(f"{text}, whose number can be another", document.where((WHERE, "edges")), "study.edges")
    name = str(listed[0]["name"])
    first = listed[0] | {"repeat": edges, "name": name if "{i}" in name or edges == 1 else name + "-{i}"}
    return [first if devices is None else first | {"devices": first["devices"] | {"count": devices}}]
