"""`h2fdp sweep`: the grid of a file's `sweep:` section."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.options import AsJson, DataRoot, ExperimentPath, Settings
from h2fdp.cli.several_runs import Inline, Jobs, OverwriteRuns, Quiet, stopped_at_once, watched
from h2fdp.cli.tables import print_facts, print_json, print_table

if TYPE_CHECKING:
    from h2fdp.reports.study_numbers import Cell
    from h2fdp.sweeps import Sweep
    from h2fdp.sweeps.task import Outcome

_MOST_ROWS = 60
_TITLE = "last interval: means over seeds; 95 %: of the accuracy; pld: the largest epsilon"
_HEADS = ("K", "n", "accuracy", "95 %", "loss", "pld", "energy J")


def sweep_command(
    file: ExperimentPath,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The sweep's directory.", show_default="sweeps/<name>")] = None,
    data_root: DataRoot = None,
    jobs: Jobs = None,
    inline: Inline = False,
    overwrite: OverwriteRuns = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run every combination of the values under `sweep:`; repeat the command to continue."""
    from h2fdp.sweeps.api import Sweep
    from h2fdp.sweeps.conduct import conduct, default_directory
    from h2fdp.sweeps.shared import SharedInputs
    from h2fdp.sweeps.study import read_study

    shared = SharedInputs()
    study = read_study(file, settings or [], shared)
    directory = out or default_directory(study)
    with (
        stopped_at_once() as interrupt,
        watched(interrupt, data_root, jobs, inline=inline, overwrite=overwrite, quiet=quiet) as options,
    ):
        outcomes = conduct(study, directory, shared, options)
    sweep = Sweep(directory, tuple(planned.point.name for planned in study.runs))
    finished = len(sweep.runs)
    if as_json:
        print_json(_as_json(sweep, finished))
    else:
        _show(sweep, finished)
    if interrupt.asked() and finished < len(sweep.names):
        print(
            f"stopped: {finished} of {len(sweep.names)} runs are done; run the same command to continue",
            file=sys.stderr,
        )
        raise typer.Exit(interrupt.exit_code)
    _exit_for(outcomes, sweep)


def _exit_for(outcomes: dict[str, Outcome], sweep: Sweep) -> None:
    """Tell failures: 2 where all are the user's mistakes, else 1."""
    failed = {name: outcome for name, outcome in outcomes.items() if outcome.error}
    for name, outcome in failed.items():
        reason = outcome.error.strip() if outcome.mistake else outcome.error.strip().rpartition("\n")[2]
        print(f"{name} failed: {reason}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} of {len(sweep.names)} runs failed: see {sweep.directory / 'failures'}", file=sys.stderr)
        raise typer.Exit(2 if all(outcome.mistake for outcome in failed.values()) else 1)


def _as_json(sweep: Sweep, finished: int) -> dict[str, Any]:
    return {
        "directory": str(sweep.directory),
        "runs": len(sweep.names),
        "finished": finished,
        "failed": sorted(sweep.failures),
        "last": _last_intervals(sweep).to_dict("records"),
    }


def _last_intervals(sweep: Sweep) -> Any:
    """The last row of the summary of each combination of values other than the seed."""
    from h2fdp.sweeps.table import last_intervals

    return last_intervals(sweep.summary)


def _show(sweep: Sweep, finished: int) -> None:
    """The table that a sweep ends with: what the runs of each combination reached, each in its own last interval."""
    if finished:
        from h2fdp.reports.study_numbers import study_numbers

        numbers = study_numbers(sweep.directory)
        heads = _heads(list(numbers.keys))
        rows = [_row(values, cells, heads) for values, cells in numbers.points[:_MOST_ROWS]]
        print_table(rows, title=_TITLE)
        if len(numbers.points) > len(rows):
            typer.echo(f"and {len(numbers.points) - len(rows)} more (summary.parquet has them all)")
    print_facts({"runs": f"{finished} of {len(sweep.names)} done", "sweep directory": sweep.directory})


def _heads(keys: list[str]) -> dict[str, str]:
    """Swept key -> its last word, where that says which key it is."""
    last = [key.rpartition(".")[2] for key in keys]
    return {
        key: word if last.count(word) == 1 and word not in _HEADS else key for key, word in zip(keys, last, strict=True)
    }


def _row(values: Mapping[str, Any], cells: Mapping[str, Cell], heads: dict[str, str]) -> dict[str, Any]:
    """A line of the table; of the epsilons accounted by `pld` the largest."""
    accuracy = cells["accuracy"]
    low, high = accuracy.low / 100, accuracy.high / 100
    told = (
        _known(cells["intervals"].mean),
        accuracy.runs,
        _known(accuracy.mean / 100),
        None if math.isnan(low) else f"{_end(low)} to {_end(high)}",
        _known(cells["loss"].mean),
        _known(cells["epsilon"].mean),
        _known(cells["energy_j"].mean),
    )
    return {head: _known(values[key]) for key, head in heads.items()} | dict(zip(_HEADS, told, strict=True))


def _end(share: float) -> str:
    """An end of an accuracy's interval, which Student's may have beyond what there can be: `<0`, `>1`."""
    return "<0" if share < 0 else ">1" if share > 1 else f"{share:.3g}"


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
