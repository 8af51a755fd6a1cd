"""The words of a run's progress."""

from h2fdp.cli.progress import words_of


def test_the_epsilon_of_the_worst_observer_is_named_as_the_bound_that_it_is():
    row = {"accuracy": 0.5, "epsilon_claimed": 20.0, "epsilon_edge": 11.0, "epsilon_peer": None, "epsilon_cloud": 7.5}
    assert words_of(row) == "accuracy 0.5000  epsilon at most 11 (rdp)"
    told = words_of(row, target="target 10 by pld")
    assert told == "accuracy 0.5000  epsilon at most 11 (rdp; target 10 by pld)"
