"""Results of runs: their ends, costs and settings; the account of each observer, and the noise behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from h2fdp.config.parsing import dotted
from h2fdp.costs.kinds import COSTS
from h2fdp.network.summary import headline, words_of_parts
from h2fdp.privacy import OBSERVERS, Observer, noise_placement_of, observers_beside
from h2fdp.privacy.mechanisms.pipeline import messages_of
from h2fdp.privacy.places import UNTARGETED, height_of, targeted_as
from h2fdp.privacy.statement import CARD, card, verdict_of, worst_epsilon
from h2fdp.records.directory import reached
from h2fdp.reports.figures import (
    Column,
    Curve,
    CurveChart,
    ReportSection,
    Scale,
    Series,
    Table,
    chart,
    curves_of,
    known,
    number,
)
from h2fdp.reports.run_view import ADDERS, KINDS, WITHHELD, RunView
from h2fdp.wording import SCORES, judged_by


def training(every: Sequence[Series], bands: str) -> ReportSection:
    """The section on what was learned, and on its cost.

    Args:
        bands: a sentence about the bands around the curves; empty where there are none.
    """
    figures = [chart(key, every, bands) for key in ("accuracy", "rmse", "r2", "perplexity", "loss", "cost")]
    return ReportSection("training", "Training and its cost", "", [figure for figure in figures if figure.curves])


def fairness(every: Sequence[Series]) -> ReportSection:
    """The section on how evenly the devices are served."""
    figures = [chart(key, every) for key in ("spread", "spread-rmse", "devices")]
    return ReportSection("fairness", "Devices", "", [figure for figure in figures if figure.curves])


_SCORED = tuple(each for name in SCORES for each in (name, f"{name}_mean_last_20", f"best_{name}"))
_ENDS = {name: name.replace("_", " ") for name in (*_SCORED, "loss", "method", "seed", "state", "intervals")}
_ENDS |= {column: each.title for column, each in COSTS.items()} | {"wall_s": "wall time (s)"}
_MESSAGES = ("run", "averages wait for", "devices' uploads", "edge servers' uploads", "broadcasts", "devices")
_NOT_SETTINGS = ("name", "sweep")


def results(runs: Sequence[RunView]) -> ReportSection:
    """The section of results, in words where it is one run; a row for each run."""
    rows = [_row(run) for run in runs]
    notes = [*map(_outcome, runs[:1] if len(runs) == 1 else ()), *(note for run in runs if (note := _note(run)))]
    footnote = WITHHELD if any(run.withheld for run in runs) else ""
    tables = {"How each run ended": known_columns(("run", *_ENDS.values()), rows)}
    tables |= {"Settings": settings(runs[0])} if len(runs) == 1 else {"Settings that differ": differences(runs)}
    living = [_living(run) for run in runs]
    if any(any(row) for row in living):
        tables["Messages and movement"] = Table(
            _MESSAGES, [[run.name, *row] for run, row in zip(runs, living, strict=True)]
        )
    return ReportSection("results", "Results", " ".join(notes), tables=tables, footnote=footnote)


_OF_TRAINING = ("intervals", "local_steps", "aggregate_every", "participation", "batch_size", "sampling_rate")
_CHOSEN = ("step_size", "clip_norm")


def settings(run: RunView) -> Table:
    """Data, method, trust, privacy and training of one run, with the numbers that were chosen for it."""
    privacy = noise_placement_of(run.setting("method", "privacy")).private
    delta, formula = run.setting("privacy", "delta"), "noise by the paper's formula"
    guarantee = formula if run.target is None else f"epsilon {run.target:g} for {', '.join(_targeted(run))}"
    training = {key: run.setting("training", key) for key in (*_OF_TRAINING, *_CHOSEN)}
    words = [f"{key.replace('_', ' ')} {value}" for key, value in training.items() if value is not None]
    placement = run.setting("method", "privacy", "name")
    rows = {
        "data": run.setting("data", "name"),
        "model": f"{run.setting('model', 'name')}, {run.summary.get('parameters', '?')} parameters",
        "method": run.summary.get("method"),
        "network and trust": headline(run.topology),
        "privacy": f"{guarantee}, delta {delta:g}; noise placement {placement}"
        if privacy
        else "none: no noise is added",
        "training": ", ".join(words),
    }
    return Table(("setting", "value"), [[key, value] for key, value in rows.items()])


def _targeted(run: RunView) -> tuple[str, ...]:
    return tuple(run.setting("privacy", "target_observers"))


def configuration(runs: Sequence[RunView]) -> ReportSection:
    """Each configuration as a whole, and the versions."""
    names = list(dict.fromkeys(name for run in runs for name in run.summary.get("versions") or {}))
    versions = [[name, *((run.summary.get("versions") or {}).get(name) for run in runs)] for name in names]
    folded: dict[str, Table | str] = {f"config.yaml of {run.name}": run.configuration_text for run in runs}
    folded["Versions"] = Table(("part", *(run.name for run in runs)), versions)
    return ReportSection("configuration", "Configuration and versions", "", folded=folded)


def differences(runs: Sequence[RunView]) -> Table:
    """The dotted keys whose values differ, with every run's value."""
    flat = [dict(dotted(run.configuration)) for run in runs]
    keys = list(dict.fromkeys(key for each in flat for key in each))
    differing = [key for key in keys if key not in _NOT_SETTINGS and len({repr(each.get(key)) for each in flat}) > 1]
    return Table(("key", *(run.name for run in runs)), [[key, *(each.get(key) for each in flat)] for key in differing])


