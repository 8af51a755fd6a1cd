"""How much noise was added, interval by interval, read from the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from h2fdp.privacy import ADDED_BY, ReleaseKind
from h2fdp.privacy.releases import rows_in
from h2fdp.reports.figures import Column

ADDERS = {adder: words for adder, words in ADDED_BY.items() if adder != "none"}
KINDS: tuple[ReleaseKind, ...] = get_args(ReleaseKind)


def noise_columns(rows: Iterable[dict[str, Any]], intervals: Sequence[int]) -> dict[str, Column]:
    """Columns `noise_<kind>_<adder>` with `_low` and `_high`: a value for each interval, None where nobody adds noise.

    A device's own noise is what its edge server sees (the noise on the sum, where that is all it sees); an edge
    server's noise is what the cloud sees of a subnet whose devices show their edge server none; of the cloud's, the
    public sees the first. The mean is over devices, or over edge servers.

    Args:
        rows: of the ledger, in its order.
    """
    found: dict[tuple[int, str, str], list[float]] = {}
    by_devices: set[str] = set()
    for row in rows:
        if row["observer"] == "edge":
            by_devices.add(row["edge"])
            adder, weight = "device", sum(part.stop - part.start for part in rows_in(row["devices"]))
        elif row["observer"] == "cloud" and row["edge"] not in by_devices:
            adder, weight = "edge", 1
        elif row["observer"] == "public" and row["kind"] == "central":
            adder, weight = "cloud", 1
        else:
            continue
        noise = row["noise_std"]
        seen = found.setdefault((row["interval"], row["kind"], adder), [0.0, 0.0, math.inf, 0.0])
        seen[0] += weight * noise
        seen[1] += weight
        seen[2] = min(seen[2], noise)
        seen[3] = max(seen[3], noise)
    columns: dict[str, Column] = {}
    for kind in KINDS:
        for adder in ADDERS:
            cells = [found.get((interval, kind, adder)) for interval in intervals]
            if any(cells):
                name = f"noise_{kind}_{adder}"
                columns[name] = [cell and cell[0] / cell[1] for cell in cells]
                columns[f"{name}_low"] = [cell and cell[2] for cell in cells]
                columns[f"{name}_high"] = [cell and cell[3] for cell in cells]
    return columns
