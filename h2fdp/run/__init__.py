"""One run: its parts, its loop, what it leaves behind; `Experiment`, from a file or from Python."""

from h2fdp.run import false_records  # noqa: F401 - registers itself
from h2fdp.run.api import Experiment
from h2fdp.run.explain import FirstDecision
from h2fdp.run.privacy import RunPrivacy
from h2fdp.run.result import Run, load_model

__all__ = ["Experiment", "FirstDecision", "Run", "RunPrivacy", "load_model"]
