"""Which observer is the binding one: everybody's accounted epsilon where the worst one's is 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.questions.study import FOLDER, Question, picture
from h2fdp.run.preview import privacy_report

TREE = "topology=../networks/{}.yaml"
SUM_AT_CLOUD = "topology.cloud={trust: secure-sum}"
ARRANGEMENTS: Mapping[str, tuple[str, ...]] = {
    "none trusted": ("topology.trust={trusted: 0, exact: true}",),
    "half trusted": ("topology.trust={trusted: 0.5, exact: true}",),
    "all trusted": ("topology.trust={trusted: 1, exact: true}",),
    "all trusted, a sum at the cloud": ("topology.trust={trusted: 1, exact: true}", SUM_AT_CLOUD),
    "secure sums": ("topology.trust={secure-sum: 1, exact: true}",),
    "secure sums, one colludes": (
        "topology.trust={secure-sum: 1, exact: true}",
        "method={extends: h2fdp, privacy: {name: hierarchical, secure_sum: {colluding: 1}}}",
    ),
    "a star": ("topology.trust={trusted: 0, exact: true}", "method={extends: hfl-dp, topology: star}"),
    "none trusted, ten steps with noise inside": (
        "topology.trust={trusted: 0, exact: true}",
        "method={extends: hfl-dp, privacy: {name: local, noise: steps}}",
        "training.local_steps=10",
        "training.aggregate_every=10",
        "training.intervals=4",
    ),
    "two tiers, the lower trusted": (TREE.format("two-tiers-below"),),
    "two tiers, all trusted": (TREE.format("two-tiers"),),
}
TARGETS = ("edge", "peer", "cloud", "public")
OBSERVERS = ("edge", "tier-2", "peer", "cloud", "public")


class Observers(Question):
    """Ten arrangements of the same devices."""

    name = "observers"
    alternative = "Accounted epsilon of every observer in ten arrangements"

    def run(self, out: Path, data_root: Path | None, jobs: int, settings: list[str]) -> pd.DataFrame:
        """Calibrate, account, and calibrate again without the observer that binds."""
        return pd.DataFrame([row for name in ARRANGEMENTS for row in self.accounts(name, data_root, settings)])

    def accounts(self, name: str, data_root: Path | None, settings: list[str]) -> Iterator[dict[str, Any]]:
        """A row for each observer of an arrangement: its epsilon, and the noise if only it were not protected."""
        changes = [each.replace("../networks/", f"{FOLDER}/networks/") for each in (*ARRANGEMENTS[name], *settings)]
        setup = h2fdp.Experiment.from_file(self.file, changes).prepare(data_root)
        found = privacy_report(setup)["observers"]
        for observer in found:
            dropped = "edge" if observer.startswith("tier") else observer  # as `target_observers` has it
            others = [each for each in TARGETS if each != dropped]
            less = f"privacy.target_observers=[{', '.join(others)}]"
            without = h2fdp.Experiment.from_file(self.file, [*changes, less]).prepare(data_root)
            epsilon = found[observer]["pld"]
            yield {
                "arrangement": name,
                "observer": observer,
                "epsilon": np.nan if epsilon is None else epsilon,
                "noise_without": without.factor / setup.factor,
            }

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """No run is made."""
        raise NotImplementedError

    def binding(self, table: pd.DataFrame, name: str) -> list[str]:
        """The observers whose epsilon is the largest, up to one in a hundred."""
        own = table[table["arrangement"] == name]
        return own.loc[own["epsilon"] >= 0.99 * own["epsilon"].max(), "observer"].tolist()

    def at(self, table: pd.DataFrame, name: str, observer: str, column: str = "epsilon") -> float:
        """A number of an observer; NaN where there is no such one, or it has no account."""
        found = table[(table["arrangement"] == name) & (table["observer"] == observer)][column]
        return float(found.iloc[0]) if len(found) else float("nan")

    def answer(self, table: pd.DataFrame) -> str:
        """Who binds where."""
        cloud = self.at(table, "none trusted", "cloud")
        without = self.at(table, "none trusted", "edge", "noise_without")
        return (
            "**Where nobody is trusted it is the device's own edge server, and it alone: the cloud then has only "
            f"{cloud:.2f} of an epsilon of 1, and who need not hide from edge servers gets by with {without:.2f} times "
            "the noise. Where edge servers are trusted it is everybody else, all alike; in secure sums it is a "
            "device of "
            f"the same subnet.** There the edge server has {self.at(table, 'secure sums', 'edge'):.2f}, "
            "because it does "
            "not know any device's share of the noise."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """Cells of epsilons, dark where they bind."""
        figure, (axes,) = picture(1, height=3.9)
        axes.grid(visible=False)
        values = np.array([[self.at(table, name, observer) for observer in OBSERVERS] for name in ARRANGEMENTS])
        axes.imshow(np.nan_to_num(values), cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
        for row, name in enumerate(ARRANGEMENTS):
            for column, observer in enumerate(OBSERVERS):
                epsilon = values[row, column]
                there = not table[(table["arrangement"] == name) & (table["observer"] == observer)].empty
                word = "trusted" if there and np.isnan(epsilon) else "" if not there else f"{epsilon:.2f}"
                bold = "bold" if observer in self.binding(table, name) else "normal"
                dark = "white" if epsilon > 0.7 else "black"
                axes.text(column, row, word, ha="center", va="center", fontsize=9, weight=bold, color=dark)
        axes.set_xticks(range(len(OBSERVERS)), OBSERVERS)
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(ARRANGEMENTS)), list(ARRANGEMENTS), fontsize=9)
        axes.tick_params(length=0)
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each arrangement."""
        yield (
            "| arrangement | binding | "
            + " | ".join(f"`{each}`" for each in OBSERVERS)
            + " | noise if the binding one need not be protected |"
        )
        yield "|---" * (len(OBSERVERS) + 3) + "|"
        for name in ARRANGEMENTS:
            bound = self.binding(table, name)
            cells = [
                "" if np.isnan(each) else f"{each:.3f}"
                for each in (self.at(table, name, observer) for observer in OBSERVERS)
            ]
            without = (
                f"{self.at(table, name, bound[0], 'noise_without'):.2f}" if len(bound) == 1 else "1, as others bind too"
            )
            yield f"| {name} | {', '.join(bound)} | " + " | ".join(cells) + f" | {without} |"
