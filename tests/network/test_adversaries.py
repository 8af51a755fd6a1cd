"""Liars in topology files, and what they send, by hand."""

import itertools
import math
import statistics
from dataclasses import replace

import pytest
import torch

from h2fdp import Topology, UserError
from h2fdp.network import Adversaries, read, write
from h2fdp.network.adversaries import ATTACKS, Alie, Backdoor, Ipm, Scaling, SignFlip

FILE = """name: small
edges:
  - {name: "e-{i}", repeat: 10, trusted: false, devices: {count: 4}}
"""


def topology(tmp_path, text, seed=1):
    (tmp_path / "net.yaml").write_text(FILE + text)
    return read(tmp_path / "net.yaml", seed)


def test_liars_are_those_that_are_named(tmp_path):
    found = topology(
        tmp_path, "adversaries: {devices: [e-3/2, e-10/4], edges: [e-1], attack: {name: scaling, factor: -2}}"
    )
    assert found.adversaries == Adversaries(Scaling(factor=-2.0), ("e-3/2", "e-10/4"), ("e-1",))
    assert [found.replacing_devices(number) for number in (0, 2, 9)] == [(), (1,), (3,)]
    assert found.as_star().adversaries == Adversaries(Scaling(factor=-2.0), ("e-3/2", "e-10/4"))
    assert found.as_star().replacing_devices(0) == (9, 39)


def test_a_share_is_drawn_by_the_seed_and_a_larger_one_only_adds_liars(tmp_path):
    def liars(share, seed=1):
        found = topology(tmp_path, f"adversaries: {{devices: {share}, edges: {share}, attack: sign-flip}}", seed)
        return (set(), set()) if found.adversaries is None else tuple(
            map(set, (found.adversaries.devices, found.adversaries.edges))
        )  # fmt: skip

    shares = [liars(each) for each in (0, 0.1, 0.25, 0.6)]
    assert [tuple(map(len, each)) for each in shares] == [(0, 0), (4, 1), (10, 3), (24, 6)]
    for fewer, more in itertools.pairwise(shares):
        assert fewer[0] < more[0]
        assert fewer[1] < more[1]
    assert liars(0.25, seed=2) != shares[2]
    assert topology(tmp_path, "adversaries: {attack: sign-flip}") == topology(tmp_path, "")


@pytest.mark.parametrize("attack", list(ATTACKS.names))
def test_a_written_network_has_the_same_liars_under_any_seed(tmp_path, attack):
    found = topology(tmp_path, f"adversaries: {{devices: 0.3, attack: {attack}}}")
    write(found, tmp_path / "again.yaml")
    assert read(tmp_path / "again.yaml", seed=9).adversaries == found.adversaries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{devices: [e-1/9], attack: alie}", r'net.yaml:4: adversaries.devices: expected names of devices .*"e-1/9"'),
        ("{edges: [hall], attack: alie}", r'adversaries.edges: expected names of edge servers .*"hall"'),
        ("{devices: 1.0, attack: ipm}", r"adversaries.devices: expected a share of at least 0 and below 1, or a list"),
        ("{devices: 0.1}", r"adversaries.attack"),
        ("{devices: 0.1, attack: sign}", r'expected one of label-flip, sign-flip, .*found "sign"; did you'),
        ("{devices: 0.1, attack: {name: backdoor, records: 2}}", r"records: expected a number above 0 and at most 1"),
        ("{share: {edges: 0.3}, attack: sign-flip}", "adversaries.share: unknown key"),
    ],
)
def test_mistakes_have_their_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        topology(tmp_path, f"adversaries: {text}\n")


def test_somebody_is_honest():
    tree = Topology.regular(edges=1, devices=2)
    with pytest.raises(UserError, match="at least one honest device"):
        replace(tree, adversaries=Adversaries(SignFlip(), ("edge-1/1", "edge-1/2")))


UPDATES = [[1.0, -2.0], [3.0, 5.0], [-4.0, 0.5], [2.0, 2.0], [0.5, 7.0]]


def arriving(attack, liars, updates=UPDATES):
    found, children = torch.tensor(updates), list(range(len(updates)))
    lies = Adversaries(attack).among(liars)
    return (found if lies is None else lies(found, children)).tolist()


def test_lies_by_hand():
    for attack, factor in ((SignFlip(), -1), (Scaling(factor=3.0), 3), (Backdoor(factor=4.0), 4), (Backdoor(), 1)):
        expected = [[factor * each for each in row] if at in (1, 4) else row for at, row in enumerate(UPDATES)]
        assert arriving(attack, {1, 4}) == expected
    honest = [UPDATES[at] for at in (0, 2, 3)]
    means = [statistics.fmean(each) for each in zip(*honest, strict=True)]
    lie = arriving(Ipm(factor=0.1), {1, 4})
    assert lie[1] == lie[4] == pytest.approx([-0.1 * each for each in means])
    spread = [statistics.pstdev(each) for each in zip(*honest, strict=True)]
    z = statistics.NormalDist().inv_cdf((5 - 2 - (3 - 2)) / 3)
    lie = arriving(Alie(), {1, 4})
    assert lie[1] == lie[4] == pytest.approx([mean - z * each for mean, each in zip(means, spread, strict=True)])
    assert [lie[at] for at in (0, 2, 3)] == honest


def test_z_of_alie_is_the_papers_and_never_turns():
    assert Alie.largest(50, 24) == pytest.approx(statistics.NormalDist().inv_cdf(24 / 26))
    assert Alie.largest(50, 12) == pytest.approx(statistics.NormalDist().inv_cdf((50 - 12 - 14) / 38))
    assert Alie.largest(5, 1) == Alie.largest(2, 1) == 0
    assert all(0 <= Alie.largest(n, m) < math.inf for n in range(2, 30) for m in range(1, n))


def test_without_an_honest_upload_omniscient_liars_send_what_they_would():
    assert arriving(Alie(), range(5)) == UPDATES
    assert arriving(SignFlip(), range(5)) == [[-each for each in row] for row in UPDATES]
    assert arriving(Ipm(), ()) == UPDATES
