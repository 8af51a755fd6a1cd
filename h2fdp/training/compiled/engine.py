"""The compiled engine: device after device, each step at the speed of the processor's first caches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.errors import UserError
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.compiled import kernels, layers, losses
from h2fdp.training.compiled.arrays import Carried, Drawn, Floats, Held, Memory, Network, Rules
from h2fdp.training.compiled.chains import LinearLayer, linear_chain, why_not_compiled
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_objective import LocalObjective, closed_form_of, comparison_of, previous_models
from h2fdp.training.losses import CROSS_ENTROPY, Hinge, LabelSmoothing, Loss
from h2fdp.training.work import PLAIN_TERMS, StepTerms, TrainingResult

_CODES: dict[type[nn.Module] | None, int] = {
    None: layers.NO_ACTIVATION,
    nn.ReLU: layers.RELU,
    nn.Tanh: layers.TANH,
    nn.Sigmoid: layers.SIGMOID,
    nn.Softmax: layers.SOFTMAX,
}


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
        objective: LocalObjective,
        momentum: float = 0.0,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        if reason := why_not_compiled(module, objective, loss):
            raise UserError(f"expected another engine than compiled: {reason}", key="runtime.engine")
        chain, form = linear_chain(module), closed_form_of(objective)
        assert not isinstance(chain, str), "checked above"
        assert form is not None, "checked above"
        self._network = network_of(chain)
        self._personal, self._compares = objective.personal, comparison_of(objective) is not None
        of_records = clipping is not None and clipping.scope == "record"
        of_batches = clipping is not None and clipping.of_batches
        bound = clipping.norm if clipping is not None else np.inf
        self._rules = Rules(
            loss=losses.HINGE if isinstance(loss, Hinge) else losses.SMOOTHED_CROSS_ENTROPY,
            loss_value=np.float32(_value_of(loss)),
            record_norm=float(bound if of_records else np.inf),
            batch_norm=float(bound if of_batches else np.inf),
            step_size=np.float32(0.0),
            momentum=np.float32(momentum),
            pull=np.float32(form.pull),
            inner_steps=form.inner_steps,
            inner_step_size=np.float32(form.inner_step_size),
            penalty=np.float32(form.penalty),
            contrast=np.float32(form.contrast),
            temperature=np.float32(form.temperature),
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
        """See `Engine.train`; records and models are on the CPU."""
        assert terms.clip_norm is None, "kernels have one clip norm, and count nothing"
        starts = starts.contiguous()
        trained = TrainingResult.room(starts, self._personal, terms.watched)
        models = trained.updates.copy_(starts)
        if trained.personal is not None:
            trained.personal.copy_(starts)
        if trained.last_steps is not None:
            trained.last_steps.zero_()
        nothing = torch.empty(0, starts.shape[1])
        corrections, previous = terms.corrections, None
        if self._compares:
            assert corrections is not None, "the models that devices had before"
            previous, corrections = previous_models(corrections, starts), None

        def array(values: Tensor | None) -> Floats:
            held: Floats = (nothing if values is None else values.contiguous()).numpy()
            return held

        carried = Carried(
            received=array(starts),
            models=array(models),
            velocities=array(torch.zeros_like(starts) if self._rules.momentum else None),
            personal=array(trained.personal),
            last=array(trained.last_steps),
            corrections=array(corrections),
            previous=array(previous),
            noise=array(None),
        )
        drawn = Drawn(
            begins=_plain(records.offsets[rows], np.int64),
            indices=_plain(batches.indices, np.int64),
            counts=_plain(batches.counts, np.int64),
            divisors=_plain(batches.divisors, np.float64),
            steps=_plain(batches.steps_done, np.int64),
        )
        rules = self._rules._replace(step_size=np.float32(step_size))
        if terms.noise is None:
            kernels.train(
                self._network, rules, held_by(records), drawn, carried, self._memory(starts), 0, len(batches.counts)
            )
        else:
            self._train_noisily(rules, held_by(records), drawn, carried, terms)
        torch.sub(starts, models, out=models)
        return trained

    def _memory(self, models: Tensor | Floats) -> Memory:
        """For a call: several threads may be in this engine."""
        return kernels.memory_for(self._network, models.shape[1], self._rules.contrast != 0.0)

    def _train_noisily(
        self,
        rules: Rules,
        held: Held,
        drawn: Drawn,
        carried: Carried,
        terms: StepTerms,
    ) -> None:
        """Step by step, with noise on each gradient: that of one step of one device is held at a time."""
        memory = self._memory(carried.models)
        noise = torch.zeros_like(torch.from_numpy(carried.models[:1]))
        for device, steps in enumerate(drawn.steps.tolist()):
            part = slice(device, device + 1)
            own = terms.part(np.array([device])).noise
            assert own is not None, "noise is there"
            alone = Carried._make([*(each[part] for each in carried[:-1]), noise.numpy()])
            batches = Drawn(
                drawn.begins[part],
                _plain(drawn.indices[:, part], np.int64),
                _plain(drawn.counts[:, part], np.int64),
                _plain(drawn.divisors[:, part], np.float64),
                drawn.steps[part],
            )
            for slot in range(steps):
                own.add(noise.zero_(), slot, batches.divisors[slot])
                kernels.train(self._network, rules, held, batches, alone, memory, slot, slot + 1)


def _plain(array: np.ndarray, kind: type) -> np.ndarray:
    """In order and writable: for any other array numba would compile everything once more."""
    return np.require(array, kind, ["C", "W"])


def network_of(chain: list[LinearLayer]) -> Network:
    """The chain as kernels take it."""
    sizes = [layer.outputs * (layer.inputs + layer.biased) for layer in chain]
    return Network(
        inputs=np.array([layer.inputs for layer in chain]),
        outputs=np.array([layer.outputs for layer in chain]),
        biased=np.array([layer.biased for layer in chain]),
        activations=np.array([_CODES[layer.activation] for layer in chain]),
        first=np.cumsum([0, *sizes[:-1]]),
        places=layers.BLOCK * np.cumsum([0, *(layer.inputs for layer in chain)]),
    )


def _value_of(loss: Loss) -> float:
    """Smoothing, or the margin of the hinge."""
    if isinstance(loss, Hinge):
        return 1.0
    return loss.smoothing if isinstance(loss, LabelSmoothing) else 0.0


def held_by(records: DeviceRecords) -> Held:
    """The records as arrays, without a copy."""
    x = records.x.reshape(len(records.x), -1).contiguous().numpy()
    stored_as_bytes = x.dtype == np.uint8
    assert stored_as_bytes or x.dtype == np.float32, "as records are stored"
    scale, shift = records.scale, records.shift
    if scale.numel() > 1 or shift.numel() > 1:
        scale, shift = (each.expand(records.x.shape[1:]) for each in (scale, shift))
    return Held(
        numbers=np.empty((0, x.shape[1]), np.float32) if stored_as_bytes else x,
        bytes=x if stored_as_bytes else np.empty((0, x.shape[1]), np.uint8),
        y=records.y.contiguous().numpy(),
        scale=scale.reshape(-1).to(torch.float32).contiguous().numpy(),
        shift=shift.reshape(-1).to(torch.float32).contiguous().numpy(),
    )
