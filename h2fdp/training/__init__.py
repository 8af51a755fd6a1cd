"""Devices' local steps: which records, which gradient, clipped how, by which engine; and evaluation."""

from h2fdp.training.batches import Batches, BatchSampler
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import ENGINES, Engine, build_engine, build_scores, chosen_engine, engines_for
from h2fdp.training.evaluation import Evaluation, Evaluator, ModuleScores, Scores

__all__ = [
    "ENGINES",
    "BatchSampler",
    "Batches",
    "Clipping",
    "DeviceRecords",
    "Engine",
    "Evaluation",
    "Evaluator",
    "ModuleScores",
    "Scores",
    "build_engine",
    "build_scores",
    "chosen_engine",
    "engines_for",
]
