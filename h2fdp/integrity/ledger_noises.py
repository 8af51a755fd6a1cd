"""Whether each row of a ledger has the noise that the settings state, or that the rows like it have.

Where noise is fixed before a run, its multiplier (noise over sensitivity) on like releases is the same in all
intervals, whatever the step size: on every step of a device that adds noise to its steps; on the uploads of equal
sampling rates that an untrusted edge server sees one by one; and, where all devices take part throughout, on every
release about the same devices. A row that was edited so that no worst account moves is unlike the others.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from h2fdp.integrity.files import RunFiles
from h2fdp.integrity.findings import Findings
from h2fdp.privacy import Release
from h2fdp.records import RunDirectory
from h2fdp.topology import Topology

_TOLERANCE = 1e-9  # relative: ratios of numbers that were multiplied by the same step size
_MOST_NAMED = 5


def check_ledger_noises(
    directory: RunDirectory, rows: Sequence[Release], network: Topology, files: RunFiles, findings: Findings
) -> None:
    """Name the rows whose noise is not the stated one, or not that of the rows like them."""
    settings = files.configuration or {}
    if not _noise_is_fixed(settings):
        return
    everybody = _everybody_takes_part(settings)
    untrusted = {each.name for each in network.subnets if each.trust == "untrusted" and network.depth == 1}
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        key = _likeness(row, everybody=everybody, untrusted=row.edge in untrusted)
        if key is not None and row.sensitivity > 0:
            alike[key].append(place)
    stated, unlike = _stated(settings), dict[int, str]()
    for places in alike.values():
        ratios = [rows[place].noise_std / rows[place].sensitivity for place in places]
        by_settings = stated is not None and rows[places[0]].kind == "step"
        expected = stated if stated is not None and by_settings else _usual(ratios)
        source = "expected by config.yaml" if by_settings else "in the rows like it"
        for place, ratio in zip(places, ratios, strict=True):
            if not math.isclose(ratio, expected, rel_tol=_TOLERANCE):
                unlike[place] = f"its noise is {ratio:.6g} times its sensitivity, {source} {expected:.6g}"
    for place in sorted(unlike)[:_MOST_NAMED]:
        findings.expect(False, unlike[place], f"{directory.ledger}:{place + 1}")
    if len(unlike) > _MOST_NAMED:
        findings.expect(False, f"so are the noises of {len(unlike) - _MOST_NAMED:,} more rows", directory.ledger)
    if alike and not unlike:
        findings.confirmed.append(f"noise multipliers of {sum(map(len, alike.values())):,} ledger rows")


def _likeness(row: Release, *, everybody: bool, untrusted: bool) -> Hashable:
    """Equal for releases whose noise multipliers are equal; None where that depends on who takes part."""
    if row.kind == "step":
        return row.kind
    if everybody:
        return row.kind, row.edge, row.devices, row.observer, row.steps, row.sampling_rate
    if untrusted and row.observer == "edge" and row.kind in ("local", "global"):
        return row.kind, row.edge, row.steps, row.sampling_rate, row.own_gradient
    return None


def _usual(ratios: Sequence[float]) -> float:
    """The one that most have, to nine digits."""
    most = Counter(f"{ratio:.9g}" for ratio in ratios).most_common(1)[0][0]
    return next(ratio for ratio in ratios if f"{ratio:.9g}" == most)


def _noise_is_fixed(settings: Mapping[str, Any]) -> bool:
    """Whether no schedule chooses noise, no clip norm moves, and no sum is of integers, whose grid rounds noise."""
    method, training = _section(settings, "method"), _section(settings, "training")
    integers = _section(method, "privacy").get("secure_sum") is not None
    still = isinstance(training.get("clip_norm"), int | float | None)
    return _section(method, "schedule").get("name") == "fixed" and still and not integers


def _everybody_takes_part(settings: Mapping[str, Any]) -> bool:
    faults = _section(settings, "faults")
    risks = [_section(faults, each).get("probability") for each in ("straggler", "edge_outage")]
    throughout = all(risk == 0 for risk in (faults.get("device_dropout"), *risks))
    return throughout and _section(settings, "training").get("participation") == 1


def _stated(settings: Mapping[str, Any]) -> float | None:
    """The noise multiplier of `dp-sgd`; None where it is calibrated."""
    privacy = _section(_section(settings, "method"), "privacy")
    found = privacy.get("noise_multiplier")
    return float(found) if privacy.get("name") == "dp-sgd" and isinstance(found, int | float) else None


def _section(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = settings.get(key)
    return found if isinstance(found, Mapping) else {}
