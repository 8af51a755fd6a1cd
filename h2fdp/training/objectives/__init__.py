"""Local objectives: pure step functions that every engine runs."""

from h2fdp.training.objectives.feddyn import FedDyn
from h2fdp.training.objectives.objective import Forgetful, Gradient, LocalObjective, LocalWork
from h2fdp.training.objectives.pfedme import PFedMe
from h2fdp.training.objectives.plain import Plain
from h2fdp.training.objectives.proximal import Proximal
from h2fdp.training.objectives.scaffold import Scaffold
from h2fdp.training.objectives.section import OBJECTIVES, ObjectiveSection, objective_of

__all__ = [
    "OBJECTIVES",
    "FedDyn",
    "Forgetful",
    "Gradient",
    "LocalObjective",
    "LocalWork",
    "ObjectiveSection",
    "PFedMe",
    "Plain",
    "Proximal",
    "Scaffold",
    "objective_of",
]
