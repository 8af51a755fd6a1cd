"""Any experiment that can be written down runs two intervals, or is refused with file, line and key. One that runs also
comes to the same bits after a crash, and its directory is whole.

H2FDP_EXAMPLES=N tries N of them instead of a few.
"""

import os
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import h2fdp
from h2fdp import Experiment, UserError
from h2fdp.methods import METHODS
from h2fdp.run import recorders
from tests.noise_keys import keys_are, known

EXAMPLES = int(os.environ.get("H2FDP_EXAMPLES", "4"))

LEVELS = [{"trusted": True}, {"trusted": False}, {"trust": "secure-sum"}]


@st.composite
def networks(draw):
    trusts = st.sampled_from(draw(st.sampled_from([LEVELS, [{"trust": "relay"}]])))
    edges = [
        {"name": name, **draw(trusts), "devices": {"count": draw(st.integers(1, 3))}}
        for name in "ab"[: draw(st.integers(1, 2))]
    ]
    for tier in range(2, 2 + draw(st.integers(0, 3))):
        edges = [{"name": f"tier-{tier}", **draw(trusts), "edges": edges}]
    return {"edges": edges}


def some_of(**keys):
    """A mapping with any of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


NAMES = [*sorted(METHODS), *(f"upcycled-{name}" for name in sorted(METHODS))]
methods = st.sampled_from(NAMES) | some_of(
    extends=st.sampled_from(NAMES),
    privacy=st.sampled_from(["none", "hierarchical", "local", "devices", "output"])
    | st.sampled_from([{"name": "dp-sgd", "noise_multiplier": 1.0}, {"name": "hierarchical", "noise": "steps"}]),
    aggregation=st.sampled_from(["average", "fednova"]),
    server=st.sampled_from(["average", "momentum", "yogi"]),
    upcycle=st.floats(0, 1),
)
training = some_of(
    local_steps=st.integers(1, 3),
    aggregate_every=st.integers(1, 3),
    aggregations_per_interval=st.integers(0, 2),
    batch_size=st.integers(1, 5),
    participation=st.sampled_from([0.5, 1.0]),
    momentum=st.sampled_from([0.0, 0.5]),
    weights=st.sampled_from(["uniform", "by-size"]),
    clip_norm=st.sampled_from([0.5, 1.0, "normalized", None]),
    clip_scope=st.sampled_from(["batch", "record"]),
    step_decay=st.sampled_from(["none", "linear", "sqrt"]),
    sampling=st.sampled_from(["poisson", "fixed"]),
)
privacy = some_of(
    epsilon=st.sampled_from([1.0, 20.0]),
    delta=st.sampled_from([1e-5, 0.1]),
    calibration=st.sampled_from(["paper", "accounted"]),
    accountant=st.just("rdp"),
    sensitivity=st.sampled_from(["paper", "tight"]),
    adjacency=st.sampled_from(["null-record", "replace"]),
    budget=st.sampled_from([{"cloud": 0.1}, {"edge": 100.0}]),
)
faults = some_of(
    device_dropout=st.sampled_from([0.0, 0.5, 1.0]),
    straggler=st.just({"probability": 0.5}),
    edge_outage=st.just({"probability": 0.5, "intervals": 2}),
)


TURNS = {"enabled": True, "turns": 0.5, "tau_max": 2, "joules": 0.2}


@st.composite
def experiments(draw):
    values = {"topology": draw(networks()), "data": "digits", "model": "softmax", "method": draw(methods)}
    values["training"] = {"intervals": 2, **draw(training)}
    values |= draw(some_of(privacy=privacy, faults=faults, control=some_of(tau_max=st.integers(1, 4)) | st.just(TURNS)))
    values["runtime"] = {"backend": "inline", "hosts": 1, "engine": draw(st.sampled_from(["loop", "stacked"]))}
    values["seed"] = draw(st.integers(0, 3))
    return values


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(experiments())
def test_an_experiment_runs_or_is_refused_with_its_key(values):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.yaml"
        file.write_text(yaml.safe_dump(values, sort_keys=False))
        refused, run = [], None
        try:
            with keys_are(known):
                run = Experiment.from_file(file).run(Path(folder) / "run")
        except UserError as error:
            refused = list(error.problems)
        assert all(problem.key for problem in refused), refused
        if run is not None:
            assert run.summary["state"] in ("done", "budget spent")
            assert h2fdp.check(run.directory).problems == []
            crashed = crash(file, Path(folder) / "crashed")
            if crashed is not None:
                again = h2fdp.resume(crashed).directory
                assert h2fdp.check(again).problems == []
                for name in ("privacy.jsonl", "model.pt"):
                    assert (again / name).read_bytes() == (run.directory / name).read_bytes()


def crash(file, out):
    """A run that ended when the releases of its second interval were on disk; None where it has none."""

    def fail(step, interval):
        if (step, interval) == ("released", 1):
            raise ConnectionError("the host is gone")

    with pytest.MonkeyPatch.context() as patch, keys_are(known):
        patch.setattr(recorders, "listener", fail)
        try:
            Experiment.from_file(file).run(out)
        except ConnectionError:
            assert h2fdp.check(out).problems == []
            return out
    return None
