"""Whether the noises that a run says it added are those of its ledger.

The ledger has what an observer cannot subtract of the noise on a vector. Where it receives a device's own upload, or
the average of a trusted edge server whose noise nobody else knows, that is the noise that was added. Other vectors mix
the noises of several nodes; they are not compared.
"""

from __future__ import annotations

import math
from typing import Any

from h2fdp.integrity.files import ENDED, RunFiles
from h2fdp.integrity.findings import Findings
from h2fdp.privacy import Release
from h2fdp.records import RunDirectory
from h2fdp.records.summary import SUMMARY
from h2fdp.topology import Topology

_SEEN_ALONE = {
    ("local", "device"): "edge",
    ("global", "device"): "edge",
    ("local", "edge"): "peer",
    ("global", "edge"): "cloud",
}
_TOLERANCE = 1e-9


def check_noises(
    directory: RunDirectory, rows: list[Release], network: Topology, files: RunFiles, findings: Findings
) -> None:
    """Compare the ranges of noise in the summary with the rows in which a noise is seen alone."""
    if files.state not in ENDED:
        return
    stated: list[dict[str, Any]] = files.summary.get("noise_std") or []
    trust = {subnet.name: subnet.trust for subnet in network.subnets}
    compared = 0
    for each in stated:
        kind, source = each["kind"], each["added_by"]
        observer = _SEEN_ALONE.get((kind, source)) if network.depth == 1 else None
        levels = [
            row.noise_std
            for row in rows
            if (row.kind, row.observer) == (kind, observer) and (source == "device" or trust[row.edge] == "trusted")
        ]
        if not levels:
            continue
        compared += 1
        low, high = each["smallest"], each["largest"]
        inside = bool(files.summary.get("fresh_from"))  # noise of intervals that were lost is in the ledger alone
        agree = (
            min(levels) <= low * (1 + _TOLERANCE) and high <= max(levels) * (1 + _TOLERANCE)
            if inside
            else math.isclose(min(levels), low, rel_tol=_TOLERANCE)
            and math.isclose(max(levels), high, rel_tol=_TOLERANCE)
        )
        text = (
            f"{kind} noise by {source} is {low:.6g} to {high:.6g}, in the ledger {min(levels):.6g} to {max(levels):.6g}"
        )
        findings.expect(agree, text, directory.path / SUMMARY)
    if compared:
        findings.confirmed.append(f"{compared} of {len(stated)} ranges of noise")
