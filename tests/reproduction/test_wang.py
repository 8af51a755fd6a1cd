"""Wang et al.'s SVM: its loss against one that is written out, who holds what, and the grid of its runs."""

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.wang_svm import DECAY, SmoothSVM, smooth_hinge
from experiments.wang_table import ADAPTIVE, between, page
from tests.docs.reader import REPOSITORY

rng = np.random.default_rng(5)


def test_the_loss_and_its_gradient_are_those_of_a_smooth_svm():
    model = SmoothSVM(inputs=6)
    w, x, labels = rng.normal(size=6), rng.normal(size=(40, 6)), rng.integers(0, 2, 40)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(w))
    scores = model(torch.from_numpy(x).float())
    signs = np.where(labels == 0, 1.0, -1.0)  # even digits are +1
    slack = np.maximum(0, 1 - signs * (x @ w))
    losses = smooth_hinge(scores, torch.from_numpy(labels))
    np.testing.assert_allclose(losses.detach(), DECAY / 2 * w @ w + slack**2 / 2, rtol=1e-5)
    losses.mean().backward()
    np.testing.assert_allclose(model.weight.grad, DECAY * w - (slack * signs) @ x / 40, rtol=1e-4, atol=1e-6)
    assert (scores.argmax(dim=1).numpy() == (x @ w < 0)).all()
    assert not SmoothSVM().weight.any()


@pytest.mark.skipif(not (REPOSITORY / "experiments" / "wang.csv").is_file(), reason="no runs are stored")
def test_the_page_is_what_the_program_writes():
    from experiments.wang_table import PAGE

    runs = pd.read_csv(REPOSITORY / "experiments" / "wang.csv", comment="#")
    assert between(PAGE.read_text(), page(runs)) == PAGE.read_text()
    assert set(runs.groupby(["gradients", "data_set", "schedule"]).size()) == {5}
    assert set(runs["schedule"]) >= {ADAPTIVE, "tau = 1", "tau = 100"}
