"""Every method of `h2fdp methods` by its name alone, on README's network and data: accuracy, joules, epsilon.

    python -m experiments.defaults.named_methods --data-root DIR              # every method, one after another
    python -m experiments.defaults.named_methods --data-root DIR --only h2fdp h2fdp-adaptive
    python -m experiments.defaults.named_methods                              # the table again, from what was measured

Keeps a row for each method in `named_methods.csv`, and writes the table of `docs/methods.md` from it.
`central`, which has no name of its own, and `pe-dpfl` under the noise of its formula follow.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.programs import between_markers
from h2fdp import Experiment
from h2fdp.methods import METHODS

FILE, PAGE = Path(__file__).with_name("named_methods.csv"), Path(__file__).parents[2] / "docs" / "methods.md"
COMMAND = "python -m experiments.defaults.named_methods"
COLUMNS = ("method", "accuracy", "personal", "joules", "epsilon")
_BELOW = {"count": 5, "distance_m": {"uniform": [10, 100]}}
NETWORK = {"trust": {"trusted": 0.5, "exact": True}, "edges": [{"name": "edge-{i}", "repeat": 10, "devices": _BELOW}]}
DATA = {"name": "fashion-mnist", "partition": {"labels_per_device": 3}}
CASES: dict[str, dict[str, Any]] = {  # settings, besides the data
    **{name: {"topology": NETWORK, "method": name} for name in METHODS},
    "h2fdp, privacy central, all trusted": {
        "topology": NETWORK | {"trust": {"trusted": 1}},
        "method": {"extends": "h2fdp", "privacy": "central"},
    },
    "pe-dpfl, calibration paper": {"topology": NETWORK, "method": "pe-dpfl", "calibration": "paper"},
}


def measured(name: str, out: Path, data_root: Path) -> dict[str, Any]:
    """The row of a method: test accuracy and that of devices' own models in %, joules, the largest epsilon."""
    settings = {"data": DATA, "tensorboard": False, "evaluate_every": 1_000, **CASES[name]}  # changes nothing else
    private = Experiment(**settings).config.method.privacy.private
    experiment = Experiment(**settings, **({"epsilon": 1.0} if private else {}))
    run = experiment.run(out, data_root=data_root, overwrite=True, progress=False)
    last = run.metrics.iloc[-1]
    observers = [run.privacy.epsilon(observer=each) for each in ("edge", "peer", "cloud", "public")] if private else []
    found = [each for each in observers if each is not None]
    personal = last.get("personal_accuracy")
    return {
        "method": name,
        "accuracy": f"{100 * last['accuracy']:.1f}",
        "personal": "" if personal is None or personal != personal else f"{100 * personal:.1f}",
        "joules": f"{run.summary['energy_j']:.3g}",
        "epsilon": f"{max(found):.3g}" if found else "",
    }


def table(rows: Iterable[dict[str, str]]) -> Iterator[str]:
    """The lines of the page."""
    yield "| method | accuracy, % | of devices' own models, % | joules | epsilon |"
    yield "|---|---|---|---|---|"
    for row in rows:
        yield f"| {' | '.join(row[key] for key in COLUMNS)} |".replace("|  |", "| |").replace("|  |", "| |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="without it nothing runs")
    parser.add_argument("--out", type=Path, default=Path("runs/named-methods"), help="where the last run is left")
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    asked = parser.parse_args()
    known = {row["method"]: row for row in csv.DictReader(FILE.open())} if FILE.exists() else {}
    for name in asked.only if asked.data_root else ():
        known[name] = measured(name, asked.out, asked.data_root)
        print(known[name], flush=True)
        with FILE.open("w", newline="") as file:
            lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            lines.writeheader()
            lines.writerows(known[each] for each in CASES if each in known)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(between_markers(page, COMMAND, table(known[each] for each in CASES if each in known)), "utf-8")


if __name__ == "__main__":
    main()
