"""Noise placements, an axis of a method: who adds noise, with which options, and the settings that each excludes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from h2fdp.config.fields import Magnitude, Options
from h2fdp.config.named_options import Choices
from h2fdp.errors import refused
from h2fdp.network import Topology, Trust
from h2fdp.privacy.mechanisms.mechanism import Mechanism, MechanismContext
from h2fdp.privacy.mechanisms.pipeline import Pipeline
from h2fdp.privacy.mechanisms.secret_draws import SecretDraw
from h2fdp.privacy.places import Observer, Place, Seen, height_of
from h2fdp.privacy.vectors import GAUSSIAN, NoiseLaw

Clips = Literal["gradient", "record", "update", "model", "nothing"]
Unit = Literal["record", "device"]


@dataclass(frozen=True)
class UploadClipping:
    """The clipping of a run, as far as stages of uploads depend on it.

    Attributes:
        norm: C, of the first interval where whole updates are clipped.
        step_size: the largest, of the first interval.
        by_record: records' gradients are clipped one by one.
        gamma: of whole updates or models that are normalised, see `clip_rows`; None for others.
        longest: from a step size and a number of steps to the longest update; None where it has no bound.
        draw: by which devices take part, where that is secret.
    """

    norm: float | None = None
    step_size: float = 1.0
    by_record: bool = False
    gamma: float | None = None
    longest: Callable[[float, int], float] | None = None
    draw: SecretDraw | None = None


class NoisePlacement(Options, ABC):
    """A placement of noise: a point of the axis `method.privacy`, with its options; a frozen value.

    Attributes:
        private: whether a guarantee is asked for at all.
        accumulates: what is released are sums of several steps' gradients: a record turns those after its draw, too.
        accounted: whether there is a sound account of it.
        protects: the unit of privacy: what neighbouring data sets differ in.
        about_replaced_records: its claim compares data sets in which a record is another one, not ones that lack it.
        trusted: observers that may see raw updates.
        unaudited: why canaries cannot test it; None where they can.
    """

    private: ClassVar[bool] = True
    accumulates: ClassVar[bool] = False
    accounted: ClassVar[bool] = True
    protects: ClassVar[Unit] = "record"
    about_replaced_records: ClassVar[bool] = False
    trusted: ClassVar[frozenset[Observer]] = frozenset()
    unaudited: ClassVar[str | None] = None

    @property
    def clips(self) -> Clips:
        """The vector that `training.clip_norm` bounds: a step's gradient, each record's gradient, a device's whole
        update or model, or nothing that the guarantee needs."""
        return "gradient"

    @property
    def all_steps_noisy(self) -> bool:
        """Whether each local step of every device is noisy whatever the options and the trust, as with `dp-sgd`.

        `Pipeline.noisy_steps` says it of the devices under one edge server, so also with `noise: steps`.
        """
        return False

    @property
    def noise_is_given(self) -> bool:
        """Whether its options state the noise, so that nothing is calibrated."""
        return False

    @property
    def tells_batch_sizes(self) -> bool:
        """Whether what is released says how many records a batch drew."""
        return False

    @property
    def states_divisor(self) -> bool:
        """Whether batches' sums are divided by a number of its options."""
        return False

    @property
    def input_norm(self) -> float | None:
        """The norm by which inputs are divided, and no longer than 1 then; None where they stay as they are."""
        return None

    @property
    def noise_law(self) -> NoiseLaw:
        """The law of the noise."""
        return GAUSSIAN

    @property
    def rounding(self) -> int | None:
        """Bits of the integers that secure sums add up; None for real vectors."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences that go with every number about it."""
        return ()

    def silence(self, observer: Observer) -> str:
        """Why an observer has no account. Where edge servers may see raw updates, so may those above them."""
        trusted = observer in self.trusted or (height_of(observer) > 1 and "edge" in self.trusted)
        return "trusted" if trusted else "nothing released"

    @abstractmethod
    def place(self, chain: Sequence[Trust], passed: int) -> Place | None:
        """The place where noise is added, by trust alone; None where none is.

        Args:
            chain: trust in the aggregators above a device, from its edge server up to the one below the cloud.
            passed: how many of them average the vector; all of them where the cloud does after all.
        """

    def sees(self, trust: Trust) -> Seen:
        """The part of its children's uploads that an aggregator of this trust, or the cloud, sees."""
        return "each"

    @abstractmethod
    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """Refusals of settings that the placement excludes, key and text.

        Args:
            experiment: an `ExperimentFile`.
        """

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        """The stages of the uploads of devices under an edge server of this trust."""
        return Pipeline()

    @abstractmethod
    def mechanism(self, setting: MechanismContext) -> Mechanism:
        """The noises of a run.

        Raises:
            UserError: a target that no noise meets, data that the mechanism is not made for.
        """


