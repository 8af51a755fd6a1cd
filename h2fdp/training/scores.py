"""What a model says of records: by its module, or by compiled kernels where these train it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.models import ParameterLayout
from h2fdp.training.device_records import DeviceRecords


class Scores(Protocol):
    """A forward pass. Threads that compute side by side have one each."""

    def __call__(self, model: Tensor, records: DeviceRecords, part: slice) -> Tensor:
        """(b, classes) scores of a part of the records by parameters `model` (M,)."""
        ...


class ModuleScores:
    """By calling a module functionally: meanwhile the model's parameters hang in it."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._layout = module, ParameterLayout(module)

    def __call__(self, model: Tensor, records: DeviceRecords, part: slice) -> Tensor:
        scores: Tensor = functional_call(self._module, self._layout.views(model), (records.inputs(part),))
        return scores
