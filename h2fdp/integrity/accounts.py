"""Whether the metrics and the summary of a run say what its ledger says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from h2fdp.integrity.files import ENDED, RunFiles
from h2fdp.integrity.findings import Findings
from h2fdp.integrity.noises import check_noises
from h2fdp.privacy import Accounts, Release, observers
from h2fdp.privacy.statement import statement
from h2fdp.records import RunDirectory
from h2fdp.records.summary import SUMMARY
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.topology import Topology

_TOLERANCE = 1e-9  # relative: sums in another order
_COMPARED = 4  # intervals at which the account so far is recomputed, the last one among them


def check_accounts(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    """Recompute the accounts of every observer, and compare the noises.

    Raises:
        UserError: the ledger is damaged, or has rows that no run of this network wrote.
    """
    if files.topology is None or files.configuration is None or not directory.ledger.is_file():
        findings.unknown.append("accounts: need config.yaml, topology.yaml and privacy.jsonl")
        return
    method, section = files.configuration.get("method"), files.configuration.get("privacy")
    star = isinstance(method, dict) and method.get("topology") == "star"
    network = files.topology.as_star() if star else files.topology
    sizes = {subnet.name: subnet.size for subnet in network.subnets}
    rows = list(releases_of_ledger(directory.ledger, sizes))
    if files.summary.get("leaking") or files.summary.get("noise_key") is None:
        if files.summary:
            findings.expect(not rows or bool(files.summary.get("leaking")), "has rows, but the run has no noise",
                            directory.ledger)  # fmt: skip
            findings.unknown.append("accounts: the run has no guarantee")
        return
    delta = section.get("delta") if isinstance(section, dict) else None
    if not isinstance(delta, float):
        findings.unknown.append("accounts: config.yaml states no privacy.delta")
        return
    before = len(findings.problems)
    if files.metrics is not None:
        _compare_metrics(directory.metrics, rows, network, sizes, delta, files, findings)
    if files.state in ENDED:
        _compare_summary(directory.path / SUMMARY, rows, network, sizes, delta, files, findings)
    if len(findings.problems) == before:
        findings.confirmed.append(f"accounts of {len(rows):,} ledger rows")
    check_noises(directory, rows, network, files, findings)


def _compare_metrics(
    where: Path,
    rows: list[Release],
    network: Topology,
    sizes: dict[str, int],
    delta: float,
    files: RunFiles,
    findings: Findings,
) -> None:
    """The epsilons so far, by `rdp`, at a few intervals; after a resume with fresh noise only those at the end."""
    table, last = files.metrics, 0 if files.metrics is None else files.metrics.num_rows
    if table is None or not last:
        return
    behind = max((row.interval for row in rows), default=0)
    findings.expect(behind >= last or not rows, f"ends at interval {last}, the ledger at {behind}", where)
    compared = {last * part // _COMPARED for part in range(1, _COMPARED + 1)} - {0}
    if files.summary.get("fresh_from"):  # lost intervals count from when they were lost
        compared = {last} if files.state in ENDED and behind <= last else set()
    accounts, entered = Accounts(sizes, observers(network.depth)), 0
    ordered = sorted(rows, key=lambda row: row.interval)
    for interval in sorted(compared):
        reach = next((at for at, row in enumerate(ordered) if row.interval > interval), len(ordered))
        accounts.add(ordered[entered:reach])
        entered = reach
        for observer in accounts.observers:
            column = f"epsilon_{observer}"
            told = table.column(column)[interval - 1].as_py() if column in table.column_names else None
            found = accounts.worst(observer, delta)
            text = f"row {interval}: {column} is {_word(told)}, its account by the ledger {_word(found)}"
            findings.expect(_equal(told, found), text, where)


def _compare_summary(
    where: Path,
    rows: list[Release],
    network: Topology,
    sizes: dict[str, int],
    delta: float,
    files: RunFiles,
    findings: Findings,
) -> None:
    """The epsilons that the run ended with, by `rdp` and `pld`."""
    told: dict[str, Any] = (files.summary.get("privacy") or {}).get("worst") or {}
    accounts = Accounts(sizes, observers(network.depth))
    accounts.add(rows)
    names = [subnet.device_name(row) for subnet in network.subnets for row in range(subnet.size)]
    found = statement(accounts, names, delta, ("rdp", "pld"))["worst"]
    findings.expect(set(told) == set(found), f"its observers are {', '.join(told)}; expected {', '.join(found)}", where)
    for observer in set(told) & set(found):
        for accountant in ("rdp", "pld"):
            one, other = told[observer].get(accountant), found[observer][accountant]
            text = f"{accountant} of {observer} is {_word(one)}, its account by the ledger {_word(other)}"
            findings.expect(_equal(one, other), text, where)


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None or math.isinf(other):  # JSON has no infinity
        return (one is None or math.isinf(one)) and (other is None or math.isinf(other))
    return math.isclose(one, other, rel_tol=_TOLERANCE)


def _word(value: float | None) -> str:
    return "null" if value is None else f"{value:.6g}"