def _row(run: RunView) -> list[Any]:
    told = run.summary if run.summary["state"] not in ("running", "killed") else run.summary | reached(run.metrics)
    return [run.name, *(told.get(key) for key in _ENDS)]


def _outcome(run: RunView) -> str:
    """Score, epsilon of each observer, joules and seconds, in a sentence; empty before the first interval ends."""
    row = dict(zip(_ENDS, _row(run)[1:], strict=True))
    score = judged_by(row)
    if row[score.column] is None or row["energy_j"] is None:
        return ""
    epsilons = ", ".join(f"{observer} {epsilon:.3g}" for _, observer, _, epsilon, *_ in verdict_rows(run) if epsilon)
    target = f" (target {run.target:g})" if epsilons and run.target is not None else ""
    private = f"epsilon {epsilons}{target}" if epsilons else "no epsilon"
    cost = f"{row['energy_j']:.3g} J, {row['clock_s']:.3g} s on the simulated clock"
    said = score.said(row[score.column])
    return f"{said[0].upper()}{said[1:]}; {private}; {cost}."


def _living(run: RunView) -> list[str]:
    """Buffers, messages and parts of the network of a run in words; empty where averages wait for all, vectors
    travel as they are, and devices stay."""
    schedule = run.setting("method", "schedule")
    waits = []
    if isinstance(schedule, dict) and schedule.get("name") == "buffered":
        nodes = {"edge": "an edge server", "cloud": "the cloud"}
        buffers = (schedule.get("buffer") or {}).items()
        waits = [f"{count} uploads at {nodes[node]}" for node, count in buffers if count is not None]
        if (deadline := schedule.get("deadline_s")) is not None:
            waits.append("no longer than half need" if deadline == "median" else f"at most {deadline:g} s")
    links = messages_of(run.configuration).words
    return [", ".join(waits), *links, *(words or "" for words in words_of_parts(run.topology).values())]


def _note(run: RunView) -> str:
    state, summary = run.summary["state"], run.summary
    if since := summary.get("not_finite_from"):
        return f"The test loss of {run.name} is no finite number since interval {since}; its scores say nothing."
    if state == "running":
        return f"{run.name} is still running; its last checkpoint is shown."
    if state in ("interrupted", "killed", "stopped", "failed"):
        return f"{run.name} is {state}, so its end or last checkpoint is shown."
    if spent := summary.get("budget_spent_by"):
        return f"{run.name} stopped early: one more interval would exceed the budget of the observer {spent}."
    if fresh := summary.get("fresh_from"):
        return f"{run.name} continued with fresh draws from interval {', '.join(map(str, fresh))} on."
    return ""


