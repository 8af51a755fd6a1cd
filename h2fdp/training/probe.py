"""A probe of a model before training, from public facts: how far noise moves its scores, how long gradients are.

Both are measured on inputs of test records that are public (which are measured on, not trained with; their labels are
not looked at), or on random ones where test records belong to devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.data.federated import DeviceData
from h2fdp.data.public_features import BIAS
from h2fdp.errors import UserError
from h2fdp.training.losses import Loss

_INPUTS, _GRADIENTS, _DRAWS = 128, 32, 4
_PERTURBATION, _FAR = 1e-3, 1.0  # of parameters: to see what noise in them does, and whether scores stay linear


@dataclass(frozen=True)
class Probe:
    """Public facts about a first model and the scale of its inputs.

    Attributes:
        reach: by how much independent noise of deviation 1 in each parameter moves a score: its standard deviation, to
            first order. Of a linear model the length of its inputs.
        gradient: the median length of the gradient of one record.
        linear: scores are linear in the parameters.
        curvature: the largest of the mean of squared losses, of real values; 0 of other labels.
    """

    reach: float
    gradient: float
    linear: bool
    curvature: float = 0.0

    @classmethod
    def of(
        cls, module: nn.Module, data: DeviceData, loss: Loss, rng: np.random.Generator, *, unit_inputs: bool
    ) -> Probe:
        """Measured on the inputs of public test records, or on random ones.

        Args:
            data: as the model sees them.
            unit_inputs: they have length 1, and end in a constant.

        Raises:
            UserError: the model's scores do not depend on its parameters.
        """
        inputs = _public_inputs(data, module, rng, unit_inputs)
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        before = [parameter.detach().clone() for parameter in trained]
        directions = [
            [torch.from_numpy(rng.standard_normal(each.shape, np.float32)) for each in before] for _ in range(_DRAWS)
        ]
        module.eval()
        with torch.no_grad():
            first = module(inputs).clone()  # scores may be a parameter itself

            def shifts(scale: float) -> Tensor:
                moved = []
                for direction in directions:
                    for parameter, start, way in zip(trained, before, direction, strict=True):
                        parameter.copy_(start + scale * way)
                    moved.append(module(inputs) - first)
                return torch.stack(moved) / abs(scale)

            ahead, back, far, opposite = map(shifts, (_PERTURBATION, -_PERTURBATION, _FAR, -_FAR))
            for parameter, start in zip(trained, before, strict=True):
                parameter.copy_(start)
        reach = float((ahead - back).square().mean().sqrt()) / 2
        curved = float((far + opposite).square().mean().sqrt())
        if not reach > 0:
            raise UserError("the model's scores do not depend on its parameters", key="model")
        linear, length = curved < 0.02 * reach, _gradient_length(module, inputs, data, loss, rng)
        curvature = 0.0
        if data.target.task == "regression":  # 2 E g g^T of scores' gradients g; of squared losses these are 2 g
            curvature = _steepest(module, inputs) if linear else length**2 / 2
        return cls(reach, length, linear, curvature)


def _gradient_length(
    module: nn.Module, inputs: Tensor, data: DeviceData, loss: Loss, rng: np.random.Generator
) -> float:
    """The median length of a record's gradient at the first model, under a random label; of real values under one that
    is 1 away."""
    lengths, classes = [], 2 if data.target.task == "multilabel" else data.classes
    for record in inputs[:_GRADIENTS]:
        scores = module(record[None])
        label = data.target.examples(classes)[:1]
        label = (
            scores.detach()[:, 0] - 1
            if label.is_floating_point()
            else torch.from_numpy(rng.integers(0, classes, size=label.shape))
        )
        lengths.append(
            math.sqrt(sum(float(each.square().sum()) for each in _gradient(module, loss.each(scores, label))))
        )
    return max(float(np.median(lengths)), 1e-9)


def _gradient(module: nn.Module, values: Tensor) -> list[Tensor]:
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [each for each in torch.autograd.grad(values.sum(), trained, allow_unused=True) if each is not None]


def _steepest(module: nn.Module, inputs: Tensor) -> float:
    """The largest curvature of the mean squared loss of a model with one score that is linear in its parameters."""
    found = [torch.cat([each.flatten() for each in _gradient(module, module(record[None]))]) for record in inputs]
    return 2 * float(torch.linalg.matrix_norm(torch.stack(found), 2)) ** 2 / len(found)


def _public_inputs(data: DeviceData, module: nn.Module, rng: np.random.Generator, unit: bool) -> Tensor:
    """Inputs as the model sees them, of no device: of public test records, or random ones of their scale."""
    if data.test_owners is None and len(data.test):
        stored = data.test.x[:_INPUTS].astype(np.float32)
        return torch.from_numpy(stored * data.scaling.scale + data.scaling.shift).float()
    words = [each.num_embeddings for each in module.modules() if isinstance(each, nn.Embedding)]
    shape = (_INPUTS, *data.shape)
    if words:
        return torch.from_numpy(rng.integers(0, min(words), size=shape).astype(np.float32))
    if data.test.x.dtype == np.uint8 and not np.any(data.scaling.shift):  # pixels from 0 to 1
        return torch.from_numpy(rng.random(shape, dtype=np.float32))
    drawn = rng.standard_normal(shape)
    if unit:
        drawn /= np.linalg.norm(drawn[:, :-1], axis=1, keepdims=True)
        drawn[:, -1] = BIAS
    if data.columns is not None:
        drawn *= data.columns.deviations
    return torch.from_numpy(drawn.astype(np.float32))
