"""Correlated noise in whole runs: accounts by hand, noise as it is wired, bits that outlive a crash, refusals."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import yaml
from scipy import special, stats

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Aggregator
from h2fdp.privacy.correlated import CorrelatedGaussian
from h2fdp.protocol import InProcessNodes
from h2fdp.run.forecast import noise_on_model
from tests.networks import placed
from tests.protocol.test_relays import ALONE, relays
from tests.run.killed import assert_outlives_a_kill
from tests.run.ledgers import DELTA, gaussian_epsilon, members
from tests.run.test_resume import crashing_at, elsewhere
from tests.runtime.runs import assert_equal, recorded

NETWORK = Topology(
    "t",
    tuple(placed(name, trusted, [9.0] * 3, [9.0] * 3) for name, trusted in (("a", True), ("b", False), ("c", True))),
)
BANDED = {"kind": "banded", "bands": 3, "between": 3}
INVERSE = {"kind": "banded-inverse", "bands": 4}
FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.3}}
SUMS = Topology.regular(edges=2, devices=4, trust=0, secure_sum=1, seed=1)


def summing(**tolerance):
    return {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": tolerance}}


SUMMED = {"topology": SUMS, "method": summing(dropouts=1)}
RELAYED = {"topology": relays(3, 4), **ALONE, "method": summing(dropouts=3)}


def small(correlated=INVERSE, topology=NETWORK, **settings):
    defaults = {"method": "h2fdp", "intervals": 7, "local_steps": 4, "sampling_rate": 1.0, "aggregate_every": 2}
    defaults |= {"epsilon": 5.0, "calibration": "accounted", "noise_key": "seed", "model": "softmax", "delta": DELTA}
    defaults |= {"evaluate_every": 7, "accountant": "pld"}
    return Experiment(topology=topology, data="digits", correlated=correlated, **{**defaults, **settings})


def ledger(run):
    return [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]


def precisions(run):
    """(edge, device, observer) -> [(interval, slot, 1 / z^2)]."""
    found = {}
    for row in ledger(run):
        for device in members(row["devices"]):
            key = row["edge"], device, row["observer"]
            found.setdefault(key, []).append(
                (row["interval"], row["slot"], (row["sensitivity"] / row["noise_std"]) ** 2)
            )
    return found


def test_one_band_is_independent_noise_to_the_bit(tmp_path):
    plain = small(None, faults=FAULTS, participation=0.7).run(tmp_path / "plain")
    one = small({"kind": "banded", "bands": 1}, faults=FAULTS, participation=0.7).run(tmp_path / "one")
    assert_equal(recorded(plain), recorded(one))


@pytest.mark.parametrize("correlated", [BANDED | {"between": None}, INVERSE], ids=lambda each: each["kind"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"participation": 0.7, "faults": FAULTS},
        {"weights": "by-size"},
        {"budget_decay": "linear"},
        {"protects": "device", "sampling_rate": 0.5, "participation": 0.7, "faults": FAULTS, "momentum": 0.5},
    ],
    ids=["all", "some", "sizes", "shares of the budget", "devices"],
)
def test_every_account_is_that_of_one_gaussian_by_hand(tmp_path, correlated, settings):
    """The ledger of the same run under independent noise says who was in which release, and how far it moved."""
    run = small(correlated, **settings).run(tmp_path / "run")
    law = CorrelatedGaussian(correlated["kind"], correlated["bands"])
    alone = small(None, **settings).run(tmp_path / "alone")
    held, before = precisions(run), precisions(alone)
    slots = {}
    for row in ledger(alone):
        slots.setdefault(row["edge"], set()).add(row["slot"])
    worst, ratios = 0.0, []
    for (edge, device, observer), rows in held.items():
        observer_alone = observer if edge != "b" else "edge"  # each device's own noise, whoever looks
        alone_rows = {slot: precision for _, slot, precision in before[edge, device, observer_alone]}
        clock = sorted(slots[edge]) if edge != "b" else sorted(alone_rows)
        moved = np.array([math.sqrt(alone_rows.get(slot, 0.0)) for slot in clock])
        expected = np.array([law.factor(len(clock))[: n + 1][::-1] @ moved[: n + 1] for n in range(len(clock))])
        told = {slot: math.sqrt(precision) for _, slot, precision in rows}
        found = np.array([told.get(slot, 0.0) for slot in clock])
        assert set(told) <= set(clock)
        ratios.append(found[expected > 0] / expected[expected > 0])
        worst = max(worst, math.sqrt(sum(precision for *_, precision in rows)))
    ratios = np.concatenate(ratios)
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)  # the noises of both runs differ by one factor
    epsilons = [run.privacy.epsilon(observer=each) for each in ("edge", "peer", "cloud", "public")]
    assert max(epsilons) == pytest.approx(gaussian_epsilon(worst), rel=2e-3)
    assert max(epsilons) <= 5.0
    assert max(epsilons) > 4.95


def test_turns_of_at_least_as_many_bands_cost_nothing_more(tmp_path):
    """Each device of an edge server is in every third average: banded noise of 3 bands has sensitivity sqrt(k) |c|."""
    run = small(BANDED, device_turns=3, intervals=9, local_steps=1).run(tmp_path)
    by_device = {}
    for (edge, device, observer), rows in precisions(run).items():
        if edge == "a" and observer == "cloud":
            by_device[device] = [precision for *_, precision in rows]
    norm = np.linalg.norm(CorrelatedGaussian("banded", 3).factor(3))
    unit = math.sqrt(by_device[1][0])
    mu = [math.sqrt(sum(each)) for each in by_device.values()]
    # The second and third device's last release has one or two rows of three.
    assert mu[0] == pytest.approx(unit * math.sqrt(3) * norm, rel=1e-9)
    assert len(by_device[1]) == 9
    assert mu[2] < mu[1] < mu[0]


@pytest.fixture
def noises(monkeypatch):
    """(node's newest key) -> its noise and level, of every release of a run."""
    found, add = {}, CorrelatedGaussian.add

    def watched(self, vectors, noise_stds, keys):
        before = vectors.clone()
        add(self, vectors, noise_stds, keys)
        for row, (level, key) in enumerate(zip(noise_stds.tolist(), keys, strict=True)):
            found[key] = ((vectors[row] - before[row]).double().numpy(), level)

    monkeypatch.setattr(CorrelatedGaussian, "add", watched)
    return found


def plausible(values, scale=1.0, error=1e-6):
    total = float(np.square(values / scale).sum())
    return error / 2 < stats.chi2.cdf(total, values.size) < 1 - error / 2


@pytest.mark.parametrize("unit", ["record", "device"])
@pytest.mark.parametrize("correlated", [BANDED | {"between": None}, INVERSE], ids=lambda each: each["kind"])
def test_along_the_best_attack_the_noise_of_a_run_is_that_of_its_account(tmp_path, noises, correlated, unit):
    """Right noise fails once in a million; two thirds and three halves of it always do.

    The best attack on a device projects C y / L on C x: there a record moves what is seen by mu, in units of noise.
    """
    small(correlated, protects=unit).run(tmp_path)
    law = CorrelatedGaussian(correlated["kind"], correlated["bands"])
    chains, attacked = {}, []
    for key, (noise, level) in noises.items():
        chains[key[0]] = (key[1] if len(key) > 1 else None, noise / level)
    ends = set(chains) - {earlier for earlier, _ in chains.values()}
    assert len(ends) == 2 + 3, "two trusted edge servers, three devices of another"
    for last in ends:
        stream = []
        while last is not None:
            last, noise = chains[last]
            stream.append(noise)
        releases = np.stack(stream[::-1])
        assert len(releases) == 14
        lags = np.subtract.outer(np.arange(14), np.arange(14))
        factor = np.where(lags >= 0, law.factor(14)[lags], 0.0)
        best = factor @ np.ones(len(releases))
        attacked.append((best / np.linalg.norm(best)) @ factor @ releases)
    values = np.concatenate(attacked)
    assert plausible(values)
    assert not plausible(values, 2 / 3)
    assert not plausible(values, 3 / 2)


@pytest.mark.parametrize("correlated", [BANDED | {"between": None}, INVERSE], ids=lambda each: each["kind"])
@pytest.mark.parametrize("network", [{}, SUMMED, RELAYED], ids=["nodes", "sums", "one sum"])
@pytest.mark.process
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, correlated, network):
    runtime = {"backend": "inline", "checkpoint_every": 2}
    made = small(correlated, **network, participation=0.7, faults=FAULTS, runtime=runtime)
    assert_outlives_a_kill(made, tmp_path, "released", 5)


