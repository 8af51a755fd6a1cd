"""Run the published settings, and write what came out: `python -m experiments.published_settings NAME ...`.

NAME is a file of this folder without its ending, or all. The runs are sweeps in OUT: the same command continues after
an interruption. Their numbers are stored in NAME.csv of this folder; `--page` writes README.md from these alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

import h2fdp
from experiments.programs import told
from experiments.published_settings.settings import FOLDER, MEASURES, SETTINGS, Setting, figure_of, point_word
from experiments.questions.study import END, accounted, by_seed, mean
from experiments.reproduction.conduct import commit_of
from h2fdp.records.atomic import write_text

COSTS = {"joules": "energy_j", "seconds": "clock_s"}
PAGE = FOLDER / "README.md"
BEGIN = "<!-- begins: python -m experiments.published_settings writes it -->"


def run(setting: Setting, out: Path, data_root: Path | None, jobs: int) -> pd.DataFrame:
    """The table of a setting's runs, those that are missing made first."""
    rows = []
    for values, each in (setting.runs or _swept)(setting.file, out / setting.name, data_root, jobs):
        last = each.metrics.iloc[-1]
        there = each.metrics[each.metrics["accuracy"] >= setting.target / 100]
        reached = there.iloc[0] if len(there) else dict.fromkeys(COSTS.values(), float("nan"))
        noises = each.summary["noise_std"] or [{"largest": float("nan")}]
        rows.append(
            {
                "point": point_word(values),
                "seed": values.get("seed", 1),
                "accuracy": 100 * each.summary["accuracy"],
                "epsilon": accounted(each) if each.summary["privacy"] else float("nan"),
                "joules": last["energy_j"],
                "seconds": last["clock_s"],
                "megabytes": last["bytes"] / 1e6,
                "noise": noises[0]["largest"],
                **{f"{cost}_until": reached[column] for cost, column in COSTS.items()},
            }
        )
    return pd.DataFrame(rows)


def _swept(file: Path, out: Path, data_root: Path | None, jobs: int) -> Iterator[tuple[dict[str, Any], h2fdp.Run]]:
    """The runs of a file's sweep, with their swept values."""
    done = h2fdp.sweep(file, [], out, data_root=data_root, jobs=jobs)
    assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
    points = json.loads((done.directory / "sweep.json").read_text())["points"]
    yield from ((points[name]["values"], each) for name, each in done.runs.items())


def section(setting: Setting, table: pd.DataFrame) -> Iterator[str]:
    """Of the page."""
    yield f"### {setting.paper}"
    yield ""
    yield f"*The paper's statement*: {setting.statement}"
    yield ""
    yield f"[`{setting.name}.yaml`]({setting.name}.yaml). {setting.judge(table)}"
    yield ""
    yield "| | " + " | ".join(MEASURES[each] for each in setting.measures) + " |"
    yield "|---" * (1 + len(setting.measures)) + "|"
    for point in dict.fromkeys(table["point"]):
        shown = [mean(by_seed(table, each, point=point)) for each in setting.measures]
        yield f"| {point} | " + " | ".join(figure_of(each) for each in shown) + " |"
    yield ""


def text() -> str:
    """The page, with the stored table of each setting that has one."""
    stored = {each: pd.read_csv(each.stored, comment="#") for each in SETTINGS.values() if each.stored.exists()}
    lines = [line for each, table in stored.items() for line in section(each, table)]
    head, rest = PAGE.read_text().split(BEGIN)
    return head + BEGIN + "\n\n" + "\n".join(lines) + "\n" + END + rest.split(END, 1)[1]


def main() -> None:
    """Run what is asked, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=(*SETTINGS, "all"), metavar="NAME")
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("sweeps/field"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="only the page, from the stored tables")
    asked = parser.parse_args()
    for name in SETTINGS if "all" in asked.names else asked.names:
        if not asked.page:
            table = run(SETTINGS[name], asked.out, asked.data_root, asked.jobs)
            made_by = f"# `python -m experiments.published_settings {name} --data-root DIR` at {commit_of(FOLDER)}\n"
            write_text(SETTINGS[name].stored, made_by + table.to_csv(index=False, float_format="%.6g"))
            print("\n".join(section(SETTINGS[name], table)), flush=True)
    write_text(PAGE, text())


if __name__ == "__main__":
    told(main)