_WHO = {
    "edge": "its own edge server (where that is not trusted)",
    "peer": "another device of its subnet",
    "cloud": "the cloud",
    "public": "everybody else",
}
_UPPER = "an edge server above its own, of height {} (where that is outside its trusted chain)"
_OBSERVED = ("run", "observer", "claimed", "accounted", "accountant", "verdict", "about device")
LEAD = (
    "Epsilon bounds what an observer can learn about one record of the worst device - about the whole device where a "
    "run protects devices. Accounted is an upper bound from all releases. Met: the accounted epsilon is within the "
    "target. Open: it is above the target, which it does not refute."
)
CLAIM = "Where noise is the paper's (calibration: paper), the verdict is about the claim of its formula."


def observers_in(every: Iterable[Series]) -> tuple[Observer, ...]:
    """All observers of these runs' networks, by the columns of their metrics."""
    return observers_beside(name.removeprefix("epsilon_") for series in every for name in series.columns)


def epsilon_figures(every: Sequence[Series], more: str = "") -> list[CurveChart]:
    """One figure: of a single run the epsilon of each observer, of several that of the one that learns most.

    Args:
        more: a sentence that follows the caption.
    """
    caption = "Accounted epsilon (no unit) so far about the worst device, at the run's delta, of "
    if len(every) == 1:
        shown = [observer for observer in observers_in(every) if known(every[0], f"epsilon_{observer}")]
        who = "; ".join(f"{each}: {_WHO.get(each, _UPPER.format(height_of(each)))}" for each in shown)
        title = "Epsilon of each observer"
        caption += f"each observer; curves within a hundredth are one. {who[:1].upper()}{who[1:]}."
        named = _apart(every[0].columns, shown)
    else:
        title, named = "Epsilon of the observer that learns most", [("epsilon_most", "accounted")]
        caption += "the observer that learns most in each run; the table has all observers."
    accounted = [curve for at, each in enumerate(named) for curve in curves_of(every, *each, at)]
    seen = {curve.series for curve in accounted}
    claimed = curves_of(every, "epsilon_claimed", "claimed", len(named))
    beside = [*claimed, *curves_of(every, "epsilon_target", "target", len(named) + bool(claimed))]
    curves = [*accounted, *(curve for curve in beside if curve.series in seen)]
    claim = " The claim ends where more was released than planned." if claimed else ""
    scale: Scale = "log" if _spans_decades(every, curves) else "linear"
    return [CurveChart("epsilon", title, caption + claim + more, "epsilon", curves, scale=scale)] if accounted else []


def _apart(columns: Mapping[str, Column], shown: Sequence[Observer]) -> list[tuple[str, str]]:
    """A column for each distinct curve, with its observers' names: curves within a hundredth are drawn once."""
    groups: list[list[Observer]] = []
    for observer in shown:
        own = columns[f"epsilon_{observer}"]
        near = [group for group in groups if _coincide(own, columns[f"epsilon_{group[0]}"])]
        if near:
            near[0].append(observer)
        else:
            groups.append([observer])
    whole = f"all {len(shown)}: " if len(groups) == 1 < len(shown) else ""
    return [(f"epsilon_{group[0]}", whole + ", ".join(group)) for group in groups]


def _coincide(one: Column, other: Column) -> bool:
    """Whether two curves lie on each other: as often unknown, and nowhere farther apart than a hundredth."""
    pairs = list(zip(one, other, strict=True))
    return all((a is None) == (b is None) for a, b in pairs) and all(
        math.isclose(a, b, rel_tol=0.01) for a, b in pairs if a is not None
    )


