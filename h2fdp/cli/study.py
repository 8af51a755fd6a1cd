"""`h2fdp study`: networks by one curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.sweep import watched
from h2fdp.cli.terminal import (
    AsJson,
    DataRoot,
    ExperimentPath,
    OverwriteRuns,
    Quiet,
    Settings,
    interruptible,
    print_facts,
    print_json,
    print_table,
    print_text,
)
from h2fdp.wording import SCORES, counted, word

if TYPE_CHECKING:
    from h2fdp.sweeps.asked import Asked
    from h2fdp.sweeps.one_curve import Studied

_MOST_ROWS = 40


def study_command(
    file: ExperimentPath,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The study's directory.", show_default="studies/<name>")] = None,
    verify: Annotated[int, typer.Option(min=0, metavar="N", help="Run N of the networks, too.")] = 0,
    data_root: DataRoot = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs in parallel; short ones are faster one by one.")] = 1,
    overwrite: OverwriteRuns = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Read the accuracy of every network under `study:` from one curve of a few runs; what is there is used again."""
    from h2fdp.experiment.file import named_document, parse_setting
    from h2fdp.reports.pictures import write_map, write_page
    from h2fdp.sweeps.one_curve import carry_out
    from h2fdp.sweeps.plan import SharedInputs

    document, changes, shared = named_document(file), list(map(parse_setting, settings or ())), SharedInputs(data_root)
    with interruptible() as interrupt, watched(interrupt, jobs, overwrite=overwrite, quiet=quiet) as options:
        studied = carry_out(document, changes, shared, options, out, verify)
    values = studied.as_dict()
    picture = write_map(values, studied.directory / "map.png")
    page = write_page(values, studied.directory / "report.html")
    if as_json:
        print_json(values)
        return
    _show(studied)
    print_facts({"files": studied.directory, "picture": picture, "report": page})


def choose_command(
    file: Path,
    settings: list[str] | None,
    data_root: Path | None,
    as_json: bool,
    accuracy: float | None,
    epsilon: float | None,
    joules: float | None,
    price: float | None,
) -> None:
    """The cheapest trust for an accuracy, see `choose_trust`."""
    from h2fdp.experiment.file import named_document, parse_setting
    from h2fdp.sweeps.choice import choose_trust
    from h2fdp.sweeps.plan import SharedInputs

    document, changes, shared = named_document(file), list(map(parse_setting, settings or ())), SharedInputs(data_root)
    with interruptible() as interrupt, watched(interrupt, 1, overwrite=True, quiet=as_json) as options:
        found = choose_trust(document, changes, shared, options, accuracy, epsilon, joules, None, price)
    if as_json:
        print_json(found.as_dict())
        return
    asked = "" if accuracy is None else f" (asked: {100 * accuracy:g} %)"
    print_text(f"{found.answer}: price {found.price:g}")
    facts = {
        "accuracy": f"{100 * found.score:.2f} ± {100 * found.half:.2f} %{asked}",
        "nothing bought": f"{100 * found.before:.2f} %",
        **({"trusted for 0": _listed(found.kept)} if found.kept else {}),
        "epsilon": f"{found.epsilon:g} for every observer",
        "network": f"{found.plan.joules:.3g} J, {found.plan.seconds:.3g} s",
        "runs": found.directory,
    }
    if found.without:
        rows = [
            {
                "edge server": name,
                "buy": found.states[name],
                "price": found.prices[name],
                "without it, %": f"{100 * each:.2f}",
            }
            for name, each in list(found.without.items())[:_MOST_ROWS]
        ]
        print_table(rows)
        if len(found.without) > len(rows):
            typer.echo(f"and {len(found.without) - len(rows)} more (--json has them all)")
    print_facts(facts)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_ROWS else counted(len(names), "edge server")


def _show(studied: Studied) -> None:
    score = SCORES[studied.score]
    read = "predicted, and half of the 95 % band of one run" if studied.curve else "measured"
    _print_by_trust(studied, f"{score.title}: {read}", lambda each: in_words(studied, each))
    _print_by_trust(studied, "joules of a run", lambda each: f"{each.row['joules']:.3g}")
    verified = [each for each in studied.networks if studied.curve and each.measured == each.measured]
    if verified:
        rows = [
            {**_named(each), "predicted": in_words(studied, each), "measured": f"{score.factor * each.measured:.4g}"}
            for each in verified
        ]
        print_table(rows, title=f"{score.title}: as predicted, and as one run measures it")
    facts: dict[str, Any] = {}
    if studied.curve is not None:
        levels = len(studied.curve.noise)
        facts["curve"] = f"{len(studied.runs)} runs at {levels} noises for {len(studied.networks)} networks"
    if studied.joules is not None:
        best = studied.best
        named = "no network" if best is None else ", ".join(f"{key} {word(each)}" for key, each in _named(best).items())
        facts[f"within {studied.joules:g} J"] = named if best is None else f"{named}: {in_words(studied, best)}"
    if facts:
        print_facts(facts)


def _named(network: Asked) -> dict[str, Any]:
    """The values by which a network differs from the others."""
    sizes = network.values.get("edges")
    edges = {} if sizes is None else {"edge servers": sizes if isinstance(sizes, int) else f"{sizes[0]} x {sizes[1]}"}
    return edges | {key: network.values[key] for key in ("epsilon", "trust") if key in network.values}


def in_words(studied: Studied, network: Asked) -> str:
    """The score of a network, `86.1 ± 0.4`."""
    factor = SCORES[studied.score].factor
    digits = "{:.1f}" if factor == 100 else "{:.4g}"
    if studied.curve is None:
        return digits.format(factor * network.measured)
    half = "" if network.half != network.half else f" ± {digits.format(factor * network.half)}"
    return digits.format(factor * network.score) + half


def _print_by_trust(studied: Studied, title: str, cell: Any) -> None:
    """A row for each size and epsilon, a column for each share of trust."""
    rows: dict[str, dict[str, Any]] = {}
    for each in studied.networks:
        named = _named(each)
        share = named.pop("trust", None)
        column = "as the file says" if share is None else f"trust {share:g}"
        rows.setdefault(str(named), dict(named))[column] = cell(each)
    shown = list(rows.values())
    print_table(shown[:_MOST_ROWS], title=title)
    if len(shown) > _MOST_ROWS:
        typer.echo(f"and {len(shown) - _MOST_ROWS} more (study.csv has them all)")
