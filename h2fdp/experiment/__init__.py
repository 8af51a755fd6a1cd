"""One validated experiment, from a file or from Python, and the run loop."""

from h2fdp.experiment.api import Experiment
from h2fdp.experiment.ledger_account import RunPrivacy
from h2fdp.experiment.plan import ObjectiveMap, Plan
from h2fdp.experiment.run import Run, load_model

__all__ = ["Experiment", "ObjectiveMap", "Plan", "Run", "RunPrivacy", "load_model"]
