"""The same DP-SGD run has the same epsilon in other libraries, within 0.5 %: from a file's settings to the account."""

import pytest

from experiments.accounts.libraries import RUNS, of_dp_accounting, of_h2fdp, of_opacus


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS[2:], ids=str)  # the longer ones take Opacus a minute: the command has them
def test_epsilons_are_those_of_dp_accounting_and_of_opacus(run):
    """TensorFlow Privacy and JAX Privacy account by dp-accounting. Opacus adds its own error of 0.2 %."""
    found = of_h2fdp(run)
    assert found == pytest.approx(of_dp_accounting(run), rel=2e-3)
    assert found == pytest.approx(of_opacus(run), rel=5e-3)


@pytest.mark.parametrize("run", RUNS[2:4], ids=str)
def test_epsilons_by_renyi_divergences_are_theirs_where_whole_orders_suffice(run):
    """The other libraries also try fractional orders below 11: an advantage of at most half a per cent here."""
    assert of_h2fdp(run, "rdp") == pytest.approx(of_opacus(run, "rdp"), rel=5e-3)
