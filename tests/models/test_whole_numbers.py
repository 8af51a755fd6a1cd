"""Inputs that are whole numbers stay such for modules that take nothing else."""

import numpy as np
import pytest
from torch import nn

from h2fdp import Experiment, Topology, UserError

WORDS = np.random.default_rng(0).integers(0, 50, (120, 6))


class Embedded(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(24, 2))


class Cast(Embedded):
    def forward(self, x):
        return super().forward(x.long())


def experiment(model, words, **settings):
    network = Topology.regular(edges=2, devices=2, trust=1)
    labels = WORDS[:, 0] % 2
    return Experiment(
        topology=network, data=(words, labels), test_data=0.2, model=model, method="hfl", intervals=2, **settings
    )


@pytest.mark.run
def test_an_embedding_gets_whole_numbers_and_learns_what_it_learns_behind_a_cast(tmp_path):
    whole = experiment(Embedded, WORDS).run(tmp_path / "whole")
    cast = experiment(Cast, WORDS.astype(np.float32)).run(tmp_path / "cast")
    assert whole.metrics["loss"].tolist() == cast.metrics["loss"].tolist()


def test_numbers_with_fractions_are_not_cut_off():
    with pytest.raises(UserError, match="the model fails on two records"):
        experiment(Embedded, WORDS + 0.5).prepare()
