"""One experiment with some features: it is right, or refused in a line with its key, and nothing else.

An experiment is right where its run ends with each account at most at its target, its files agree with each other, and
the same run, killed in its second interval and resumed on two hosts, ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import yaml

import h2fdp
from experiments.combinations.features import Apart, document
from h2fdp import Experiment, UserError
from h2fdp.run import recorders

APART, REFUSED, RIGHT = "apart", "refused", "right"
Outcome = tuple[str, str]  # one of these words, and the keys that are stated twice or refused
FILES = ("privacy.jsonl", "model.pt")


class Killed(ConnectionError):
    """The process of a run is gone."""


def planned(names: tuple[str, ...], folder: Path) -> Outcome:
    """The outcome before any training; an experiment that is not refused is `RIGHT` so far.

    Args:
        folder: gets the file `experiment.yaml`.
    """
    try:
        values = document(*names)
    except Apart as error:
        return APART, str(error)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    try:
        Experiment.from_file(file).prepare()
    except UserError as error:
        if not all(each.key and each.where for each in error.problems):
            raise AssertionError("a refusal has a line and a key") from error
        return REFUSED, " ".join(sorted({each.key for each in error.problems}))
    return RIGHT, ""


def outcome(names: tuple[str, ...], folder: Path) -> Outcome:
    """The outcome after the run, its kill and its resumption.

    Raises:
        AssertionError: an account exceeds its target, files disagree with each other, or bits differ.
    """
    found = planned(names, folder)
    if found[0] != RIGHT:
        return found
    file = folder / "experiment.yaml"
    run = Experiment.from_file(file).run(folder / "run", progress=False)
    verdicts = {observer: each["verdict"] for observer, each in run.summary["privacy"]["worst"].items()}
    assert set(verdicts.values()) == {"met"}, verdicts
    assert h2fdp.check(run.directory).problems == []
    try:
        with killed_in_the_second_interval():
            Experiment.from_file(file).run(folder / "killed", progress=False)
    except Killed:
        again = h2fdp.resume(folder / "killed", settings=["runtime.hosts=2"], progress=False)
        assert h2fdp.check(again.directory).problems == []
        one, other = (each.metrics.drop(columns="wall_s") for each in (run, again))
        pd.testing.assert_frame_equal(one, other, check_exact=True)
        for name in FILES:
            assert (run.directory / name).read_bytes() == (again.directory / name).read_bytes(), name
    return found


@contextmanager
def killed_in_the_second_interval() -> Iterator[None]:
    """Runs end when the releases of their second interval are on disk."""

    def kill(step: str, interval: int) -> None:
        if (step, interval) == ("released", 1):
            raise Killed

    before, recorders.listener = recorders.listener, kill
    try:
        yield
    finally:
        recorders.listener = before
