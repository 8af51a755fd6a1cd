"""The cheapest trust for an accuracy: the knapsack against brute force, sums of noise against calibrated plans."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from h2fdp import UserError
from h2fdp.cli.main import app
from h2fdp.config import empty_document
from h2fdp.experiment.file import named_document
from h2fdp.network import from_document
from h2fdp.network.network import TrustSection
from h2fdp.sweeps import choice
from h2fdp.sweeps.choice import NoSum, TrustOffer, cheapest, choose_trust, quietest
from h2fdp.sweeps.plan import SharedInputs
from h2fdp.sweeps.pool import WorkOptions

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def offered(draw, sizes):
    """Prices and squares of two or three states of each edge server."""
    prices = [
        [0.0, *draw(st.lists(st.sampled_from([1.0, 1.5, 2.0, 4.0, np.inf]), min_size=2, max_size=2))] for _ in sizes
    ]
    squares = [[size, size / max(size - 1, 1), 1.0] for size in sizes]
    return np.array(prices), np.array(squares, dtype=float)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.floats(0.05, 1.1), st.floats(0, 0.9), st.data())
def test_no_choice_is_cheaper_than_the_one_that_is_found(sizes, share, lower, data):
    """Brute force over all choices, of up to 12 edge servers."""
    prices, squares = offered(data.draw, sizes[:12] if len(sizes) < 9 else sizes)
    if len(sizes) > 8:
        prices[:, 1] = np.inf  # 2^12 choices, not 3^12
    most, rows = share * squares[:, 0].sum() + 1e-3, np.arange(len(sizes))
    least = lower * most if data.draw(st.booleans()) else 0.0
    found = cheapest(prices, squares, most, least)
    states = [np.flatnonzero(np.isfinite(each)).tolist() for each in prices]
    allowed = (
        float(prices[rows, list(choice)].sum())
        for choice in itertools.product(*states)
        if least <= squares[rows, list(choice)].sum() <= most * (1 - 2e-6)
    )
    best = min(allowed, default=None)
    if best is None:
        assert found is None or squares[rows, found].sum() <= most
    else:
        assert prices[rows, found].sum() <= best + 1e-9
        assert least * (1 - 1e-5) <= squares[rows, found].sum() <= most


@settings(max_examples=60, deadline=None)
@given(SIZES, st.sampled_from([0.0, 0.5, 1.0, 2.5, 3.0, 6.0, 11.0]), st.data())
def test_no_choice_of_a_price_is_quieter_than_the_one_that_is_found(sizes, price, data):
    prices, squares = offered(data.draw, sizes[:8])
    rows = np.arange(len(squares))
    states = [np.flatnonzero(np.isfinite(each)).tolist() for each in prices]
    choices = [list(choice) for choice in itertools.product(*states)]
    best = min(squares[rows, each].sum() for each in choices if prices[rows, each].sum() <= price)
    found = quietest(prices, squares, price)
    assert squares[rows, found].sum() == pytest.approx(best, rel=1e-9)
    assert prices[rows, found].sum() <= price * (1 + 1e-6)


@pytest.mark.parametrize("priced", ["alike", "by size", "at random"])
def test_a_thousand_edge_servers_have_the_price_of_dynamic_programming(priced):
    """Gains are whole numbers where trusted ones add one noise, and a table over all gains finds the least price."""
    rng = np.random.default_rng(7)
    sizes = rng.integers(2, 30, size=1_000)
    price = {
        "alike": np.ones(1_000),
        "by size": sizes + rng.integers(0, 4, 1_000),
        "at random": rng.integers(1, 40, 1_000),
    }
    prices = np.column_stack([np.zeros(1_000), price[priced]]).astype(float)
    squares = np.column_stack([sizes, np.ones(1_000)]).astype(float)
    for share in (0.2, 0.7):
        most = np.floor(share * sizes.sum()) + 0.5
        needed = int(sizes.sum() - np.floor(most))
        table = np.full(needed + 1, np.inf)
        table[0] = 0.0
        for gain, cost in zip((sizes - 1).tolist(), price[priced].tolist(), strict=True):
            before = np.concatenate([np.full(gain, table[0]), table])[: needed + 1]
            table = np.minimum(table, before + cost)
        found = cheapest(prices, squares, most)
        assert prices[np.arange(1_000), found].sum() == pytest.approx(table[needed], abs=1e-6)
        assert squares[np.arange(1_000), found].sum() <= most


def test_of_equal_prices_the_least_noise_is_chosen():
    squares = np.array([[4.0, 1.0], [9.0, 1.0], [5.0, 1.0]])
    prices = np.array([[0.0, 1.0]] * 3)
    assert cheapest(prices, squares, most=16.0).tolist() == [0, 1, 0]
    assert cheapest(prices, squares, 16.0, not_these=[np.array([0, 1, 0])]).tolist() == [0, 0, 1]
    assert cheapest(prices, squares, most=2.9) is None


EDGES = """
    - {name: a, devices: {count: 2, distance_m: 50}}
    - {name: b, devices: {count: 9, distance_m: 50}}
    - {name: c, devices: {count: 4, distance_m: 50}}
    - {name: d, trusted: true, devices: {count: 5, distance_m: 50}}
    - {name: e, devices: {count: 7, distance_m: 50}}
