"""The adversaries behind `attained` trained by the engine itself, in a run: what devices upload follows their laws."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from h2fdp import Experiment, Topology
from h2fdp.privacy.accounting import SeenUpload
from h2fdp.privacy.accounting.adversaries import upload_law
from h2fdp.privacy.mechanisms.local_randomizer import NoisyUpdate

STEP_SIZE, CLIP_NORM, STEPS, RATE, RECORDS = 0.5, 2.0, 4, 1 / 3, 6
REACH = STEP_SIZE * CLIP_NORM
PULLS = {"batch": [1.0], "record": [1 / 2, 1 / 3, 1 / 4]}  # of a step in the record's direction, by its company
PERIOD, SHORT = 0.02, 0.002  # of v, and the part of it where everything is turned
FALSE_ALARMS = 1e-6  # of each statistical test
NETWORK = Topology.regular(edges=2, devices=100, trust=0.0)
ATTACKED, SPARED = (subnet.name for subnet in NETWORK.subnets)


class Turning(nn.Module):
    """Parameters u and v; scores that are losses: of data (x = 0), of the attacked record (1), of a null record (2)."""

    def __init__(self, scope):
        super().__init__()
        self.pulls = REACH * torch.tensor(PULLS[scope])
        self.u, self.v = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.full((len(PULLS[scope]),), PERIOD / 2))

    def forward(self, x):
        phase = torch.remainder(self.v.detach(), PERIOD)
        turned = (phase < SHORT * PERIOD).any()
        down = torch.where(turned, 0.0, (phase - SHORT * PERIOD / 2) / self.pulls)
        of_data = 1e3 * torch.where(turned, self.u, -self.u)
        of_record = 1e9 * (torch.sqrt(1 - (down**2).sum()) * self.u + (down * self.v).sum())
        return scores(x, of_data, of_record)


class Pushing(Turning):
    """Data have no gradient."""

    def forward(self, x):
        return scores(x, 0.0 * self.u, 1e3 * self.u)


def scores(x, of_data, of_record):
    losses = torch.where(x[:, :1] == 1, of_record, of_data * (x[:, :1] == 0))
    return torch.cat([losses, torch.zeros_like(losses)], dim=1)


def first_score(found, labels):
    return found[:, 0]


def records(scope):
    """What null records do not do: be counted when they are drawn (`batch`), or have a gradient (`record`)."""
    null = {"batch": [], "record": [[2.0]]}[scope]

    def of(device):
        x = [[0.0]] * (RECORDS - 1) + ([[1.0]] if device.startswith(f"{ATTACKED}/") else null)
        return np.array(x, np.float32), np.zeros(len(x), np.int64)

    return of


@pytest.fixture(params=["batch-Turning", "batch-Pushing", "record-Turning"])
def uploads(request, tmp_path, monkeypatch):
    """Adversary, effect, and (raw, noisy, noise) of the first coordinate of all uploads, with the record, without."""
    scope, adversary = request.param.split("-")
    seen = {ATTACKED: [], SPARED: []}
    upload = NoisyUpdate.upload

    def watched(self, updates, model, noise, purpose):
        raw = updates[:, 0].clone()
        found = upload(self, updates, model, noise, purpose)
        rows = torch.stack([raw, updates[:, 0], torch.as_tensor(noise.levels, dtype=torch.float32)], dim=1)
        for node, row in zip(noise.nodes, rows, strict=True):  # of several subnets
            seen[node.rpartition("/")[0]].append(row)
        return found

    monkeypatch.setattr(NoisyUpdate, "upload", watched)
    training = {"intervals": 2, "local_steps": 2 * STEPS, "aggregate_every": STEPS, "clip_norm": CLIP_NORM}
    training |= {"step_size": STEP_SIZE, "step_decay": "none", "sampling_rate": RATE, "batch_size": None}
    Experiment(
        topology=NETWORK,
        data=records(scope),
        test_data=records("batch")("test"),
        model=partial({"Turning": Turning, "Pushing": Pushing}[adversary], scope),
        loss=first_score,
        method="hfl-dp",
        clip_scope=scope,
        calibration="paper",
        epsilon=10.0,
        training=training,
    ).run(tmp_path / "run")
    return adversary.lower(), scope, [torch.stack(seen[name]).double().numpy() for name in (ATTACKED, SPARED)]


def test_what_devices_upload_follows_the_law(uploads):
    """Chi-square for the steps that were taken, Kolmogorov and Smirnov for what leaves under noise; both reject the law
    of the other side, so that they would tell."""
    adversary, effect, sides = uploads
    upload = SeenUpload(1.0, STEPS, RATE, "poisson", effect)
    law = upload_law(upload, RECORDS, adversary)
    batch = RATE * RECORDS
    sensitivity = 2 * STEPS if effect == "batch" else min(2, 1 / batch) + 2 * (STEPS - 1)  # in steps of length G
    unit = law.unit * sensitivity * REACH
    least = 0.0 if adversary == "pushing" else -STEPS * REACH
    for found, stated, other in zip(sides, (law.present, law.absent), (law.absent, law.present), strict=True):
        places = (found[:, 0] - least) / unit
        assert np.abs(places - np.rint(places)).max() < 0.02
        counts = np.bincount(np.rint(places).astype(int), minlength=stated.size)
        assert agreement(counts, stated) > FALSE_ALARMS
        assert agreement(counts, other) < FALSE_ALARMS
        noise = found[0, 2]
        np.testing.assert_allclose(found[:, 2], noise, rtol=1e-6)
        centres = least + unit * np.arange(stated.size)

        def noisy(values, chances=stated, centres=centres, noise=noise):
            return stats.norm.cdf(np.subtract.outer(values, centres) / noise) @ chances

        assert stats.kstest(found[:, 1], noisy).pvalue > FALSE_ALARMS


def agreement(counts, chances):
    """The p-value of these counts, rare places taken together."""
    if counts[chances == 0].any():
        return 0.0
    expected = counts.sum() * chances
    rare = expected < 5
    pairs = [(counts[~rare], expected[~rare]), ([counts[rare].sum()], [expected[rare].sum()])]
    observed, hoped = (np.concatenate(each) for each in zip(*pairs, strict=True))
    kept = hoped > 0
    if kept.sum() == 1:
        return 1.0
    return stats.chisquare(observed[kept], hoped[kept] * observed[kept].sum() / hoped[kept].sum()).pvalue
