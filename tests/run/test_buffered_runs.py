"""Whole runs in which aggregators average what has arrived: neutral settings, accounts, resuming, and refusals."""

import contextlib
import json
import re
from collections import Counter, defaultdict

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Aggregator, Radio
from h2fdp.privacy.releases import rows_in
from h2fdp.reports.results import results
from h2fdp.reports.run_view import RunView
from h2fdp.run import recorders
from h2fdp.run.loop import start_run
from tests.networks import placed
from tests.run.test_resume import elsewhere

BUFFERS = {"name": "buffered", "buffer": {"edge": 2, "cloud": 1}}


def experiment(method="h2fdp", schedule=BUFFERS, **settings):
    rng = np.random.default_rng(4)
    network = Topology(
        "uneven",
        tuple(placed(f"e{at}", at == 0, rng.uniform(5, 500, 3).tolist(), [9.0] * 3) for at in range(3)),
        Radio(access="ofdma"),
    )
    defaults = {
        "intervals": 9,
        "local_steps": 4,
        "aggregate_every": 2,
        "batch_size": None,
        "sampling_rate": 1.0,
        "epsilon": 20.0,
        "seed": 5,
    }
    defaults |= {"calibration": "accounted", "accountant": "pld", "model": "softmax", "training": "paper"}
    method = {"extends": method, "schedule": schedule} if isinstance(method, str) else method
    return Experiment(settings.pop("topology", network), "digits", method=method, **{**defaults, **settings})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return experiment().run(tmp_path_factory.mktemp("whole") / "run")


FILES = ("privacy.jsonl", "model.pt", "devices.parquet")


def same(one, other, files=FILES):
    for name in files:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def without_wall(run):
    return run.metrics.drop(columns="wall_s")


