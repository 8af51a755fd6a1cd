"""The features of h2fdp, each as what a user adds to one plain file, and any of them together."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

Settings = Mapping[str, Any]

PLAIN: Settings = {
    "data": {"name": "digits", "partition": {"dirichlet": 2}},
    "model": "softmax",
    "method": {"extends": "h2fdp"},
    "training": {"intervals": 3, "local_steps": 2, "step_size": 0.5, "batch_size": 8},
    "privacy": {"epsilon": 8, "calibration": "accounted", "accountant": "pld", "noise_key": "seed"},
    "runtime": {"backend": "inline", "hosts": 1},
    "tracking": {"tensorboard": False},
}
TRUSTS = ("trusted", "untrusted")
STEPS: Settings = {"name": "local", "noise": "steps"}
DEVICES: Settings = {"count": 2, "joules_per_step": 1e-4}


@dataclass(frozen=True)
class Feature:
    """A feature as settings.

    Attributes:
        settings: of the file, besides those of the network.
        network: of the topology.
        devices: of the devices of each edge server.
        trusts: of the lowest edge servers, one after the other.
        tiers: of edge servers, one below the other.
    """

    settings: Settings = field(default_factory=dict)
    network: Settings = field(default_factory=dict)
    devices: Settings = field(default_factory=dict)
    trusts: tuple[str, ...] | None = None
    tiers: int | None = None


def _method(**axes: Any) -> Feature:
    return Feature({"method": axes})


def _training(**keys: Any) -> Feature:
    return Feature({"training": keys})


FEATURES: dict[str, Feature] = {
    # trust, tree, places
    "no server trusted": Feature(trusts=("untrusted", "untrusted")),
    "all servers trusted": Feature(trusts=("trusted", "trusted")),
    "secure sums": Feature(trusts=("secure-sum", "untrusted")),
    "secure sums on a grid": Feature(
        {"method": {"privacy": {"name": "hierarchical", "secure_sum": {"rounding": 24}}}}, trusts=("secure-sum",) * 2
    ),
    "relays": Feature(trusts=("relay", "relay")),
    "three tiers": Feature(tiers=2),
    "a star": _method(topology="star"),
    "movement": Feature(network={"mobility": {"trace": [[2, "b/1", "a", 30.0]]}}),
    "passes of a satellite": Feature(network={"cloud": {"link": {"windows": [[0, 0.005], [0.02, 4000]]}}}),
    "over the air": Feature(network={"radio": {"access": "over-the-air"}}),
    "batteries": Feature(devices={"battery_j": [0.002, 1e9]}),
    "batteries that harvest": Feature(devices={"battery_j": [0.002, 1e9], "harvest_w": 0.05, "idle_w": 0.001}),
    "liars": Feature(network={"adversaries": {"devices": ["b/1"], "attack": "sign-flip"}}),
    "faults": Feature({"faults": {"device_dropout": 0.3, "straggler": {"probability": 0.3}}}),
    # privacy
    "whole devices": Feature({"privacy": {"protects": "device"}}),
    "own epsilons": Feature(devices={"epsilon": [2, 1e9]}),
    "secret draws": Feature(
        {"training": {"participation": {"rate": 0.6, "secret": True, "cover": True}}, "privacy": {"protects": "device"}}
    ),
    "public draws": _training(participation=0.5),
    "correlated noise": Feature(
        {"privacy": {"correlated": {"kind": "banded", "bands": 2}}, "training": {"sampling": "fixed"}}
    ),
    "falling shares": _training(step_decay="sqrt", budget_decay="sqrt"),
    "replaced records": Feature({"privacy": {"adjacency": "replace"}}),
    "a budget": Feature({"privacy": {"budget": {"cloud": 60.0}}}),
    "local noise": _method(privacy="local"),
    "central noise": Feature({"method": {"privacy": "central"}}, trusts=("trusted", "trusted")),
    "noise on each step": Feature({"method": {"privacy": "dp-sgd"}}),
    "Laplace noise": _method(privacy={"name": "hierarchical", "law": "laplace"}),
    # training
    "turns": _training(device_turns=2),
    "epochs": _training(local_epochs=1, local_steps=None, batch_size=90),
    "clipped records": _training(clip_scope="record"),
    "momentum": _training(momentum=0.9),
    "AdamW": Feature(
        {
            "training": {"optimizer": {"name": "adamw", "lr": 0.01}, "step_size": None},
            "privacy": {"protects": "device"},
        }
    ),
    "AdamW that goes on": Feature(
        {
            "training": {"optimizer": {"name": "adamw", "lr": 0.01, "state": "kept"}, "step_size": None},
            "method": {"privacy": "dp-sgd"},
        }
    ),
    "variants of images": Feature({"data": {"augment": {"flip": True, "crop": 1, "times": 2}}}),
    "an end by accuracy": _training(until={"accuracy": 0.3}),
    "weights by size": _training(weights="by-size"),
    "a prelude": Feature({"data": {"prelude": ["bounds", "moments"]}}),
    "public records": Feature({"data": {"public": 0.1}}),
    "public features": Feature({"model": {"name": "public-features", "size": 32}}),
    "a frozen rest": Feature({"model": {"name": "mlp", "hidden": 8, "train": ["3"]}}),
    "adapters": Feature({"model": {"name": "mlp", "hidden": 8, "lora": {"layers": "*", "rank": 2}}}),
    "rounded messages": Feature(
        {"compression": {"device": {"quantise": 8}, "edge": {"quantise": 8}}}, trusts=("untrusted", "untrusted")
    ),
    "sparse messages": Feature({"compression": {"device": {"top_k": 0.5}}}, trusts=("untrusted", "untrusted")),
    # methods
    "buffers": _method(schedule={"name": "buffered", "buffer": {"edge": 1, "cloud": 1}}),
    "the controller": Feature({"method": {"schedule": "h2fdp"}, "control": {"enabled": True}}),
    "joules to spend": Feature({"control": {"enabled": True, "joules": 2}}),
    "grams to spend": Feature(
        {"control": {"enabled": True, "gco2": 1}}, {"carbon": {"trace": [["hour", "grid"], [0, 300.0], [1e-6, 100.0]]}}
    ),
    "turns by battery": Feature({"training": {"device_turns": "battery"}}, devices={"battery_j": [0.002, 1e9]}),
    "a proximal pull": _method(objective={"name": "proximal", "mu": 0.5}),
    "control variates": _method(objective="scaffold", server="scaffold", privacy=STEPS),
    "own models": _method(objective="ditto", privacy=STEPS),
    "subnets' models": _method(objective="mean-regularised", privacy=STEPS),
    "own last layers": Feature(
        {"method": {"objective": "personal-head", "privacy": STEPS}, "model": {"name": "mlp", "hidden": 8}}
    ),
    "one message": Feature(
        {
            "method": {"objective": "class-sums", "server": "discriminant"},
            "model": {"name": "public-features", "size": 32, "head": "discriminant"},
            "training": dict.fromkeys(("intervals", "local_steps", "step_size", "batch_size")),
        }
    ),
    "Adam at the server": _method(server="adam"),
    "a median": _method(aggregation="median"),
    "upcycling": _method(upcycle=0.5),
}


class Apart(ValueError):
    """Two features state one key with two values: a user chooses one of them."""


def _merged(one: Any, other: Any, key: str) -> Any:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = {"name"} & set(one) & set(other)
        if any(one[each] != other[each] for each in names):
            raise Apart(key)
        return {
            each: _merged(one[each], other[each], f"{key}.{each}") if each in one and each in other
            else (one | other)[each]
            for each in {**one, **other}
        }  # fmt: skip
    if one != other:
        raise Apart(key)
    return one


def document(*names: str) -> dict[str, Any]:
    """The plain file with these features.

    Raises:
        Apart: two of them cannot be stated together.
    """
    given = [FEATURES[name] for name in names]
    settings, network, devices = {}, {}, {}  # type: dict[str, Any], dict[str, Any], dict[str, Any]
    for each in given:
        settings = _merged(settings, each.settings, "")
        network, devices = _merged(network, each.network, "topology"), _merged(devices, each.devices, "devices")
    stated = {key: {getattr(each, key) for each in given} - {None} for key in ("trusts", "tiers")}
    if any(len(each) > 1 for each in stated.values()):
        raise Apart("topology.edges")
    (trusts,), (tiers,) = stated["trusts"] or {TRUSTS}, stated["tiers"] or {1}
    edges: list[Any] = [
        {"name": name, "trust": trust, "devices": {**DEVICES, **devices}}
        for name, trust in zip("ab", trusts, strict=True)
    ]
    for tier in range(2, 1 + tiers):
        edges = [{"name": f"tier-{tier}", "trust": trusts[0], "edges": edges}]
    return {"topology": {**network, "edges": edges}, **_over(copy.deepcopy(dict(PLAIN)), settings)}


def _over(plain: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The plain file where nothing else is stated; without a key that is None."""
    for key, value in settings.items():
        if value is None:
            plain.pop(key, None)
            continue
        both = isinstance(value, Mapping) and isinstance(plain.get(key), Mapping)
        named = both and "name" in value and plain[key].get("name") not in (None, value["name"])
        plain[key] = _over(dict(plain[key]), value) if both and not named else value
    return plain


def pairs() -> list[tuple[str, str]]:
    """All pairs, in the order of the features."""
    return list(combinations(FEATURES, 2))