@pytest.mark.parametrize("network", [{}, SUMMED], ids=["nodes", "sums"])
def test_a_subnet_of_which_a_checkpoint_stores_no_past_has_released_nothing(network):
    """As earlier versions wrote them, before any subnet took part, or before one of them did."""
    first, second = (small(**network).prepare().cloud(InProcessNodes({})) for _ in range(2))
    first.past = first._planner.noises.after(first.plan(0))
    state = first.state()
    name = next(iter(state["past"]))
    other = {each: past for each, past in state["past"].items() if each != name}
    second.load(state | {"past": other})
    assert not second.past[name].counts.any()
    assert all(second.past[each].likeness == first.past[each].likeness for each in other)
    second.load({key: each for key, each in state.items() if key != "past"})
    assert not any(past.counts.any() for past in second.past.values())


@pytest.mark.parametrize("network", [{}, SUMMED], ids=["nodes", "sums"])
def test_a_run_that_goes_on_under_fresh_draws_is_charged_for_streams_of_their_own(tmp_path, monkeypatch, network):
    """Two releases an interval. Draws that were never released are taken back from the first of the new ones, which is
    the ninth, so that in a sum it has more noise than the first of all."""
    with monkeypatch.context() as patch:
        crashing_at(patch, 4)
        with pytest.raises(RuntimeError):
            small(**network, runtime={"backend": "inline", "checkpoint_every": 4}).run(tmp_path / "run")
    elsewhere(monkeypatch)
    run = h2fdp.resume(tmp_path / "run", fresh_noise=True)
    assert run.summary["fresh_from"] == [5]
    found = {}
    for row in ledger(run):
        if (row["interval"], row["slot"]) in ((1, 2), (5, 18)):
            about = row["edge"], row["observer"], row["devices"]
            found.setdefault(about, []).append(row["sensitivity"] / row["noise_std"])
    ninth = np.linalg.norm(CorrelatedGaussian("banded-inverse", 4).mixed(9)) if network else 1.0
    assert len(found) > 3
    for first, lost, again in found.values():
        assert again == pytest.approx(first / ninth)
        assert lost > 1.2 * first