def privacy(runs: Sequence[RunView], every: Sequence[Series]) -> ReportSection:
    """Accounts over time and the verdicts; a sentence about the runs without an account."""
    rows = [row for run in runs for row in verdict_rows(run)]
    delta = {run.setting("privacy", "delta") for run in runs if run.private}
    lead = f"{lead_of(rows, 2)} Delta is {' and '.join(f'{each:g}' for each in sorted(delta))}." if delta else ""
    open_runs = [run.name for run in runs if not run.private and not run.summary.get("leaking")]
    leaking = [run.name for run in runs if run.summary.get("leaking")]
    if open_runs:
        lead += f" Nothing is private in {', '.join(open_runs)}: no noise was recorded there, so there is no epsilon."
    if leaking:
        lead += f" Devices sent raw measurements in {', '.join(leaking)}, so no epsilon covers it."
    notes = dict.fromkeys(note for run in runs for note in (run.summary.get("privacy") or {}).get("notes", ()))
    lead = " ".join([lead, *(f"{note[0].upper()}{note[1:]}." for note in notes)])
    tables = {"Epsilon of each observer at the end": known_columns(_OBSERVED, rows)} if rows else {}
    tables |= own_targets(runs[0]) | card_table(runs[0]) if len(runs) == 1 and runs[0].private else {}
    return ReportSection("privacy", "Privacy", lead.strip(), epsilon_figures(every), tables)


def own_targets(run: RunView) -> dict[str, Table]:
    """A row for each target of a finished run in which devices ask for an epsilon of their own."""
    found = (run.summary.get("privacy") or {}).get("targets", [])
    who = dict.fromkeys(observer for each in found for observer in each["accounted"])
    rows = [[each["target"], each["devices"], *map(each["accounted"].get, who), each["verdict"]] for each in found]
    return {"Devices by their own epsilon": Table(("target", "devices", *who, "verdict"), rows)} if rows else {}


def card_table(run: RunView) -> dict[str, Table]:
    """The bounds that no attack exceeds, by the ledger as it is now."""
    found = card(run.accounts.held(), run.setting("privacy", "delta"), run.accountant)
    rows = [[observer, *numbers.values()] for observer, numbers in found.items()]
    return {"Card: what no attack of each observer exceeds": Table(("observer", *CARD.values()), rows)} if rows else {}


def lead_of(rows: Sequence[Sequence[Any]], claim: int) -> str:
    """The meaning of the words; `claim` is the place of claims in rows."""
    return f"{LEAD} {CLAIM}" if any(row[claim] is not None for row in rows) else LEAD


