"""No stated key is replaced in silence: it changes the run, is refused, or a sentence at the start says that it has no
effect. The table of methods and keys is filled by runs, each compared with the run that does not state the key."""

from copy import deepcopy

import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.run.preview import without_effect

KEYS = {
    "topology.trust": {"trusted": 1.0},
    "topology.cloud": {"trust": "secure-sum"},
    "training.aggregate_every": 2,
    "training.momentum": 0.5,
    "training.clip_scope": "record",
    "training.clip_norm": 0.002,
    "training.participation": 0.5,
    "privacy.epsilon": 3.0,
    "privacy.delta": 1e-6,
    "privacy.sensitivity": "tight",
    "privacy.c2": 3.0,
    "control.alpha1": 7.0,
}
READ, SAID, REFUSED, SAME = "read", "said", "refused", "same"  # the last: it says what the method has anyway
CENTRAL = {"extends": "h2fdp", "privacy": "central"}
OUTPUT = {"extends": "h2fdp", "privacy": "output"}
OBJECTIVE = {"objective": "proximal", "privacy": {"name": "objective", "input_bound": 100.0}, "topology": "star"}
#                        trust   cloud every momentum scope  norm share epsilon delta tight c2    alpha1
TABLE = {
    "hfl": ("hfl", 3, "said    said  read  read     said     read read  said    said  said  said  said"),
    "fedavg": ("fedavg", 3, "said said said read     said     read read  said    said  said  said  said"),
    "one step": ("hfl", 1, "said said same  said     said     read read  said    said  said  said  said"),
    "h2fdp": ("h2fdp", 3, "read read  read  read     read     read read  read    read  same  read  said"),
    "hfl-dp": ("hfl-dp", 3, "said said read read     read     read read  read    read  same  read  said"),
    "fedavg-dp": ("fedavg-dp", 3, "said said said read same   read read  read    read  said  said  said"),
    "output": (OUTPUT, 3, "said said  read  read     refused  read read  read    read  said  said  said"),
    "central": (CENTRAL, 3, "same said refused read  refused  read read  read    read  said  read  said"),
    "objective": (OBJECTIVE, 3, "said said said read said     read read  read    read  said  said  said"),
}
TRAINING = {
    "extends": "paper", "intervals": 2, "aggregations_per_interval": 0, "batch_size": 8
}  # fmt: skip


def experiment(method, steps, key=None):
    values = {
        "topology": {
            "trust": {"probability": 0.5},  # the default, which states nothing
            "edges": [{"name": name, "devices": {"count": 3}} for name in ("a", "b")],
        },
        "training": TRAINING | {"local_steps": steps},
        "privacy": {"noise_key": "seed"},
        "runtime": {"backend": "inline", "hosts": 1, "engine": "loop"},
    }
    values = deepcopy(values)
    if key is not None:
        *parents, last = key.split(".")
        section = values
        for step in parents:
            section = section[int(step)] if isinstance(section, list) else section.setdefault(step, {})
        section[last] = deepcopy(KEYS[key])
        if key == "training.aggregate_every":
            del values["training"]["aggregations_per_interval"]
    return Experiment(data="digits", model="softmax", method=method, tensorboard=False, **values)


def left(made, out):
    """All that a run leaves of its results."""
    run = made.run(out, overwrite=True)
    ledger = out / "privacy.jsonl"
    metrics = run.metrics.drop(columns=[name for name in run.metrics if "wall" in name]).to_json()
    return run.summary["model_sha256"], metrics, ledger.read_text() if ledger.is_file() else "", run.summary["privacy"]


@pytest.mark.parametrize("name", TABLE)
def test_what_is_stated_is_read_or_refused_or_said_to_have_no_effect(name, tmp_path):
    method, steps, expected = TABLE[name]
    plain, found = left(experiment(method, steps), tmp_path / "run"), {}
    for key in KEYS:
        try:
            made = experiment(method, steps, key)
            said = [line for line in without_effect(made.prepare()) if "no effect" in line]
            read = left(made, tmp_path / "run") != plain
        except UserError:
            found[key] = REFUSED
            continue
        told = any(key.rpartition(".")[2] in line for line in said)
        found[key] = {(True, False): READ, (False, True): SAID, (False, False): SAME}.get((read, told), said)
    assert found == dict(zip(KEYS, expected.split(), strict=True))


def test_untrusted_edge_servers_are_never_called_trusted():
    def network(**trust):
        edges = [{"name": name, "devices": {"count": 2}} for name in ("a", "b")]
        return {"data": "digits", "method": CENTRAL, "training": TRAINING, "topology": {"edges": edges} | trust}

    for stated in ({"trusted": 0.0}, {"secure-sum": 1.0, "trusted": 0.0}, {"probability": 0.0}):
        with pytest.raises(UserError, match="would see raw updates; expected trusted edge servers, topology: star"):
            Experiment(**network(trust=stated)).prepare()
    (line,) = without_effect(Experiment(**network(), seed=2).prepare())
    assert line.endswith("see raw updates: privacy central trusts them")
    assert without_effect(Experiment(**network(trust={"trusted": 1.0})).prepare()) == []


def test_more_hosts_than_can_be_used_are_said():
    def lines(devices, hosts):
        star = Topology.regular(edges=1, devices=devices)
        made = Experiment(star, data="digits", method="fedavg", hosts=hosts, backend="ray")
        return [each for each in without_effect(made.prepare()) if "hosts" in each]

    assert lines(20, 8) == [], "a star is on all hosts"
    (line,) = lines(3, 8)
    assert line == "runtime.hosts: 8 is 3: there are no more devices, or subnets of about a host's share"