def test_threads_change_no_bit_and_subnets_that_look_alike_have_one_past(tmp_path):
    many = Topology.regular(edges=6, devices=3, trust=0.5, seed=2)
    settings = {"topology": many, "participation": 0.7}
    one = small(**settings).run(tmp_path / "one")
    two = small(runtime={"backend": "inline", "hosts": 2}, **settings).run(tmp_path / "two")
    assert_equal(recorded(one), recorded(two))


def test_what_is_left_on_the_model_is_foreseen():
    """Sums of correlated releases have less noise: by `explain`, against the matrix."""
    run = small(INVERSE, step_size=0.1, step_decay="none", local_steps=1).prepare()
    level = {name: float(part.noise_std[0, 0]) for name, part in run.first_plan.subnets.items()}
    law, count = CorrelatedGaussian("banded-inverse", 4), 7
    variance = law.variance(np.ones(count))
    expected = sum((level[name] / 3) ** 2 for name in "ac") + 3 * (level["b"] / 9) ** 2
    assert noise_on_model(run).noise_std == pytest.approx(math.sqrt(expected * variance), rel=1e-9)


DEEP = Topology(
    "deep",
    tuple(placed(name, True, [9.0] * 3, [9.0] * 3, parent="u") for name in "ab"),
    aggregators=(Aggregator("u", False, parent=None),),
)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"sampling_rate": 0.5}, "no sampling of records amplifies correlated noise; expected sampling_rate: 1"),
        ({"calibration": "paper"}, "expected accounted, or privacy.correlated: null"),
        ({"method": "fedavg-dp"}, "hierarchical or local with noise: uploads"),
        ({"method": {"extends": "h2fdp", "privacy": {"name": "local", "noise": "steps"}}}, "with noise: uploads"),
        ({"method": {"extends": "h2fdp", "privacy": {"name": "local", "law": "laplace"}}}, "expected gaussian"),
        ({"method": "h2fdp-adaptive"}, "expected fixed, or privacy.correlated: null"),
        ({"correlated": BANDED}, "expected at least 3 from one to the next"),
        ({"correlated": BANDED, "participation": 0.34}, "expected at least 3 from one to the next"),
        ({"topology": DEEP}, "found 2 tiers"),
        ({"topology": replace(SUMS, cloud_trust="secure-sum")}, "or an untrusted cloud, found secure-sum"),
        ({"topology": SUMS, "method": summing(rounding=20)}, "expected null, as no integers are taken back"),
        ({"topology": relays(150), **ALONE, "method": summing(colluding=2)}, "expected at most 20,000 sets"),
        ({"correlated": {"kind": "tree"}}, "one of banded-inverse, banded"),
    ],
)
def test_what_has_no_account_is_refused(settings, text):
    with pytest.raises(UserError) as refused:
        small(**settings).prepare()
    assert text in str(refused.value)


TRUSTED = Topology("t", tuple(placed(name, True, [9.0] * 3, [9.0] * 3) for name in "ab"))


def short(training=None, topology=TRUSTED, **settings):
    """A file that states turns, and leaves all other training to `auto`."""
    given = {"data": {"name": "digits", "partition": "iid"}, "model": "softmax", "epsilon": 5.0, "delta": DELTA}
    given |= {"accountant": "pld", "calibration": "accounted", "noise_key": "seed", "method": "h2fdp"}
    training = {"extends": "auto", "device_turns": 3, "intervals": 24} | (training or {})
    return Experiment(topology=topology, training=training, **{**given, **settings})


