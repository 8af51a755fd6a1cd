"""An empirical lower bound on epsilon from one training run (Steinke, Nasr and Jagielski 2023).

N canaries, each in or out by a fair coin, are guessed from what one observer received. An (epsilon, delta) guarantee
limits how many guesses can be right; more right guesses than that refute it.
"""

from h2fdp.audit.canaries import CanaryDesign, CanaryKind
from h2fdp.audit.guessing import CanaryEffect, epsilon_lower_bound, guess, guesses_planned, log_likelihood_ratio
from h2fdp.audit.observer_views import CanaryObservation, IntervalTranscript, SubnetTranscript, observations

__all__ = [
    "CanaryDesign",
    "CanaryEffect",
    "CanaryKind",
    "CanaryObservation",
    "IntervalTranscript",
    "SubnetTranscript",
    "epsilon_lower_bound",
    "guess",
    "guesses_planned",
    "log_likelihood_ratio",
    "observations",
]
