"""Compressed links in whole runs: 32 bits change nothing, nothing is lost that comes back, what is sent is paid for."""

import json

import numpy as np
import pytest
import torch

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Aggregator
from h2fdp.privacy.mechanisms.compression import Quantise, TopK
from h2fdp.privacy.mechanisms.stages import UpdateNoise
from h2fdp.protocol import Cloud
from h2fdp.protocol.tiers import Uplinks
from h2fdp.reports.results import results
from h2fdp.reports.run_view import RunView
from h2fdp.run import recorders
from h2fdp.runtime.lockstep import Lockstep
from tests.networks import placed
from tests.runtime.runs import assert_equal, recorded

FEEDBACK = {"top_k": 0.1, "error_feedback": True}
LOCAL = {"extends": "h2fdp", "privacy": "local"}
FAULTS = {"device_dropout": 0.2, "straggler": {"probability": 0.3}}


def small(topology=None, **settings):
    defaults = {"method": LOCAL, "intervals": 5, "local_steps": 4, "batch_size": 4, "aggregate_every": 2}
    defaults |= {"epsilon": 20.0, "noise_key": "seed", "model": "softmax", "evaluate_every": 5}
    topology = topology or Topology.regular(edges=2, devices=3, trust=0.5, seed=1)
    return Experiment(topology=topology, data="digits", **{**defaults, **settings})


def deep():
    """Two edge servers below one, and one beside it: nobody is trusted."""
    subnets = [
        placed(n, False, [9.0] * 3, [9.0] * 3, parent=above) for n, above in (("a", "u"), ("b", "u"), ("c", None))
    ]
    return Topology("deep", tuple(subnets), aggregators=(Aggregator("u", False, parent=None),))


def test_32_bits_are_the_run_without_compression(tmp_path):
    plain = small().run(tmp_path / "plain")
    links = {link: {"quantise": 32} for link in ("device", "edge", "down")}
    whole = small(compression=links).run(tmp_path / "whole")
    assert_equal(recorded(plain), recorded(whole))


BUFFERED = {**LOCAL, "schedule": {"name": "buffered", "buffer": {"edge": 2, "cloud": 1}}}
DEEP = {"aggregate_every": [2, 4], "local_steps": 8, "participation": 0.7, "faults": FAULTS}


@pytest.mark.parametrize(
    ("network", "settings"),
    [
        (deep(), DEEP),
        (deep(), {**DEEP, "runtime": {"backend": "inline", "hosts": 2}}),
        (Topology("net", deep().subnets[2:]), {"method": BUFFERED, "calibration": "accounted", "accountant": "rdp"}),
    ],
    ids=["tiers", "threads", "buffers"],
)
def test_what_was_sent_and_what_is_left_are_all_noisy_updates(tmp_path, monkeypatch, network, settings):
    """Device by device and server by server, over participation, faults, stretches of a tree, and where none waits."""
    made, sent, memories = {}, {}, {}
    noise, largest, uplink = UpdateNoise.encode, TopK.encode, Uplinks.sent

    def note(where, names, rows):
        for name, row in zip(names, rows.double(), strict=True):
            where[name] = where.get(name, 0.0) + row

    def noisy(self, updates, received, at):
        found = noise(self, updates, received, at)
        note(made, at.nodes, found)
        return found

    def kept(self, updates, received, at):
        found = largest(self, updates, received, at)
        note(sent, at.nodes, found)
        return found

    def sending(self, name, upload, part):
        note(made, [name], upload.update[None])
        found = uplink(self, name, upload, part)
        memories.update(self.memories)
        return found

    monkeypatch.setattr(UpdateNoise, "encode", noisy)
    monkeypatch.setattr(TopK, "encode", kept)
    monkeypatch.setattr(Uplinks, "sent", sending)
    compression = {"device": FEEDBACK, "edge": FEEDBACK}
    clouds = []
    close = h2fdp.protocol.Cloud.close
    monkeypatch.setattr(h2fdp.protocol.Cloud, "close", lambda cloud, loss: clouds.append(cloud) or close(cloud, loss))
    small(network, compression=compression, **settings).run(tmp_path / "run")
    for subnet in network.subnets:
        for row, memory in clouds[-1].memories(subnet.name).items():
            memories[subnet.device_name(row)] = memory
    servers = {each.name for each in (*network.subnets, *network.aggregators)}
    devices = {name for subnet in network.subnets for name in subnet.device_names()}
    assert set(made) == set(sent) == set(memories) == servers | devices
    for name, whole in made.items():
        assert not torch.equal(whole, sent[name]), name
        np.testing.assert_allclose(sent[name] + memories[name], whole, atol=1e-4 * float(whole.abs().max()))


