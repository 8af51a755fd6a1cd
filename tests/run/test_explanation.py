"""What `h2fdp privacy explain` says: lines that fit, and noise on the model, by hand and by an account of its own."""

import math

import numpy as np
import pytest

from h2fdp import Experiment, Topology
from h2fdp.run.explain import LINES, WIDTH, explanation
from h2fdp.run.forecast import first_interval, noise_on_model, planned_accounts, planned_work

DEVICES, INTERVALS, ETA, DELTA = 6, 9, 0.5, 1e-5
EQUAL = {"name": "digits", "partition": {"labels_per_device": 10}}
EVERY = {"trusted": 1, "untrusted": 4}
BY_RECORD = {"clip_scope": "record", "clip_norm": 2.0, "local_steps": 1, "sampling_rate": 0.5}


def experiment(trust=0.0, **settings):
    topology = Topology.regular(edges=2, devices=DEVICES // 2, trust=trust, seed=1)
    defaults = {"intervals": INTERVALS, "step_size": ETA, "epsilon": 2.0, "data": EQUAL, "method": "h2fdp"}
    return Experiment(topology=topology, **{**defaults, **settings})


@pytest.mark.parametrize("decay", ["none", "sqrt"])
def test_noise_on_the_model_is_that_of_all_uploads_averaged(decay):
    """Two subnets of three devices with equal shares; noise falls with the step size."""
    run = experiment(**BY_RECORD, step_decay=decay).prepare()
    first = np.concatenate([plan.noise_std[0] for plan in first_interval(run).subnets.values()])
    falls = [1 / math.sqrt(k) if decay == "sqrt" else 1.0 for k in range(1, INTERVALS + 1)]
    found = noise_on_model(run)
    assert found.noise_std == pytest.approx(
        math.sqrt(sum(first**2) * sum(each**2 for each in falls)) / DEVICES, rel=1e-9
    )
    assert found.way == pytest.approx(ETA * sum(falls))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"trust": 0.5, **BY_RECORD},
        {"method": {"privacy": {"name": "dp-sgd"}}},
        {"method": {"privacy": "central"}, "aggregations_per_interval": 0, "local_steps": 2},
        {"trust": 0.5, "method": {"privacy": {"name": "hierarchical", "noise": "steps"}}, "aggregate_every": EVERY},
    ],
)
def test_few_lines_of_eighty_columns_name_every_observer_and_its_epsilon(settings):
    run = experiment(**settings).prepare()
    found = explanation(run)
    assert len(found["lines"]) <= LINES
    assert max(map(len, found["lines"])) <= WIDTH
    text = "\n".join(found["lines"])
    assert "..." not in text, "no line is cut off"
    assert f"{planned_work(run).costs['energy_j']:.4g} J" in text
    for observer, told in found["observers"].items():
        assert observer in text
        if told["epsilon"] is not None:
            assert f"epsilon {told['epsilon']:.3g}" in text
            assert f", by {told['by']}" in found["lines"][0]
    assert [name for name, told in found["observers"].items() if told["epsilon"] is None] == [
        observer for observer in run.observers if not list(planned_accounts(run).classes(observer))
    ]
