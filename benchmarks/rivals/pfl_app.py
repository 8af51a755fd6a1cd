"""The job in pfl with PyTorch: FederatedAveraging on the simulated backend, one process.

Settings follow pfl-research's own benchmarks: the users' records are tensors from the start, plain SGD of torch on
both sides, every user counts alike. Users keep their `Dataset`, which cuts its records into batches once: pfl takes
them in the order in which they lie, the same in every round, and so needs no gathering.
"""

from __future__ import annotations

import time
import types
from functools import cache

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.rivals.job import ByDevice, Job, Trained, initial_model, loss

PACKAGES = ("pfl",)
_NEVER = 1_000_000


class _Clock(TrainingProcessCallback):
    """Notes when each round's global model is there."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.ends.append(time.time())
        return False, Metrics()


def _loss(self: nn.Module, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
    self.eval() if eval else self.train()
    return loss(self(x), y)


def _metrics(self: nn.Module, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Weighted]:
    with torch.no_grad():
        return {"loss": Weighted(float(_loss(self, x, y, eval)) * len(y), len(y))}


def _steps(job: Job) -> dict[str, int | None]:
    """`local_num_steps` ends with the user's records, so more than one pass is so many epochs."""
    in_one_pass = -(-job.records // job.batch_size)
    if job.local_steps <= in_one_pass:
        return {"local_num_steps": job.local_steps, "local_num_epochs": None}
    assert job.local_steps % in_one_pass == 0, "pfl takes whole epochs"
    return {"local_num_steps": None, "local_num_epochs": job.local_steps // in_one_pass}


def train(job: Job) -> Trained:
    """Run FederatedAveraging; users are drawn as in pfl's benchmark, or one after the other where all take part."""
    module = initial_model(job.model)
    module.loss = types.MethodType(_loss, module)
    module.metrics = types.MethodType(_metrics, module)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    records = ByDevice(job)
    users = cache(lambda user: Dataset(records[user]))
    everybody = job.participants == job.devices
    sampler = get_user_sampler("minimize_reuse" if everybody else "random", range(job.devices))
    cohorts = FederatedDataset(users, sampler)
    clock = _Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=job.rounds,
            evaluation_frequency=_NEVER,
            train_cohort_size=job.participants,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=cohorts, val_data=cohorts, postprocessors=[WeightByUser()]),
        model,
        NNTrainHyperParams(local_batch_size=job.batch_size, local_learning_rate=job.step_size, **_steps(job)),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
    )
    return Trained(clock.ends, nn.utils.parameters_to_vector(module.parameters()))
