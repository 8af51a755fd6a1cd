"""Devices' local steps: which records, which gradient, clipped how, by which engine; and evaluation."""

from h2fdp.training.batches import Batches, BatchSampler
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords, Evaluator, ModuleScores, Scores
from h2fdp.training.engine import Engine, build_engine, build_scores, chosen_engine, engines_for

__all__ = [
    "BatchSampler",
    "Batches",
    "Clipping",
    "DeviceRecords",
    "Engine",
    "Evaluator",
    "ModuleScores",
    "Scores",
    "build_engine",
    "build_scores",
    "chosen_engine",
    "engines_for",
]
