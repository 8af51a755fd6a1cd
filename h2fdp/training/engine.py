"""The seam between the protocol and the arithmetic of many devices' local steps."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.config.own_answers import FAILURES, failure
from h2fdp.errors import UserError
from h2fdp.models.construct import ParameterLayout
from h2fdp.streams import compile_rows
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping, of_records
from h2fdp.training.compiled.chains import numba_is_there, why_not_compiled
from h2fdp.training.device_records import DeviceRecords, ModuleScores, Scores
from h2fdp.training.gradients import gradient_rule, is_layered
from h2fdp.training.gradients.rule import FunctionalGradients, Precision
from h2fdp.training.gradients.tapped import tapped_layers
from h2fdp.training.local_steps import PLAIN_TERMS, Descent, StepTerms, TrainingResult, comparison_of
from h2fdp.training.loop import LoopEngine
from h2fdp.training.losses import CROSS_ENTROPY, Loss, RecordLoss
from h2fdp.training.stacked import StackedEngine
from h2fdp.wording import note


class Engine(Protocol):
    """Runs the local steps of several devices."""

    def train(
        self,
        starts: Tensor,
        records: DeviceRecords,
        rows: np.ndarray,
        batches: Batches,
        step_size: float,
        terms: StepTerms = PLAIN_TERMS,
    ) -> TrainingResult:
        """Local steps of each device from the model that it was sent.

        Args:
            starts: (s, M) the model that each device received; may be an expanded view of fewer.
            records: the group's records; `rows` are rows of it.
            rows: (s,) the devices that train.
            batches: of these s devices, for as many slots as there are steps; a device with fewer steps stops early.
            step_size: eta_k.
        """
        ...


EngineName = Literal["loop", "stacked", "compiled"]

# Multiply-adds of an interval from which `auto` compiles: the paper's network has 250 million with Fashion-MNIST.
# Compiling takes ten seconds once; smaller runs may be over sooner.
WORTH_COMPILING = 1e8
# Of a whole run, where all devices draw all their records: kernels then take half the time of `stacked`, which copies
# no record either, and a run of fewer is over before they would have made up for being loaded.
WORTH_COMPILING_WHOLE = 3e10
_LARGE = 500_000  # numbers in a record's gradient, from which on writing it out is worth a word
# Engines that know `Clipping.gamma`.
NORMALISING: frozenset[EngineName] = frozenset({"loop", "stacked"})


def build_engine(
    name: EngineName,
    module: nn.Module,
    clipping: Clipping | None,
    descent: Descent,
    width: int = 32,
    loss: Loss = CROSS_ENTROPY,
    precision: Precision = "float32",
) -> Engine:
    """The engine of this name for a model; `loop` is the reference that others must agree with.

    Args:
        width: records of a device that a batched engine computes at once, the same in the whole network.
        precision: of the factors of convolutions' products; models, sums, norms, clipped gradients and noise keep 32
            bits. `stacked` alone knows another than float32.

    Raises:
        UserError: `compiled` for a model, a loss or an objective that it does not know.
    """
    assert clipping is None or clipping.plain or name in NORMALISING, f"{name} cuts gradients, and no more"
    assert precision == "float32" or name == "stacked", f"{name} knows float32 alone"
    if name == "stacked":
        return StackedEngine(module, clipping, descent, width, loss, precision)
    if name == "loop":
        return LoopEngine(module, clipping, descent, loss)
    assert descent.optimizer is None, "kernels know plain steps and momentum"
    from h2fdp.training.compiled.engine import CompiledEngine  # numba is for those who ask for it

    compile_ahead()  # on hosts, too
    return CompiledEngine(module, clipping, descent, loss)


@cache
def compile_ahead() -> None:
    """Begin to compile all kernels, or to read them from disk, in a thread of their own; a second call does nothing.

    Random numbers are NumPy's, to the bit, before those that draw them are there and after.

    A thread that trains meanwhile waits for them. A process that ends earlier waits until they are on disk, unless
    Ctrl-C ends it.
    """
    threading.Thread(target=_compile_all, name="compiling").start()


_HANDED_ON = 2e-4  # seconds after which the compiler's Python lets another thread go on; by default 5e-3


def _compile_all() -> None:
    before = sys.getswitchinterval()
    # Threads that compute features meanwhile ask for the interpreter at each operation: they compute a sixth more so.
    sys.setswitchinterval(_HANDED_ON)
    try:
        with suppress(Exception):  # the first call of a kernel raises it again
            from h2fdp.training.compiled.kernels import compile_both

            compile_both()
            compile_rows()
    finally:
        sys.setswitchinterval(before)


def build_scores(name: EngineName, module: nn.Module) -> Scores:
    """The evaluation of models that this engine trains: in one way for every placement, so that bits are equal."""
    if name != "compiled":
        return ModuleScores(module)
    from h2fdp.training.compiled.engine import CompiledScores

    return CompiledScores(module)


_LABELS = torch.zeros(2, dtype=torch.int64)


@dataclass(frozen=True)
class TrainingJob:
    """The training that an engine is chosen for.

    Attributes:
        shape: one record's.
        products: parameters of the model times the records that all devices are expected to draw in an interval.
        width: records of a device that a batched engine computes at once.
        precision: of the factors of convolutions' products.
        labels: (2,) or (2, width) made-up ones.
        augments: whether records are trained on in variants.
        whole_intervals: of the run, where all devices draw all their records in each step; None elsewhere.
    """

    descent: Descent
    loss: Loss
    clipping: Clipping | None
    shape: tuple[int, ...]
    products: float
    width: int
    precision: Precision = "float32"
    labels: Tensor = _LABELS
    augments: bool = False
    whole_intervals: int | None = None

    @property
    def worth_compiling(self) -> bool:
        """Whether kernels gain more than it takes to have them."""
        whole = self.whole_intervals
        return self.products >= WORTH_COMPILING and (whole is None or whole * self.products >= WORTH_COMPILING_WHOLE)

    def why_not_compiled(self, module: nn.Module) -> str | None:
        """The reason why the compiled engine cannot do it, as the end of a sentence; None where it can."""
        if self.descent.optimizer is not None:
            return f"it compiles steps without training.optimizer {self.descent.optimizer.name}"
        if self.augments:
            return "it compiles steps on records as they are, without data.augment"
        return why_not_compiled(module, self.descent.objective, self.loss, self.shape)

    def why_not_stacked(self, module: nn.Module) -> str | None:
        """The reason why the stacked engine cannot do it, as the end of a sentence; None where it can.

        A module that is no chain of known layers is tried: which ones `torch.func` can batch, no list says.
        """
        comparison = comparison_of(self.descent.objective)
        if is_layered(module) and comparison is None:
            return None
        models = ParameterLayout(module).to_vector(module).expand(2, -1)
        others = None if comparison is None else (models, models)
        labels, ones = torch.stack([self.labels, self.labels]), torch.ones(2, 2, dtype=torch.float32)
        try:
            if comparison is None and self.taps(module):
                return self._why_not_tapped(module, models, labels)
            rule = FunctionalGradients(module, of_records(self.clipping), self.loss, comparison, last_numbers=0)
            rule.sums(models, torch.zeros(2, 2, *self.shape, dtype=torch.float32), labels, ones, others)
        except FAILURES as error:
            reason = failure(error.__cause__ or error).splitlines()[0]
            return f"torch.func cannot batch the model or the loss ({reason})"
        return None

    def taps(self, module: nn.Module) -> bool:
        """Whether clipped gradients of records follow from what enters and leaves layers."""
        return of_records(self.clipping) is not None and isinstance(tapped_layers(module), dict)

    def untapped(self, module: nn.Module) -> str | None:
        """Why each record's gradient is written out, and its price, in words; None where none is."""
        size = ParameterLayout(module).size
        cheap = of_records(self.clipping) is None or size < _LARGE or is_layered(module)
        if cheap or isinstance(why := tapped_layers(module), dict):
            return None
        return f"each record's gradient is written out, {size:,} numbers: {why}"

    def _why_not_tapped(self, module: nn.Module, models: Tensor, labels: Tensor) -> str | None:
        """Whether gradients by layers are those of autograd: a layer may be used in another way than called."""
        generator = torch.Generator().manual_seed(0)
        records = torch.rand(2, 2, *self.shape, generator=generator, dtype=torch.float32)
        each = RecordLoss(module, self.loss, None).gradients(models[0], records[0], labels[0])
        clipping = Clipping(float(torch.linalg.vector_norm(each, dim=1).min()) / 2 or 1.0, "record")
        shares = torch.ones(2, 2, dtype=torch.float32)
        found = gradient_rule(module, clipping, self.loss).sums(models, records, labels, shares)[0]
        wanted = clipping.apply(each).sum(dim=0)
        near = torch.linalg.vector_norm(found - wanted) <= 0.02 * torch.linalg.vector_norm(wanted)
        return None if near else "gradients by what enters and leaves its layers are not those of the model"


