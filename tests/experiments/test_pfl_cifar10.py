"""pfl's setting of CIFAR-10: the noise of its claim, and the two epsilons of its file, by dp-accounting."""

import math

import dp_accounting
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from scipy import stats

from experiments.published_settings.pfl_cifar10 import SimpleCnn
from h2fdp import Experiment
from h2fdp.run.preview import privacy_report

FILE = "experiments/published_settings/pfl-cifar10.yaml"
# No account depends on these.
CHEAP = ["data={name: digits, partition: iid}", "model=softmax", "runtime.gpus_per_host=0"]
CLAIMED = ["training.participation.rate=0.001", "method.privacy.noise_multiplier=0.61617"]


def test_the_noise_is_that_of_a_thousand_users_out_of_a_million_at_epsilon_2():
    """On the average of 50 it is what it would be on the average of 1,000: z C / 1,000."""
    runs = (Experiment.from_file(FILE, [*CHEAP, *more]).prepare() for more in (CLAIMED, []))
    claimed, simulated = map(privacy_report, runs)
    event = dp_accounting.PoissonSampledDpEvent(0.001, dp_accounting.GaussianDpEvent(0.61617))
    oracle = PLDAccountant().compose(dp_accounting.SelfComposedDpEvent(event, 1500)).get_epsilon(1e-6)
    assert oracle == pytest.approx(2.0, abs=1e-3)
    assert claimed["observers"]["public"]["pld"] == pytest.approx(oracle, rel=1e-3)
    times = stats.binom.isf(1e-6, 1500, 0.05)  # that a user is in a round at most; each shows it
    each_time = 0.5 / 0.0308085**2 + math.log(0.05)
    by_hand = times * each_time + (1500 - times) * math.log(0.95)
    assert simulated["observers"]["public"]["pld"] == pytest.approx(by_hand, rel=0.02)
    (noise,) = simulated["noises"]
    assert noise["noise_std"] == pytest.approx(0.61617 * 0.4 / 1000, rel=1e-6)


def test_the_network_has_the_parameters_of_pfls_and_begins_as_glorot_says():
    torch.manual_seed(0)
    network = SimpleCnn()
    assert sum(each.numel() for each in network.parameters()) == 1_626_442
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    bound = (6 / (32 * 9 + 64 * 9)) ** 0.5  # of the second convolution
    largest = float(network[2].weight.detach().abs().max())
    assert bound * 0.99 < largest <= bound