"""


def written(folder, trust="{prices: {default: 1, b: 3}}", more="training: auto\n", edges=EDGES):
    path = folder / "town.yaml"
    data = "data: {name: digits, partition: {dirichlet: 0.5}}\nmodel: softmax\n"
    path.write_text(f"topology:\n  trust: {trust}\n  edges:{edges}{data}privacy: {{epsilon: 45}}\n{more}")
    return path


def offer_of(path):
    shared = SharedInputs()
    config, topology = shared.experiment(named_document(path), [])
    return TrustOffer(config, topology, TrustSection.model_validate({"prices": {}}), shared)


@pytest.mark.parametrize("state", ["trusted", "secure-sum"])
def test_noise_is_a_sum_over_edge_servers_in_plans_that_are_calibrated(tmp_path, state):
    edges = (
        "".join(f"\n    - {{name: e{at}, trusted: false, devices: {{count: {2 + at % 5}}}}}" for at in range(12)) + "\n"
    )
    offer = offer_of(written(tmp_path, trust="null", edges=edges))
    _, untrusted = offer.plan(["untrusted"] * 12)
    _, other = offer.plan([state] * 12)
    for bits in np.random.default_rng(3).integers(0, 2, size=(6, 12)):
        plan, _ = offer.plan([state if bit else "untrusted" for bit in bits])
        assert plan.noise**2 == pytest.approx(float(np.where(bits, other, untrusted).sum()), rel=4e-3)


@pytest.fixture(scope="module")
def choose(tmp_path_factory):
    folder = tmp_path_factory.mktemp("choice")

    def chosen(accuracy, joules=None, price=None, **how):
        document, options = named_document(written(folder, **how)), WorkOptions(1)
        return choose_trust(document, [], SharedInputs(), options, accuracy, None, joules, folder / "out", price)

    return chosen


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """All 16 sets of the four edge servers that are for sale, each calibrated: its price and its plan."""
    offer, price = offer_of(written(tmp_path_factory.mktemp("sets"))), {"a": 1, "b": 3, "c": 1, "e": 1}
    found = {}
    for bits in itertools.product((False, True), repeat=4):
        bought = frozenset(itertools.compress("abce", bits))
        states = ["trusted" if name in bought or name == "d" else "untrusted" for name in "abcde"]
        found[bought] = sum(price[each] for each in bought), offer.plan(states)[0]
    return found


def test_the_choice_is_the_cheapest_of_all_sets(choose, planned):
    """Targets between what nothing and everything buys, and brute force over calibrated plans."""
    nothing = choose(0.5)
    assert (nothing.states, nothing.price, nothing.answer) == ({}, 0, "buy nothing")
    assert nothing.plan == planned[frozenset()][1]
    curve, top = nothing.curve, max(float(nothing.curve(plan.noise)) for _, plan in planned.values())
    assert top > nothing.before + 0.002
    seen = set()
    for target in np.linspace(nothing.before + 1e-4, top - 1e-4, 7).tolist():
        found = choose(target)
        reach = [price for price, plan in planned.values() if plan.noise <= curve.noise_of(target)]
        assert found.price == min(reach)
        assert found.plan == planned[frozenset(found.states)][1]
        assert found.score >= target - 1e-4
        assert set(found.states.values()) == {"trusted"}
        assert min(found.without.values()) < target
        for name, without in found.without.items():
            left = planned[frozenset(found.states) - {name}][1]
            assert without == pytest.approx(float(curve(left.noise)), abs=1e-3)
        seen.add(found.price)
    assert len(seen) > 2


def test_shares_that_would_be_drawn_are_for_sale(choose):
    found = choose(None, price=0, trust="{trusted: 1, exact: true, prices: {default: 1, b: 3}}")
    assert found.plan == choose(None, price=0).plan


@pytest.mark.parametrize("price", [0, 1, 2, 4])
def test_a_price_buys_the_least_noise_of_all_sets(choose, planned, price):
    found = choose(None, price=price)
    least = min(plan.noise for cost, plan in planned.values() if cost <= price)
    assert found.plan.noise == pytest.approx(least, rel=1e-9)
    assert found.price <= price


def test_joules_bound_the_noise_from_below(choose, planned):
    """Less noise takes more intervals here, so that more trust than is needed may spend too much."""
    spent = sorted({plan.joules for _, plan in planned.values()})
    assert len(spent) > 1
    curve, middle = choose(0.5).curve, spent[len(spent) // 2]
    within = [plan for _, plan in planned.values() if plan.joules <= middle]
    target = max(float(curve(plan.noise)) for plan in within) - 1e-4
    found = choose(target, middle)
    assert found.plan.joules <= middle
    reach = [
        price for price, plan in planned.values() if plan.joules <= middle and plan.noise <= curve.noise_of(target)
    ]
    assert found.price == min(reach)
    with pytest.raises(UserError, match=r"--joules: no trust that is for sale reaches .* within 0\.001 J"):
        choose(target, 0.001)


def test_secure_sums_and_relays_are_bought_where_they_are_cheaper(choose):
    target = choose(0.5).before + 0.001
    sums = choose(target, trust="{prices: {default: 50}, secure-sum: 1}")
    assert set(sums.states.values()) == {"secure-sum"}
    assert "secure sums at" in sums.answer
    relays = choose(target, trust="{prices: {default: 50}, relay: 4}")
    assert (relays.price, relays.answer) == (4, "relays for the whole network")
    assert choose(target, trust="{prices: {default: 1}, relay: 40}").price < 40
    assert choose(None, price=4, trust="{prices: {default: 1}, relay: 4}").answer.startswith("relays")
    assert choose(None, price=3, trust="{prices: {default: 1}, relay: 4}").answer.startswith("trust ")


def test_the_command_answers_in_words_a_table_and_json(choose, tmp_path, monkeypatch):
    target = round(choose(0.5).before + 0.001, 5)
    found = choose(target)
    monkeypatch.chdir(found.directory.parent)
    (Path("studies")).mkdir(exist_ok=True)
    if not Path("studies/town").exists():
        Path("studies/town").symlink_to(found.directory)
    call = ["plan", str(written(found.directory.parent)), "--accuracy", str(target), "--choose", "trust"]
    done = CliRunner().invoke(app, call, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == f"{found.answer}: price {found.price:g}"
    assert "without it, %" in lines[1]
    assert max(map(len, lines)) <= 80
    as_json = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)
    assert as_json["states"] == found.states
    assert as_json["most_joules"] is None
    assert as_json["joules"] == found.plan.joules
    for wrong in (["--choose", "trust"], ["--accuracy", "0.9"], ["--price", "1", *call[2:]]):
        assert CliRunner().invoke(app, ["plan", call[1], *wrong]).exit_code != 0


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"trust": "{prices: {f: 1}}"}, r"town\.yaml:2: topology\.trust\.prices\.f: no edge server, default"),
        ({"trust": "{prices: {a: -1}}"}, r"topology\.trust\.prices\.a: expected a finite number of at least 0"),
        ({"more": "training: {extends: auto, local_steps: 2}\n"}, "training: no curve says .* drift apart"),
        ({"more": "method: hfl\n"}, "this method adds no noise"),
        ({"trust": "{relay: 1}", "edges": " [{name: a, devices: {count: 2}}]\n"}, "all edge servers are relays"),
        ({"edges": " [{name: t, edges: [{name: u, devices: {count: 2}}]}]\n"}, r"topology\.edges: trust is chosen in"),
    ],
)
def test_what_cannot_be_chosen_is_refused(choose, how, said):
    with pytest.raises(UserError, match=said):
        choose(0.9, **how)


def test_no_joules_are_a_bound(choose):
    with pytest.raises(UserError, match="no trust that is for sale keeps within 0 J"):
        choose(None, joules=0.0, price=1.0)


def test_what_no_choice_without_sums_reaches_is_refused(choose, capsys, monkeypatch):
    """As where the noise with secure sums is no sum over edge servers, and no trust alone reaches the accuracy."""

    def within(*arguments):
        if np.isfinite(arguments[-1][:, 1]).any():
            raise NoSum("the noise is no sum")
        return None, None

    monkeypatch.setattr(choice, "_within", within)
    with pytest.raises(UserError, match=r"--accuracy: no trust that is for sale reaches 50 %; expected a smaller"):
        choose(0.5, trust="{prices: {default: 50}, secure-sum: 1}")
    assert "secure sums are left out" in capsys.readouterr().err


def test_what_is_no_study_stays_as_it_is(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    document = named_document(written(tmp_path))
    with pytest.raises(UserError, match="something other than a study"):
        choose_trust(document, [], SharedInputs(), WorkOptions(1), None, None, None, tmp_path / "out", 1.0)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_the_unit_of_prices_changes_no_choice(unit):
    squares = np.array([[5.0, 1.0], [5.0, 1.0], [3.0, 1.0]])
    prices = unit * np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 1.0]])
    assert quietest(prices, squares, price=2.0 * unit).tolist() == [1, 0, 1]
    assert cheapest(prices, squares, most=9.5).tolist() == [1, 0, 0]


def test_an_accuracy_out_of_reach_is_refused(choose):
    with pytest.raises(UserError, match=r"--accuracy: expected an accuracy within reach, 9\d\.\d % with all"):
        choose(0.9999)


def test_prices_change_no_network_and_shares_stay_shares(tmp_path):
    def drawn(trust):
        values = {"edges": [{"name": "e-{i}", "repeat": 30, "devices": {"count": 2}}]}
        return from_document(empty_document("t", tmp_path, values | ({} if trust is None else {"trust": trust})), 1)

    assert drawn({"prices": {"default": 2.0}, "relay": 4.0}).subnets == drawn(None).subnets
    assert drawn({"trusted": 0.3, "prices": {}}).subnets == drawn({"trusted": 0.3}).subnets
    with pytest.raises(UserError, match=r"relay: expected a number from 0 to 1, found 4"):
        drawn({"relay": 4})