def chosen_engine(module: nn.Module, device: torch.device, job: TrainingJob) -> EngineName:
    """The engine of `engine: auto`, by a rule, so that equal runs have equal bits. It does not look for numba."""
    if job.precision != "float32":
        return "stacked"
    if device.type == "cpu":
        plain = job.clipping is None or job.clipping.plain
        if plain and job.worth_compiling and job.why_not_compiled(module) is None:
            return "compiled"
        if _convolves(module) and not job.taps(module):
            return "loop"
    return "loop" if job.why_not_stacked(module) is not None else "stacked"


def _convolves(module: nn.Module) -> bool:
    """Whether it has convolutions that torch.func would batch, which takes a CPU longer than one after another."""
    return not is_layered(module) and any(isinstance(each, nn.modules.conv._ConvNd) for each in module.modules())


def engine_of_run(
    asked: Literal["auto"] | EngineName, module: nn.Module, device: torch.device, job: TrainingJob
) -> EngineName:
    """The engine that a run begins with; `stacked` for `compiled` where there is no numba, with a message.

    Raises:
        UserError: work that the engine does not know: a model, a loss, an objective, a way of clipping, a precision, a
            processor.
    """
    engine = chosen_engine(module, device, job) if asked == "auto" else asked
    if job.precision != "float32":
        _check_rounding(engine, module, device, job)
    reason = None
    if asked == "compiled":
        on_gpu = "it compiles for CPUs, and runtime.gpus_per_host requests a GPU"
        reason = job.why_not_compiled(module) if device.type == "cpu" else on_gpu
    elif asked == "stacked" or (asked == "auto" and engine == "loop" and not _convolves(module)):
        reason = job.why_not_stacked(module)
    if asked == "auto" and isinstance(untapped := job.untapped(module), str):
        _say(untapped)
    if reason is not None and asked == "auto":
        note(f"training with loop, one device after another: {reason}")
    elif reason is not None:
        others = "auto, stacked or loop" if asked == "compiled" else "auto or loop"
        raise UserError(f"expected {others}, found {asked}: {reason}", key="runtime.engine")
    if job.clipping is not None and not job.clipping.plain and engine not in NORMALISING:
        text = f"{engine} does not normalise gradients; expected auto, {', '.join(sorted(NORMALISING))}"
        raise UserError(f"{text}, or a number as clip_norm", key="runtime.engine")
    if engine == "compiled" and not numba_is_there():
        by = "runtime.engine: compiled" if asked == "compiled" else "the fastest engine for this run, compiled,"
        note(f"{by} needs numba, which cannot be imported; training with stacked")
        return "stacked"
    return engine


