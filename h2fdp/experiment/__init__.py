"""One validated experiment, from a file or from Python, and the run loop."""

from h2fdp.experiment.api import Experiment
from h2fdp.experiment.run import Run, load_model

__all__ = ["Experiment", "Run", "load_model"]