@pytest.mark.parametrize("network", [deep(), Topology("net", deep().subnets[2:])], ids=["tiers", "one tier"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_all_below_a_node_train_from_one_rounded_model_and_the_node_goes_on_from_its_own(
    tmp_path, monkeypatch, network, hosts
):
    """Without noise: what each node makes of models is recomputed from what its children received and sent."""
    width, levels, received, made = 4, 7, {}, []
    encode, train, run = Quantise.encode, Lockstep._train, Cloud.run_interval

    def rounded(self, updates, seen, at):
        found = encode(self, updates, seen, at)
        assert at.down
        made.append((at.nodes[0], at.segment.interval, at.segment.last_slot, seen.clone(), found[0].clone()))
        return found

    def training(self, calls):
        for name, broadcasts in calls.items():
            received.setdefault(name, []).append(broadcasts.model.clone())
        return train(self, calls)

    clouds = []

    def interval(self, plan):
        before = self.model.clone()
        run(self, plan)
        clouds.append((before, self.model.clone()))

    monkeypatch.setattr(Quantise, "encode", rounded)
    monkeypatch.setattr(Lockstep, "_train", training)
    monkeypatch.setattr(Cloud, "run_interval", interval)
    aggregate = [2, 4] if network.depth == 2 else 2
    small(
        network,
        method="hfl",
        compression={"down": {"quantise": width}},
        aggregate_every=aggregate,
        local_steps=8,
        runtime={"backend": "inline", "hosts": hosts},
    ).run(tmp_path / "run")
    for node, _, _, model, sent in made:
        scale = model.abs().max()
        cells = sent.double() * levels / scale
        np.testing.assert_allclose(cells, cells.round(), atol=1e-3)
        assert (sent - model).abs().max() <= scale / levels * 1.001, node
    assert len({each[:3] for each in made}) == len(made), "each model is rounded once"
    by_cloud = [each for each in made if each[0] == "cloud"]
    assert len(by_cloud) == len(clouds) == 5
    for (before, _), (_, _, _, model, sent) in zip(clouds, by_cloud, strict=True):
        assert torch.equal(before, model), "the cloud goes on from its own model"
        assert not torch.equal(model, sent)
    vectors = [each[4] for each in made]
    for models in received.values():
        for model in models:
            assert any(torch.equal(model, each) for each in vectors), "nobody trains from a model that was not sent"
        firsts = [each for each in models if any(torch.equal(each, sent) for *_, sent in by_cloud)]
        assert len(firsts) == 5, "all subnets begin an interval with the cloud's one vector"


@pytest.mark.parametrize("crash", [1, 3])
def test_what_is_remembered_outlives_a_crash(tmp_path, monkeypatch, crash):
    settings = {"aggregate_every": [1, 2], "participation": 0.7, "faults": FAULTS}
    settings |= {"compression": {"device": FEEDBACK, "edge": FEEDBACK}, "runtime": {"checkpoint_every": 2}}
    whole = small(deep(), **settings).run(tmp_path / "whole")

    def fail(step, at):
        if (step, at) == ("released", crash):
            raise RuntimeError("the host is gone")

    with monkeypatch.context() as patch:
        patch.setattr(recorders, "listener", fail)
        with pytest.raises(RuntimeError):
            small(deep(), **settings).run(tmp_path / "crashed")
    again = h2fdp.resume(tmp_path / "crashed")
    for key, value in whole.model.state_dict().items():
        assert value.equal(again.model.state_dict()[key])
    assert whole.metrics.drop(columns="wall_s").equals(again.metrics.drop(columns="wall_s"))


def test_what_is_sent_is_counted_and_ends_a_run(tmp_path):
    """Of 640 parameters: 6 devices send 2 x 640 bits and a scale, twice in an interval; 2 edge servers 64 numbers of 32
    bits with places of 10, once. Joules of the wires fall as their bits do."""
    compression = {"device": {"quantise": 2}, "edge": {"top_k": 0.1}}
    of_interval = (6 * 2 * (2 * 640 + 32) + 2 * 64 * (32 + 10)) / 8
    run = small(compression=compression).run(tmp_path / "run")
    assert run.metrics["bytes"].tolist() == pytest.approx([of_interval * k for k in range(1, 6)])
    assert run.summary["bytes"] == pytest.approx(5 * of_interval)
    plain = small().run(tmp_path / "plain").metrics
    assert plain["bytes"].iloc[-1] == 5 * (6 * 2 + 2) * 640 * 4
    devices, wires = (5 * 2 * 10 ** (38 / 10 - 3) * bits / 100e6 for bits in (640 * 32, 64 * 42))
    over_air = plain["energy_j"].iloc[-1] - devices  # what radios spent on whole vectors
    assert run.metrics["energy_j"].iloc[-1] == pytest.approx(over_air * (2 * 640 + 32) / (640 * 32) + wires)
    ended = small(compression=compression, until={"bytes": 2.5 * of_interval}).run(tmp_path / "ended")
    assert (ended.summary["state"], len(ended.metrics)) == ("bytes reached", 3)
    assert "bytes" in json.loads((ended.directory / "summary.json").read_text())


def test_compression_is_explained_and_reported(tmp_path):
    made = small(compression={"device": {"quantise": 2}, "edge": {"top_k": 0.1}}, accountant="rdp")
    lines = str(h2fdp.explain(made)).splitlines()
    (at,) = [at for at, each in enumerate(lines) if each.startswith("compression  devices quantise 2; edge servers")]
    assert "(noise of others not credited)" in " ".join(map(str.strip, lines[at : at + 2]))
    (line,) = [each for each in str(h2fdp.explain(small(compression={"device": {"rand_k": 0.5}}))).splitlines()
               if "compression" in each]  # fmt: skip
    assert line == "compression  devices rand_k 0.5"
    assert not any("compression" in each for each in str(h2fdp.explain(small())).splitlines())
    run = made.run(tmp_path / "run")
    table = results([RunView.read(run.directory, "run")]).tables["Messages and movement"]
    assert table.rows == [["run", "", "quantise 2", "top_k 0.1", "", ""]]
    ended = results([RunView.read(run.directory, "run")]).tables["How each run ended"]
    assert ended.rows[0][ended.heads.index("sent up (bytes)")] == run.summary["bytes"]


def test_a_plan_says_that_it_is_the_controller_that_does_not_fit(tmp_path):
    (tmp_path / "e.yaml").write_text(
        "topology: {edges: [{name: a, devices: {count: 3}}]}\ndata: digits\nmethod: hfl-dp\n"
        "compression: {device: {quantise: 4}}\n"
    )
    h2fdp.Experiment.from_file(tmp_path / "e.yaml")
    with pytest.raises(UserError) as caught:
        h2fdp.plan(tmp_path / "e.yaml")
    (line,) = str(caught.value).splitlines()
    why = "h2fdp plan turns the controller on, which does not go with this: h2fdp reckons with uploads"
    assert line.startswith(f"{tmp_path / 'e.yaml'}:4: compression.device: {why}")
    with pytest.raises(UserError, match=r"compression\.device: h2fdp reckons"):
        h2fdp.plan(tmp_path / "e.yaml", ["control.enabled=true"])