@cache
def _say(text: str) -> None:
    note(text)


def _check_rounding(engine: EngineName, module: nn.Module, device: torch.device, job: TrainingJob) -> None:
    if engine != "stacked":
        text = f"{engine} knows float32 alone; expected auto or stacked, or training.precision: float32"
        raise UserError(text, key="runtime.engine")
    reasons = {
        "CPUs round, and runtime.gpus_per_host requests a GPU": device.type != "cpu",
        "what rounds are chains of Linear, Conv2d and GroupNorm layers, between them torch's own": not is_layered(
            module
        ),
        "the objective compares models": comparison_of(job.descent.objective) is not None,
        "it rounds convolutions, and this model has none": not any(isinstance(m, nn.Conv2d) for m in module.modules()),
    }
    if reason := next((text for text, holds in reasons.items() if holds), None):
        raise UserError(f"expected float32, found {job.precision}: {reason}", key="training.precision")
    if lacks_bfloat16():
        note("training.precision: bfloat16 is slower than float32 here: this processor has no such products")


def lacks_bfloat16() -> bool:
    """Whether this process's CPU states that it has no products of bfloat16 numbers."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return flags.isdisjoint({"avx512_bf16", "avx_ne_convert", "amx_bf16", "bf16"})


class Engines:
    """Engines for so many threads, which are built when the first of them asks, before any of them computes; one more
    for each further thread.

    While a library loads a model it may set torch's default type, and that is one for all threads.
    """

    def __init__(self, build: Callable[[], Engine], threads: int) -> None:
        self._build, self._threads = build, threads
        self._lock, self._built = threading.Lock(), list[Engine]()

    def take(self) -> Engine:
        """One that no other thread has."""
        with self._lock:
            if not self._built:
                self._built, self._threads = [self._build() for _ in range(self._threads)], 1
            return self._built.pop()


class ThreadLocalEngine(threading.local):
    """An `Engine` that has one of its own for each thread that calls it."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    @cached_property
    def train(self) -> Any:
        """The `Engine.train` of the thread's engine."""
        return self._engines.take().train
