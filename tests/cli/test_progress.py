"""The words of a run's progress."""

from h2fdp.cli.session import Target, words_of

ROW = {"accuracy": 0.5, "epsilon_claimed": 20.0, "epsilon_edge": 11.0, "epsilon_peer": None, "epsilon_cloud": 7.5}


def test_the_epsilon_of_the_worst_observer_stands_before_the_target():
    assert words_of(ROW) == "accuracy 0.5000  epsilon 11"
    assert words_of(ROW, target=Target(12.0)) == "accuracy 0.5000  epsilon 11 of 12"


def test_observers_that_no_target_is_for_are_not_held_against_it():
    assert words_of(ROW, target=Target(8.0, ["peer", "cloud"])) == "accuracy 0.5000  epsilon 7.5 of 8"


def test_an_interval_whose_account_was_left_out_has_no_epsilon():
    assert words_of({"accuracy": 0.5, "epsilon_claimed": 20.0}, target=Target(12.0)) == "accuracy 0.5000"