def test_who_waits_for_all_has_the_bits_of_synchronous_rounds(tmp_path):
    waits = experiment(schedule={"name": "buffered"}).run(tmp_path / "waits")
    fixed = experiment(schedule="fixed").run(tmp_path / "fixed")
    same(waits.directory, fixed.directory)
    assert without_wall(waits).equals(without_wall(fixed))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that ended in its fifth interval, with a checkpoint after the fourth."""

    def stop(reached, number):
        if (reached, number) == ("ran", 4):
            raise KeyboardInterrupt

    path = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(recorders, "listener", stop)
        start_run(experiment(runtime={"checkpoint_every": 2}).prepare(), path)
    return path


def test_fresh_noise_is_refused_where_uploads_are_accounted_for_before_they_are_sent(stopped, monkeypatch):
    elsewhere(monkeypatch)
    with pytest.raises(UserError, match="uploads in them that were in the ledger before would be sent twice"):
        h2fdp.resume(stopped, fresh_noise=True)


def test_a_run_that_was_stopped_goes_on_with_older_models(stopped, whole):
    h2fdp.resume(stopped)
    same(stopped, whole.directory)


def test_fedat_goes_on_with_the_models_that_the_cloud_weighs(tmp_path):
    """A run of tiers whose models are compressed on their way down, stopped between two checkpoints."""

    def stop(reached, number):
        if (reached, number) == ("ran", 4):
            raise KeyboardInterrupt

    tiers = {"extends": "fedat", "privacy": "hierarchical"}
    settings = {"compression": {"down": {"quantise": 8}}, "noise_key": "seed", "runtime": {"checkpoint_every": 2}}
    whole = experiment(tiers, **settings).run(tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(recorders, "listener", stop)
        start_run(experiment(tiers, **settings).prepare(), tmp_path / "stopped")
    h2fdp.resume(tmp_path / "stopped")
    same(tmp_path / "stopped", whole.directory)
    assert without_wall(whole)["epsilon_public"].iloc[-1] <= 20 * (1 + 1e-3)


@pytest.mark.parametrize(
    "runtime", [{"runtime": {"backend": "inline", "hosts": 2}}, {"engine": "loop"}], ids=["hosts", "loop"]
)
def test_bits_do_not_depend_on_where_devices_are(tmp_path, whole, runtime):
    other = experiment(**runtime).run(tmp_path / "run")
    assert other.summary["accuracy"] == whole.summary["accuracy"]
    assert (other.directory / "privacy.jsonl").read_bytes() == (whole.directory / "privacy.jsonl").read_bytes()


def test_fast_devices_release_more_often_and_their_accounts_are_those_of_their_counts(whole):
    """By dp_accounting, from the releases that the public sees of each device; the worst of all meets the target."""
    rows = [json.loads(line) for line in (whole.directory / "privacy.jsonl").read_text().splitlines()]
    found = defaultdict(Counter)  # device -> how often it is released under which noise
    for row in rows:
        if row.get("observer") == "public":
            for part in rows_in(row["devices"]):
                for number in range(part.start, part.stop):
                    found[row["edge"], number][row["noise_std"] / row["sensitivity"]] += 1
    counts = [each.total() for each in found.values()]
    assert max(counts) > 1.5 * min(counts), "some are fast"
    worst = 0.0
    for releases in {tuple(sorted(each.items())) for each in found.values()}:
        account = PLDAccountant()
        for noise, count in releases:
            account.compose(dp_accounting.GaussianDpEvent(noise), count)
        worst = max(worst, account.get_epsilon(1e-5))
    assert worst <= 20 * (1 + 1e-3)
    assert whole.summary["privacy"]["worst"]["public"]["pld"] == pytest.approx(worst, rel=1e-3)
    assert whole.summary["privacy"]["claimed"] is None, "no formula knows devices that release unequally often"


def test_energy_and_bytes_count_every_upload_that_has_arrived(tmp_path):
    """By hand: two uploads of one step go into each message to the cloud, which waits for nobody. The fast device
    uploads after 1, 2, ... 6 s, the slow one after 3.5 s, whose next upload, and so its average, the run does not see.
    """
    network = Topology("two", tuple(placed(f"e{at}", False, [9.0], [9.0]) for at in range(2)), Radio(fading="none"))
    network = network.with_devices(seconds_per_step=[1.0, 3.5], joules_per_step=[0.5, 2.0])
    settings = {"intervals": 3, "local_steps": 2, "aggregate_every": 1, "calibration": None, "topology": network}
    waits = experiment("hfl", {"name": "buffered", "buffer": {"cloud": 1}}, **settings)
    run, costs = waits.run(tmp_path / "run"), waits.prepare().costs.drawn(0)
    fast, slow = np.add(costs.joules, [0.5, 2.0])
    link = float(costs.link_joules[0])
    expected = [2 * fast + link, 4 * fast + slow + 2 * link, 6 * fast + slow + 3 * link]
    assert run.metrics["energy_j"].tolist() == pytest.approx(expected, rel=1e-12)
    assert run.metrics["bytes"].tolist() == [each * costs.upload_bits / 8 for each in (3, 7, 10)]
    assert run.devices["energy_j"].tolist() == pytest.approx([6 * fast, slow], rel=1e-12)


def test_a_report_says_what_averages_wait_for(whole):
    table = results([RunView.read(whole.directory, "run")]).tables["Messages and movement"]
    assert table.rows == [["run", "2 uploads at an edge server, 1 uploads at the cloud", "", "", "", ""]]


DEEP = Topology("deep", (placed("low", True, [9.0], [9.0], parent="high"),), aggregators=(Aggregator("high", True),))
OBJECTIVE = {
    "objective": {"name": "proximal", "mu": 1.0},
    "privacy": "objective",
    "schedule": {"name": "buffered", "buffer": {"cloud": 2}},
    "topology": "star",
}
REFUSED = [
    (
        {"participation": 0.5},
        r"training\.participation: under buffered .*expected 1, as the devices that have uploaded take part",
    ),
    ({"faults": {"device_dropout": 0.1}}, r"faults: .*; expected none, slow processors or links, or schedule fixed"),
    (
        {"method": {"extends": "scaffold", "schedule": BUFFERS}},
        r"method\.objective: .*expected one that remembers no model that others left",
    ),
    (
        {"method": {"extends": "hfl", "aggregation": "median", "schedule": BUFFERS}},
        r"method\.aggregation: .*expected average, or schedule fixed",
    ),
    ({"calibration": "paper"}, r"privacy\.calibration: .*expected accounted, found paper, which counts rounds of all"),
    (
        {"method": {"extends": "h2fdp", "privacy": {"name": "dp-sgd", "noise_multiplier": 2.0}, "schedule": BUFFERS}},
        r"method\.privacy: .*expected hierarchical or local with noise: uploads, or schedule fixed, found dp-sgd",
    ),
    (
        {"control": {"least_ghz": 0.5}},
        r"control\.least_ghz: under buffered .*; expected null, or schedule fixed, found 0\.5",
    ),
    ({"control": {"enabled": True}}, r"control\.enabled: the method's schedule is buffered; expected false"),
    (
        {"local_epochs": 1, "local_steps": None, "aggregate_every": None, "aggregations_per_interval": 0},
        r"training\.local_epochs: buffered chooses",
    ),
    (
        {"calibration": "paper", "method": OBJECTIVE},
        r"^Experiment: method\.privacy: .*expected hierarchical or local, or schedule fixed, found objective$",
    ),
    ({"aggregate_every": 3}, r"training: the uploads of e0 would have 3, 1 local steps"),
    (
        {"topology": Topology.regular(edges=2, devices=3, trust=0.0, secure_sum=1.0)},
        r"method\.schedule: .* no sums of all devices that take part in a round; .*found secure-sum",
    ),
    (
        {"topology": DEEP},
        r"method\.schedule: the event clock has one tier of edge servers, .*found 2 tiers",
    ),
    (
        {"method": {"extends": "fedbuff", "schedule": {"name": "buffered", "buffer": {"edge": 2}}}},
        r"method\.schedule\.buffer\.edge: .*expected null in a star, with buffer\.cloud stated, found 2",
    ),
    ({"schedule": {"name": "buffered", "buffer": {"edge": 0}}}, r"method\.schedule\.buffer\.edge: expected"),
    ({"schedule": {"name": "buffered", "bufer": 3}}, r"method\.schedule\.bufer: unknown key; did you mean `buffer`"),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=[words[:30] for _, words in REFUSED])
def test_what_waits_for_all_is_refused(settings, words):
    with pytest.raises(UserError) as caught:
        experiment(**settings).prepare()
    assert re.search(words, str(caught.value)), caught.value
