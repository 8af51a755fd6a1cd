"""Whether the epsilons in the metrics and the summary of a run are those of its ledger."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from h2fdp.integrity.files import ENDED, RunFiles
from h2fdp.integrity.findings import Findings
from h2fdp.privacy import Accounts, Release, observers
from h2fdp.privacy.statement import statement, worst_epsilon
from h2fdp.records import RunDirectory, accountant_of_metrics
from h2fdp.records.summary import SUMMARY
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.topology import Topology

_TOLERANCE = 1e-9  # relative: sums in another order
_MOST_NAMED = 5  # epsilons of devices that do not agree
_COMPARED = 4  # intervals at which the account so far is recomputed, the last one among them


def check_accounts(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    """Recompute the accounts of every observer.

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
        _compare_metrics(directory, rows, network, sizes, delta, files, findings)
    if files.state in ENDED:
        _compare_summary(directory.path / SUMMARY, rows, network, sizes, delta, files, findings)
    if len(findings.problems) == before:
        findings.confirmed.append(f"accounts of {len(rows):,} ledger rows")


def _compare_metrics(
    directory: RunDirectory,
    rows: list[Release],
    network: Topology,
    sizes: dict[str, int],
    delta: float,
    files: RunFiles,
    findings: Findings,
) -> None:
    """The epsilons so far at a few intervals; after a resume with fresh noise only those at the end."""
    where, ledger, table = directory.metrics, directory.ledger, files.metrics
    last = 0 if table is None else table.num_rows
    if table is None or not last:
        return
    behind = max((row.interval for row in rows), default=0)
    compared = {last * part // _COMPARED for part in range(1, _COMPARED + 1)} - {0}
    if files.summary.get("fresh_from"):  # lost intervals count from when they were lost
        compared = {last} if files.state in ENDED and behind <= last else set()
    told = {name: table.column(name).to_pylist() for name in table.column_names if name.startswith("epsilon_")}
    by = accountant_of_metrics(table) or "rdp"
    ended = files.state in ENDED
    compared = {each if each == last and ended else _last_known(told, each) for each in compared} - {0}
    accounts, begin, done, before = Accounts(sizes, observers(network.depth)), 0, 0, len(findings.problems)
    ordered = sorted(rows, key=lambda row: row.interval)
    for interval in sorted(compared):
        end = next((at for at, row in enumerate(ordered) if row.interval > interval), len(ordered))
        accounts.add(ordered[begin:end])
        for text in _differences(told, accounts, interval, delta, by):
            findings.expect(False, f"row {interval}: {text}", where)
        if len(findings.problems) > before:
            if not files.summary.get("fresh_from"):  # else it is only known at the end
                accounts.add(ordered[begin:end], times=-1)
                _name_rows(told, accounts, rows, range(done + 1, interval + 1), delta, by, ledger, findings)
            return
        begin, done = end, interval


def _last_known(told: Mapping[str, Sequence[float | None]], interval: int) -> int:
    """The last interval up to this one that has an epsilon; 0 where none has."""
    return next((at for at in range(interval, 0, -1) if not _left_out(told, at)), 0)


def _left_out(told: Mapping[str, Sequence[float | None]], interval: int) -> bool:
    """Whether the metrics have no epsilon of an interval, because its account would have taken long."""
    return all(column[interval - 1] is None for name, column in told.items() if name != "epsilon_claimed")


def _differences(
    told: Mapping[str, Sequence[float | None]], accounts: Accounts, interval: int, delta: float, accountant: str
) -> Iterator[str]:
    """What the columns of the metrics say of the account after an interval, where the ledger says otherwise."""
    for observer in accounts.observers:
        column = f"epsilon_{observer}"
        stated = told[column][interval - 1] if column in told else None
        found = worst_epsilon(accounts, observer, delta, accountant)
        if not _equal(stated, found):
            yield f"{column} is {_word(stated)}, its account by the ledger {_word(found)}"


def _name_rows(
    told: Mapping[str, Sequence[float | None]],
    accounts: Accounts,
    rows: list[Release],
    intervals: range,
    delta: float,
    accountant: str,
    ledger: Path,
    findings: Findings,
) -> None:
    """Note the ledger's rows of the first of these intervals after which its account is not that of the metrics.

    Args:
        accounts: of what was released before these intervals.
    """
    for interval in intervals:
        lines = [number for number, row in enumerate(rows, start=1) if row.interval == interval]
        accounts.add([rows[line - 1] for line in lines])
        if _left_out(told, interval) and interval < len(told["epsilon_claimed"]):
            continue
        for text in _differences(told, accounts, interval, delta, accountant):
            here = (
                f"lines {lines[0]} to {lines[-1]} (interval {interval})" if lines else f"no line of interval {interval}"
            )
            findings.expect(False, f"{here}: from here on it is not that of the metrics, whose {text}",
                            f"{ledger}:{lines[0]}" if lines else ledger)  # fmt: skip
            return


def _compare_summary(
    where: Path,
    rows: list[Release],
    network: Topology,
    sizes: dict[str, int],
    delta: float,
    files: RunFiles,
    findings: Findings,
) -> None:
    """The epsilons that the run ended with, by `rdp` and `pld`, of the worst device and of each that is listed."""
    privacy: dict[str, Any] = files.summary.get("privacy") or {}
    told, listed = privacy.get("worst") or {}, privacy.get("devices") or {}
    accounts = Accounts(sizes, observers(network.depth))
    accounts.add(rows)
    names = [subnet.device_name(row) for subnet in network.subnets for row in range(subnet.size)]
    found = statement(accounts, names, delta, ("rdp", "pld"))
    worst = found["worst"]
    findings.expect(set(told) == set(worst), f"its observers are {', '.join(told)}; expected {', '.join(worst)}", where)
    for observer in set(told) & set(worst):
        for accountant in ("rdp", "pld"):
            one, other = told[observer].get(accountant), worst[observer][accountant]
            text = f"{accountant} of {observer} is {_word(one)}, its account by the ledger {_word(other)}"
            findings.expect(_equal(one, other), text, where)
    wrong = list(_unlike_devices(listed, found["devices"]))
    for text in wrong[:_MOST_NAMED]:
        findings.expect(False, text, where)
    if len(wrong) > _MOST_NAMED:
        findings.expect(False, f"so are {len(wrong) - _MOST_NAMED:,} more epsilons of devices", where)


def _unlike_devices(listed: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """The epsilons of single devices that are not those by the ledger."""
    for device in found if listed.keys() == found.keys() else ():
        for observer in sorted(listed[device].keys() | found[device].keys()):
            one, other = listed[device].get(observer) or {}, found[device].get(observer) or {}
            for accountant in ("rdp", "pld"):
                stated, by_ledger = one.get(accountant), other.get(accountant)
                if not _equal(stated, by_ledger):
                    text = f"{accountant} of {observer} about {device} is {_word(stated)}"
                    yield f"{text}, its account by the ledger {_word(by_ledger)}"
    if listed.keys() != found.keys():
        yield f"lists {len(listed):,} devices; expected {len(found):,}, by the names of topology.yaml"


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None or math.isinf(other):  # JSON has no infinity
        return (one is None or math.isinf(one)) and (other is None or math.isinf(other))
    return math.isclose(one, other, rel_tol=_TOLERANCE)


def _word(value: float | None) -> str:
    return "null" if value is None else f"{value:.6g}"