class StatedNoise(NoisePlacement):
    """A placement whose noise may be stated instead of a target.

    Attributes:
        noise_multiplier: the noise divided by the sensitivity; null is calibrated.
    """

    noise_multiplier: Magnitude | None = None

    @property
    def noise_is_given(self) -> bool:
        return self.noise_multiplier is not None

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """Refusals of noise that is both stated and calibrated, and those of clipped updates or models."""
        stated, training = self.noise_multiplier, experiment.training
        whole = self.clips in ("update", "model")
        by_record = whole and "clip_scope" in training.model_fields_set and training.clip_scope == "record"
        calibrated = stated is not None and experiment.calibration == "accounted"
        yield from refused(
            f"the noise is stated (noise_multiplier is {stated})",
            ("privacy.calibration", calibrated, "noise_multiplier null, or paper", "accounted"),
        )
        if whole:
            yield from clipped(experiment, f"{self.clips}s")
        yield from refused(  # `batch` is the default that a run's own config.yaml states
            f"{self.name} clips a device's whole {self.clips}",
            ("training.clip_scope", by_record, "no such key", "record"),
        )


class BoundedInputs(NoisePlacement):
    """A placement that may bound gradients by the norm of inputs.

    Attributes:
        input_bound: a public bound on the norm of inputs, which are divided by it; every record is checked. Softmax
            regression needs no clipping then. Null, not for `objective`: no bound.
    """

    input_bound: Magnitude | None = None

    @property
    def input_norm(self) -> float | None:
        return self.input_bound


NOISE_PLACEMENTS: Choices[NoisePlacement] = Choices()


def noise_placement_of(value: NoisePlacement | Any) -> NoisePlacement:
    """The placement that a section describes, checked or as a recorded configuration has it."""
    found = value if isinstance(value, NoisePlacement) else NOISE_PLACEMENTS.read(value)
    assert isinstance(found, NoisePlacement), "no placement is a user's own: an account must know it"
    return found


def simulated(drawn: Topology, shape: str | None, privacy: NoisePlacement | Any) -> Topology:
    """The network that a run simulates: in a star all devices are below the cloud's own edge server.

    So they are where all edge servers are relays: the cloud's is then the one sum over the whole network.

    Args:
        shape: `star`, or the tree as it was drawn.
        privacy: of the method, checked or as a recorded configuration has it.
    """
    if shape == "star":
        return drawn.as_star()
    if drawn.subnets[0].trust != "relay" or not drawn.relayed or noise_placement_of(privacy).sees("relay") == "each":
        return drawn
    return drawn.as_star("relay")


def remembering(experiment: Any, noisy_steps: bool = False) -> Iterator[tuple[str, str]]:
    """The problem of a device that remembers what it does not release.

    Args:
        noisy_steps: devices may add noise to each of their steps: then what they remember is made of noisy gradients,
            which have rows in the ledger, and of models that they received, as long as a step has one gradient.
    """
    name, objective = experiment.method.objective.name, experiment.method.local_objective
    gradients = getattr(objective, "gradients", 1)
    if objective.memory is None or (noisy_steps and gradients == 1):
        return
    right = "noise on each step (privacy dp-sgd, or noise: steps), privacy none, or another objective"
    if noisy_steps:
        right = f"another objective, or privacy none: a step has {gradients} gradients, and noise for one"
    yield from refused(
        f"a device keeps its {objective.memory}, which depend on all records that it ever drew",
        ("method.objective", True, right, name),
    )


def uncontrolled(experiment: Any) -> Iterator[tuple[str, str]]:
    """The problem of a controller, which knows the noise of accumulated gradients only."""
    return refused(
        "the controller supports the noise of hierarchical and local",
        ("control.enabled", experiment.method.traits.controlled, "one of these, or false", "true"),
    )


def clipped(experiment: Any, what: str) -> Iterator[tuple[str, str]]:
    """The problem of a bound that is missing."""
    unbounded = experiment.training.largest_norm is None
    return refused(
        f"a guarantee needs clipped {what}",
        ("training.clip_norm", unbounded, "a finite number above 0", "nothing"),
    )
