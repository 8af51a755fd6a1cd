"""The compiled engine: device after device, each step at the speed of the processor's first caches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.errors import UserError
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping, of_records
from h2fdp.training.compiled import kernels
from h2fdp.training.compiled.blocks import BLOCK, Floats, Stored, memory_for
from h2fdp.training.compiled.chains import network_of, why_not_compiled
from h2fdp.training.compiled.kernels import Carried, Drawn, Rules
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import PLAIN_TERMS, Descent, StepTerms, TrainingResult, pull_alone
from h2fdp.training.losses import CROSS_ENTROPY, LabelSmoothing, Loss


class CompiledEngine:
    """Chains of linear layers by compiled kernels, which hold no lock of the interpreter: threads scale.

    A device is computed by itself, from its own batches, so its bits are its own for every split over calls and
    threads. Another kind of processor, or another version of numba, may give other last bits.

    Raises:
        UserError: a model, a loss or an objective that has no compiled steps.
    """

    def __init__(
        self,
        module: nn.Module,
        clipping: Clipping | None,
        descent: Descent,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        if reason := why_not_compiled(module, descent.objective, loss):
            raise UserError(f"expected another engine than compiled: {reason}", key="runtime.engine")
        network = network_of(module)
        assert network is not None, "checked above"
        self._network = network
        bound = clipping.norm if clipping is not None else np.inf
        self._rules = Rules(
            smoothing=np.float32(loss.smoothing if isinstance(loss, LabelSmoothing) else 0.0),
            record_norm=float(bound if of_records(clipping) else np.inf),
            batch_norm=float(bound if clipping is not None and clipping.of_batches else np.inf),
            step_size=np.float32(0.0),
            momentum=np.float32(descent.momentum),
            pull=np.float32(pull_alone(descent.objective)),
        )

    def train(
        self,
        starts: Tensor,
        records: DeviceRecords,
        rows: np.ndarray,
        batches: Batches,
        step_size: float,
        terms: StepTerms = PLAIN_TERMS,
    ) -> TrainingResult:
        """`Engine.train` with records and models on the CPU."""
        starts = starts.contiguous()
        trained = TrainingResult.room(starts, False, terms.watched)
        models = trained.updates.copy_(starts)
        if trained.last_steps is not None:
            trained.last_steps.zero_()
        nothing = starts.new_empty(0, starts.shape[1])

        def array(values: Tensor | None) -> Floats:
            numbers: Floats = (nothing if values is None else values.contiguous()).numpy()
            return numbers

        carried = Carried(
            received=array(starts),
            models=array(models),
            velocities=array(torch.zeros_like(starts) if self._rules.momentum else None),
            last=array(trained.last_steps),
            corrections=array(terms.corrections),
            noise=array(None),
        )
        drawn = Drawn(
            begins=_plain(records.offsets[rows], np.int64),
            indices=_plain(batches.indices, np.int64),
            counts=_plain(batches.counts, np.int64),
            divisors=_plain(batches.divisors, np.float64),
            steps=_plain(batches.steps_done, np.int64),
        )
        rules, stored = self._rules._replace(step_size=np.float32(step_size)), stored_by(records)
        memory = memory_for(self._network, starts.shape[1])  # of this call: several threads may be in this engine
        parts = [(0, len(starts))] if terms.noise is None else [(device, device + 1) for device in range(len(starts))]
        for first, stop in parts:
            if terms.noise is not None:
                noise = _noise_of(terms.part(np.array([first])), drawn.divisors[: drawn.steps[first], first], models)
                carried = carried._replace(noise=noise)
            kernels.train(self._network, rules, stored, drawn, carried, memory, first, stop)
        torch.sub(starts, models, out=models)
        return trained


def _noise_of(terms: StepTerms, divisors: np.ndarray, models: Tensor) -> Floats:
    """(slots, M) of the device that the terms are of: its noise of all its steps is in memory at a time."""
    assert terms.noise is not None, "there is noise"
    noise = models.new_zeros(len(divisors), models.shape[1])
    for slot, divisor in enumerate(divisors):
        terms.noise.add(noise[slot : slot + 1], slot, np.array([divisor]))
    vectors: Floats = noise.numpy()
    return vectors


def _plain(array: np.ndarray, kind: type) -> np.ndarray:
    """The array in order and writable: for any other array numba would compile everything once more."""
    return np.require(array, kind, ["C", "W"])


def stored_by(records: DeviceRecords) -> Stored:
    """The records as arrays, without a copy."""
    x = records.x.reshape(len(records.x), -1).contiguous().numpy()
    stored_as_bytes = x.dtype == np.uint8
    assert stored_as_bytes or x.dtype == np.float32, "as records are stored"
    scale, shift = records.scale, records.shift
    if scale.numel() > 1 or shift.numel() > 1:
        scale, shift = (each.expand(records.x.shape[1:]) for each in (scale, shift))
    return Stored(
        numbers=np.empty((0, x.shape[1]), np.float32) if stored_as_bytes else x,
        bytes=x if stored_as_bytes else np.empty((0, x.shape[1]), np.uint8),
        y=records.y.contiguous().numpy(),
        scale=scale.reshape(-1).to(torch.float32).contiguous().numpy(),
        shift=shift.reshape(-1).to(torch.float32).contiguous().numpy(),
    )


class CompiledScores:
    """The forward half of a step, for evaluation. Records are read as they are stored; threads may call one at once."""

    def __init__(self, module: nn.Module) -> None:
        network = network_of(module)
        assert network is not None, "the engine was built for it"
        self._network = network

    def __call__(self, model: Tensor, records: DeviceRecords, part: slice) -> Tensor:
        """The scores of a model on a part of the records (`Scores`), all on the CPU."""
        network = self._network
        first, stop, _ = part.indices(len(records.y))
        scores = torch.empty(stop - first, int(network.outputs[-1]), dtype=torch.float32)
        block = np.empty(BLOCK * int(network.places[-1] + network.outputs[-1]), np.float32)
        seen = stored_by(records)
        kernels.score(network, seen, model.contiguous().numpy(), block, first, scores.numpy())
        return scores