def known_columns(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table of the columns that have a value in some row: claims only where there are some."""
    kept = [at for at in range(len(heads)) if any(row[at] is not None for row in rows)]
    return Table([heads[at] for at in kept], [[row[at] for at in kept] for row in rows])


def verdict_rows(run: RunView) -> list[list[Any]]:
    """A row for each observer: the numbers side by side, and the word for the claim.

    Of a run that has not ended there is only the account of its ledger so far.

    Raises:
        UserError: the ledger is damaged.
    """
    privacy = run.summary.get("privacy") or {}
    known = observers_beside([*(name.removeprefix("epsilon_") for name in run.metrics), *(privacy.get("worst") or ())])
    if worst := privacy.get("worst"):
        return [_ended(run, observer, privacy.get("claimed"), worst.get(observer)) for observer in known]
    if not run.private:
        return []
    # The metrics end with the last checkpoint; what was released after it counts too.
    claimed, by, rows = run.metrics["epsilon_claimed"][-1], run.accountant, []
    for observer in known:
        epsilon = worst_epsilon(run.accounts, observer, run.setting("privacy", "delta"), by)
        verdict = _silence(run, observer) if epsilon is None else f"{_verdict(run, observer, claimed, epsilon)} so far"
        shown = claimed if run.target is None else None
        rows.append([run.name, observer, shown, epsilon, epsilon and by, verdict, ""])
    return rows


def _ended(run: RunView, observer: Observer, claimed: float | None, found: dict[str, Any] | None) -> list[Any]:
    shown = claimed if run.target is None else None
    if found is None:
        return [run.name, observer, shown, None, None, _silence(run, observer), ""]
    by = run.accountant if run.accountant in found else "pld"
    return [run.name, observer, shown, found.get(by), by, found["verdict"], found["device"]]


def _verdict(run: RunView, observer: Observer, claimed: float | None, accounted: float) -> str:
    """About the target where the noise was calibrated to one, else about the claim."""
    if run.target is None:
        return verdict_of(claimed, accounted)
    stated = _targeted(run)
    if targeted_as(observer) not in stated and stated != OBSERVERS:  # the default stands for all there are
        return UNTARGETED
    return verdict_of(run.target, accounted)


def _silence(run: RunView, observer: Observer) -> str:
    return noise_placement_of(run.setting("method", "privacy")).silence(observer)


def _decided(runs: Sequence[RunView]) -> str:
    """The observers and devices nearest to the target, in words: with less noise they would miss it."""
    rows = [row for run in runs[:1] for row in verdict_rows(run) if row[3] and row[-1] and row[5] != UNTARGETED]
    if len(runs) != 1 or not rows or runs[0].target is None:
        return ""
    most = max(row[3] for row in rows)
    by_device: dict[str, list[str]] = {}
    for _, observer, _, epsilon, _, _, device in rows:
        if epsilon > 0.99 * most:
            by_device.setdefault(device, []).append(observer)
    who = "; ".join(f"{', '.join(seers)} about {_placed(runs[0], name)}" for name, seers in by_device.items())
    return f"Decided by {who}, with the largest accounted epsilon, {number(most)}."


def _placed(run: RunView, device: str) -> str:
    """A device with its edge server and the trust in it."""
    below = next((each for each in run.topology.subnets if each.rows_of(frozenset([device]))), None)
    return device if below is None else f"{device} (under {below.name}, {below.trust})"


def noise(runs: Sequence[RunView], every: Sequence[Series]) -> ReportSection:
    """The section on how much noise was added, and by whom."""
    decided = _decided(runs)
    curves: list[Curve] = []
    for kind in KINDS:
        for adder, words in ADDERS.items():
            column = f"noise_{kind}_{adder}"
            if any(known(series, column) for series in every):
                style = len({curve.style for curve in curves})
                curves += curves_of(every, column, f"{kind}, by {words}", style)
    caption = (
        "Standard deviation of the noise on each coordinate of an upload (in units of the model's parameters): mean "
        "over those who add it, with a band from the smallest to the largest. Noise by devices is on their uploads, "
        "noise by an edge server on the average of its subnet, or with more tiers on the average that the cloud sees "
        "the subnet in."
    )
    labels = {curve.label for curve in curves}
    title = f"Noise: {labels.pop()}" if len(labels) == 1 else "Noise"
    figure = CurveChart("noise", title, caption, "standard deviation", curves, scale="log")
    if curves and len(every) == 1 and all(len(set(every[0].columns[each.column]) - {None}) == 1 for each in curves):
        ends = {each.label: [every[0].columns[column] for column in each.band or (each.column,)] for each in curves}
        levels = (f"{label} {' to '.join(dict.fromkeys(map(_end, found)))}" for label, found in ends.items())
        lead = f"Standard deviation on each coordinate of an upload, in every interval the same: {'; '.join(levels)}."
        return ReportSection("noise", "Noise levels", f"{lead} {decided}".strip(), [])
    return ReportSection("noise", "Noise levels", decided if curves else "", [figure] if curves else [])


def _end(values: Column) -> str:
    """The last value that is not null."""
    return number(next(each for each in reversed(values) if each is not None))


def _spans_decades(every: Sequence[Series], curves: Sequence[Curve]) -> bool:
    values = [value for curve in curves for value in every[curve.series].columns[curve.column] if value]
    return bool(values) and max(values) > 10 * min(values)
