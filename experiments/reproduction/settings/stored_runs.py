"""Runs as lines of a CSV: what claims are judged by, without the runs' directories.

| column | holds |
|---|---|
| recipe | a digest of the experiment file and of everything that was changed in it: what the run was made from |
| stage | `trial`, `screen`, `confirm` or `decisions` |
| setting | its number in the design |
| column | `claimed` or `accounted`: where the noise is from |
| figure | whose sweep it is of |
| seed, point | the seed, and the other swept values as JSON |
| accuracy | after each interval, in units of 1e-6 |
| energy_j, delay_s | after each interval, four digits, where the figure shows costs |
| tau, devices | mean interval length and mean devices of a subnet, of decisions |
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.reproduction.figures_file import COLUMNS, Column
from experiments.reproduction.results import SEED, Results
from h2fdp.errors import UserError
from h2fdp.records.atomic import write_text

if TYPE_CHECKING:
    import pandas as pd

_PER_UNIT = 1_000_000
_STAGES = ("trial", "screen", "confirm", "decisions")
_SERIES = ("accuracy", "energy_j", "delay_s")
_SHARE, _PROBABILITY = "topology.trust.trusted", "topology.trust.probability"


class RunHead(NamedTuple):
    """What a run is of; see the table above."""

    recipe: str
    stage: str
    setting: int
    column: Column
    figure: str


@dataclass(frozen=True)
class StoredRun:
    """One run; see the table above. Series are texts of numbers with spaces between them."""

    recipe: str
    stage: str
    setting: int
    column: Column
    figure: str
    seed: int
    point: str
    accuracy: str = ""
    energy_j: str = ""
    delay_s: str = ""
    tau: str = ""
    devices: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """Swept key -> value, in the words of the claims."""
        return {SEED: self.seed, **in_words_of_claims(json.loads(self.point))}

    def as_of(self, recipe: str, stage: str, figure: str, values: Mapping[str, Any]) -> StoredRun:
        """The same run under another figure, whose sweep names its point by these values."""
        return replace(self, recipe=recipe, stage=stage, figure=figure, point=_point_of(values))


_COLUMNS = tuple(field.name for field in fields(StoredRun))


def in_words_of_claims(point: Mapping[str, Any]) -> dict[str, Any]:
    """An exact share of trusted edge servers stands for their probability; under hfl-dp no server is trusted.

    >>> in_words_of_claims({"method": "h2fdp", "topology.trust.trusted": 0.5})
    {'method': 'h2fdp', 'topology.trust.trusted': 0.5, 'topology.trust.probability': 0.5}
    """
    words = dict(point)
    if _SHARE in words:
        words[_PROBABILITY] = words[_SHARE]
    if words.get("method") == "hfl-dp":
        words[_PROBABILITY] = 0
    return words


def stored(head: RunHead, values: Mapping[str, Any], rows: pd.DataFrame, *, with_costs: bool) -> StoredRun:
    """A finished run as a line.

    Args:
        values: swept key -> value, the seed among them.
        rows: of its metrics or decisions, in the order of intervals.
        with_costs: energy and delay are kept too.
    """
    known = (*head, int(values[SEED]), _point_of(values))
    if "devices_per_subnet" in rows:
        tau, devices = (f"{float(rows[key].mean()):.6g}" for key in ("local_steps", "devices_per_subnet"))
        return StoredRun(*known, tau=tau, devices=devices)
    accuracy = " ".join(str(round(_PER_UNIT * each)) for each in rows["accuracy"])
    if not with_costs:
        return StoredRun(*known, accuracy=accuracy)
    energy, delay = (" ".join(f"{each:.4g}" for each in rows[key]) for key in ("energy_j", "delay_s"))
    return StoredRun(*known, accuracy=accuracy, energy_j=energy, delay_s=delay)


def _point_of(values: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in values.items() if key != SEED})


def results_from(runs: Iterable[StoredRun]) -> Results:
    """Runs of one study, as those of a sweep."""
    import pandas as pd

    tables, values = [], {}
    for run in runs:
        values[run.recipe] = run.values
        columns: dict[str, Sequence[float]] = {
            key: [float(each) for each in getattr(run, key).split()] for key in _SERIES if getattr(run, key)
        }
        if "accuracy" in columns:
            columns["accuracy"] = [each / _PER_UNIT for each in columns["accuracy"]]
        if run.tau:
            columns |= {"local_steps": [float(run.tau)], "devices_per_subnet": [float(run.devices)]}
        length = max(map(len, columns.values()), default=0)
        tables.append(pd.DataFrame({"run": run.recipe, "interval": range(1, length + 1), **columns}))
    empty = pd.DataFrame({"run": [], "interval": []})
    return Results(values, pd.concat(tables, ignore_index=True) if tables else empty)


@dataclass
class RunStore:
    """Stored runs by their recipes, and the commands that made them."""

    runs: dict[str, StoredRun]
    made: list[str]

    def add(self, runs: Iterable[StoredRun], made: str = "") -> None:
        """Take runs in, and say how they were made, if anything new was."""
        self.runs |= {run.recipe: run for run in runs}
        if made and made not in self.made:
            self.made.append(made)

    def write(self, path: Path) -> None:
        """Write them all; comments say what made them."""
        text = io.StringIO()
        text.writelines(f"# {each}\n" for each in self.made)
        writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        order = sorted(self.runs.values(), key=lambda run: (run.stage, run.setting, run.figure, run.column, run.seed))
        writer.writerows(asdict(run) for run in order)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text.getvalue())


def read_runs(*paths: Path) -> RunStore:
    """What is stored in some files, as far as they are there; a later one prevails.

    Raises:
        UserError: a line that is none of such a file.
    """
    found = RunStore({}, [])
    for path in paths:
        if path.is_file():
            lines = path.read_text().splitlines()
            comments = [line[1:].strip() for line in lines if line.startswith("#")]
            found.made += [comment for comment in comments if comment not in found.made]
            numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
            if numbered and numbered[0][1] != ",".join(_COLUMNS):
                text = f"expected the column names {','.join(_COLUMNS)}, found {numbered[0][1][:60]}"
                raise UserError(text, f"{path}:{numbered[0][0]}")
            for number, line in numbered[1:]:
                run = _run(next(csv.reader([line])), f"{path}:{number}")
                found.runs[run.recipe] = run
    return found


def _run(cells: Sequence[str], where: str) -> StoredRun:
    try:
        cell = dict(zip(_COLUMNS, cells, strict=True))
        {}.update(json.loads(cell["point"]))
        if cell["stage"] not in _STAGES or cell["column"] not in COLUMNS:
            raise ValueError
        for number in " ".join(cell[key] for key in (*_SERIES, "tau", "devices")).split():
            float(number)
        numbers: dict[str, Any] = {"setting": int(cell["setting"]), "seed": int(cell["seed"])}
        return StoredRun(**(cell | numbers))
    except (ValueError, TypeError):
        raise UserError(f"expected a line of {', '.join(_COLUMNS)}, found {','.join(cells)[:60]}", where) from None
