"""Local objectives: pure step functions that every engine runs."""

from h2fdp.training.objectives.objective import Gradient, LocalObjective, LocalWork
from h2fdp.training.objectives.plain import Plain
from h2fdp.training.objectives.proximal import Proximal
from h2fdp.training.objectives.section import ObjectiveSection, objective_of

__all__ = [
    "Gradient",
    "LocalObjective",
    "LocalWork",
    "ObjectiveSection",
    "Plain",
    "Proximal",
    "objective_of",
]