def left_by_bands(bands, intervals, turns, shares, steps):
    """The noise of the last model at equal accounts, of matrices: sensitivity times error, both by brute force.

    Args:
        shares, steps: (T,) of the intervals: of the privacy budget, and their step sizes.
    """
    lags = np.subtract.outer(np.arange(intervals), np.arange(intervals))
    within = (lags >= 0) & (lags < bands)
    mixing = np.where(within, special.binom(0.5, lags * within) * (-1.0) ** (lags * within), 0.0)
    levels = 1 / np.sqrt(shares)  # of noise, in units of how far a record moves a release
    patterns = [np.arange(intervals) % turns == row for row in range(turns)]
    sensitivity = max(np.linalg.norm(np.linalg.solve(mixing, pattern / levels)) for pattern in patterns)
    return sensitivity * np.linalg.norm(mixing.T @ (steps * levels))


@pytest.mark.parametrize(("turns", "decay"), [(3, "linear"), (3, "none"), (2, "linear")])
def test_auto_chooses_as_many_bands_as_leave_less_noise_by_brute_force(turns, decay):
    network = Topology("t", tuple(placed(name, True, [9.0] * turns, [9.0] * turns) for name in "ab"))
    training = {"device_turns": turns, "step_decay": decay}
    chosen = short(training, network).prepare()
    alone = short(training, network, correlated=None).prepare()
    steps = 1 - np.arange(24) / 24 if decay == "linear" else np.ones(24)
    by_turn = np.arange(24) // turns
    shares = 1 - by_turn / (24 // turns) if decay == "linear" else np.ones(24)
    tried = {
        bands: left_by_bands(bands, 24, turns, shares, steps) / left_by_bands(1, 24, turns, shares, steps)
        for bands in (1, 2, 4, 8, 16)
    }
    section = chosen.config.privacy.correlated
    assert section.kind == "banded-inverse"
    assert section.bands > 1
    assert noise_on_model(chosen).per_step / noise_on_model(alone).per_step == pytest.approx(
        tried[section.bands], rel=0.01
    )
    assert tried[section.bands] <= 0.95 * tried[section.bands // 2]
    assert tried[2 * section.bands] > 0.95 * tried[section.bands]
    (line,) = [each for each in chosen.chosen if "correlated" in each]
    left = f"{tried[section.bands]:.2g} of what independent noise leaves"
    assert line == f"noise correlated over {section.bands} releases: {left}"
    assert len(line) <= 80
    assert alone.config.privacy.correlated is None


@pytest.mark.parametrize(
    ("training", "settings"),
    [
        ({"device_turns": 1}, {}),
        ({}, {"correlated": None}),
        ({}, {"topology": Topology.regular(edges=2, devices=3, trust=0, seed=1)}),
        ({}, {"topology": Topology.regular(edges=2, devices=3, trust=0, secure_sum=1, seed=1)}),
        ({}, {"topology": Topology("one", (placed("a", True, [9.0], [9.0]), placed("b", True, [9.0], [9.0])))}),
        ({"sampling_rate": 0.5}, {}),
        ({"extends": "paper"}, {}),
        ({}, {"method": "hfl", "calibration": None}),
    ],
    ids=["all take part", "stated", "untrusted", "secure sums", "single devices", "sampled", "paper", "no noise"],
)
def test_auto_leaves_noise_independent_where_nothing_is_gained_or_no_account_is_known(training, settings):
    setup = short(training, **settings).prepare()
    assert setup.config.privacy.correlated is None
    assert not any("correlated" in line for line in setup.chosen)


def test_auto_keeps_the_noise_that_a_file_states():
    setup = short(correlated=BANDED).prepare()
    assert setup.config.privacy.correlated.kind == "banded"
    assert setup.config.privacy.correlated.between == 3


@pytest.mark.parametrize("training", [{}, {"device_turns": 1, "participation": 0.34}], ids=["turns", "drawn"])
def test_the_account_of_what_auto_chose_is_that_of_one_gaussian(tmp_path, training):
    run = short(training).run(tmp_path / "run")
    worst = max(math.sqrt(sum(precision for *_, precision in rows)) for rows in precisions(run).values())
    epsilons = [run.privacy.epsilon(observer=each) for each in ("peer", "cloud", "public")]
    assert max(epsilons) == pytest.approx(gaussian_epsilon(worst), rel=2e-3)
    assert 4.95 < max(epsilons) <= 5.0
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["privacy"]["correlated"]
    assert written["kind"] == "banded-inverse"
    again = Experiment.from_file(tmp_path / "run" / "config.yaml").run(tmp_path / "again")
    assert run.summary["model_sha256"] == again.summary["model_sha256"]


@pytest.mark.process
def test_a_killed_run_goes_on_to_the_same_bits_under_the_noise_that_auto_chose(tmp_path):
    made = short(runtime={"backend": "inline", "checkpoint_every": 4})
    assert_outlives_a_kill(made, tmp_path, "released", 10)
