"""An experiment file as a whole, and its sections `privacy:`, `faults:` and `tracking:`.

`OTHER_NAMES` has what other programs and papers call its keys, from other_names.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from h2fdp.config import Section
from h2fdp.config.fields import (
    BY_SHAPE,
    Count,
    Delta,
    Expect,
    Flag,
    Magnitude,
    Positive,
    Probability,
    Text,
    ascending,
    extended,
)
from h2fdp.config.own_parts import OwnPart
from h2fdp.config.parsing import values_of
from h2fdp.data.federate import DataSection
from h2fdp.experiment.training_section import BoundedCost, Measure, TrainingSection
from h2fdp.methods import METHODS, MethodSection
from h2fdp.models import registry as models
from h2fdp.models.registry import ModelSection
from h2fdp.privacy.accounting import AccountantName
from h2fdp.privacy.mechanisms.mechanism import SensitivityRule
from h2fdp.privacy.mechanisms.noise_placement import Unit
from h2fdp.privacy.mechanisms.pipeline import MessageStages, messages_of
from h2fdp.privacy.releases import Adjacency
from h2fdp.privacy.vectors import NoiseLaw
from h2fdp.protocol.arrivals import Faults
from h2fdp.runtime.placement import RuntimeSection
from h2fdp.schedules import ControlSection, Horizon
from h2fdp.wording import SCORES

Number = Annotated[int | float, Expect("a finite number")]
Ends = Annotated[list[Number], Field(min_length=2, max_length=2), Expect("two numbers, as [2, 60]")]


class Span(Section):
    """Numbers between two ends, whole ones where both ends are.

    Attributes:
        uniform: the ends of the range.
        log: the ends, searched on a logarithmic scale.
    """

    uniform: Ends | None = None
    log: Ends | None = None

    @model_validator(mode="after")
    def _ascending(self) -> Span:
        if (self.uniform is None) == (self.log is None):
            raise ValueError("expected one of {uniform: [low, high]}, {log: [low, high]}")
        if self.low >= self.high:
            raise ValueError(f"expected two ascending numbers, found {self.low:g} and {self.high:g}")
        if self.log is not None and self.low <= 0:
            raise ValueError(f"expected numbers above 0 on a logarithmic scale, found {self.low:g}")
        return self

    @property
    def low(self) -> int | float:
        """The lowest number."""
        return (self.uniform or self.log or [])[0]

    @property
    def high(self) -> int | float:
        """The highest number."""
        return (self.uniform or self.log or [])[1]

    @property
    def whole(self) -> bool:
        """Whether it has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)


Range = Annotated[
    Span | Annotated[list[Any], Field(min_length=1)],
    BY_SHAPE,
    Expect("a range {uniform: [low, high]} or {log: [low, high]}, or a list of choices"),
]


class TuneSection(Section):
    """`tune:`, a search for the best values of keys.

    Attributes:
        ranges: dotted key -> its range or choices; keys separated by commas have lists of values that go together.
        trials: number of trials; its mean under `privacy: account`.
        objective: a score on the validation records, and costs: `[accuracy, joules]`; by default accuracy, of real
            values `rmse`, of sequences `perplexity`.
        limits: cost of a whole run -> its maximum; a trial that exceeds it is stopped, and never best.
        privacy: `account` counts the search in epsilon, `ignore` leaves it out of every epsilon.
        stand_in: a `data:` section that trials use instead, so that the search reveals nothing.
    """

    ranges: Annotated[
        dict[Text, Range],
        Field(min_length=1),
        Expect("dotted keys with ranges, as `training.step_size: {log: [0.1, 10]}`"),
    ]
    trials: Annotated[int, Field(ge=2, le=100_000), Expect("a whole number from 2 to 100000")] = 30
    objective: Annotated[list[Measure], Expect("a list of measures, as [accuracy, joules]")] = Field(
        default=["accuracy"]
    )
    limits: Annotated[dict[BoundedCost, Positive], Expect("costs with limits, as {joules: 3}")] = Field(
        default_factory=dict
    )
    privacy: Annotated[Literal["account", "ignore"], Expect("account or ignore")] = "account"
    stand_in: DataSection | None = None

    @field_validator("objective", mode="after")
    @classmethod
    def _score_and_costs(cls, value: list[str]) -> list[str]:
        if len(SCORES.keys() & value) != 1 or len(set(value)) < len(value):
            raise ValueError(f"expected a score, as accuracy, and costs, each once, found [{', '.join(value)}]")
        return value

    @property
    def score(self) -> str:
        """The score that is an objective."""
        return next(each for each in self.objective if each in SCORES)

    @property
    def costs(self) -> tuple[str, ...]:
        """The costs that are objectives."""
        return tuple(each for each in self.objective if each not in SCORES)


Pair = Annotated[list[Count], Field(min_length=2, max_length=2)]
Size = Annotated[Count | Pair, BY_SHAPE, Expect("a number of edge servers, or a pair [edge servers, devices of each]")]


class StudySection(Section):
    """`study:`, networks whose accuracy `h2fdp study` reads from one curve; each combination is one.

    Attributes:
        trust: shares of the edge servers that are trusted, exact ones: the seed decides which. Null: as the network is.
        epsilon: targets; null: a quarter, half, once, twice and four times `privacy.epsilon`.
        edges: numbers of edge servers, or pairs `[edge servers, devices of each]`; null: as the network is.
        joules: the most that a run may spend; null: any number.
    """

    trust: Annotated[list[Probability] | None, Field(min_length=1), Expect("a list of numbers from 0 to 1")] = Field(
        default=[0.0, 0.25, 0.5, 0.75, 1.0]
    )
    epsilon: Annotated[list[Magnitude] | None, Field(min_length=1), Expect("a list of numbers above 0")] = None
    edges: Annotated[list[Size] | None, Field(min_length=1), Expect("a list of numbers of edge servers")] = None
    joules: Positive | None = None


_NAMES: dict[str, str] = values_of(Path(__file__).with_name("other_names.yaml").read_text(encoding="utf-8"))
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {other: ours for ours, others in _NAMES.items() for other in others.split()}
)


ObserverName = Annotated[
    str,
    Field(pattern=r"^(edge|peer|cloud|public|tier-([2-9]|[1-9][0-9]+))$"),
    Expect("one of edge, peer, cloud, public, or tier-2, tier-3, ... in deeper networks"),
]


@extended
class PrivacySection(Section):
    """The target and the calibration of the noises.

    Attributes:
        epsilon: the target: of the account of each target observer, or of the formula's claim.
        delta: the delta of every epsilon.
        protects: the unit of privacy: a `record` of a device, or all records of a `device`, whose uploads are clipped
            as a whole. Null: as the method does; most protect records.
        calibration: `accounted` makes the account of every target observer meet epsilon; `paper` takes the noise of the
            formula (H2FDP, Prop. 3.1), whose claim may not hold. Null is accounted where there is an account of the
            planned run, else paper.
        adjacency: which data sets are neighbours: one record becomes a null record, is missing, or becomes another.
        sensitivity: sensitivity of an upload: by the planned steps, as in the `paper`, or by those really accumulated
            (`tight`).
        c2: the constant of Prop. 3.1 that the paper leaves open; also v2, its twin for untrusted subnets in the bounds.
        accountant: accountant of the target and of `run.privacy`.
        target_observers: observers whose accounts meet epsilon.
        budget: observer -> epsilon; training stops before it is exceeded.
        noise_key: key of noise and batches: `system`, 128 random bits, new for each run; or `seed`: reproducible, and
            removable by an attacker who guesses the seed.
    """

    epsilon: Magnitude = 1.0
    delta: Delta = 1e-5
    protects: Unit | None = None
    calibration: Literal["paper", "accounted"] | None = None
    adjacency: Adjacency = "null-record"
    sensitivity: SensitivityRule = "paper"
    c2: Magnitude = 2**0.5
    accountant: AccountantName = "pld"
    target_observers: Annotated[list[ObserverName], Field(min_length=1), Expect("a list of observers")] = Field(
        default=["edge", "peer", "cloud", "public"]
    )
    budget: dict[ObserverName, Positive] = Field(default_factory=dict)
    noise_key: Annotated[Literal["system", "seed"], Expect("one of system, seed")] = "system"

    @property
    def noise_law(self) -> NoiseLaw | None:
        """The law of all noise, where the file states one for a node's noises together."""
        return None

    def alternatives(self, intervals: int) -> Iterable[PrivacySection]:
        """The section under other laws, in a row that may leave ever less noise where devices are absent."""
        return ()


class StragglerSection(Section):
    """Devices that finish part of their steps: a whole number, uniform between two fractions, at least one.

    Attributes:
        probability: probability that a device is slow in an interval.
        fraction: the smallest and the largest share of its steps that a slow device finishes.
    """

    probability: Probability = 0
    fraction: Annotated[
        list[Probability],
        Field(min_length=2, max_length=2),
        AfterValidator(ascending),
        Expect("a pair of numbers from 0 to 1"),
    ] = Field(default=[0.1, 0.9])


class OutageSection(Section):
    """Edge servers that are offline for a while.

    Attributes:
        probability: probability that an outage of an edge server begins in an interval.
        intervals: length of an outage.
    """

    probability: Probability = 0
    intervals: Count = 1


class FaultsSection(Section):
    """Faults of the simulated world; nothing fails by default.

    Attributes:
        device_dropout: probability that a device drops out of an interval: it sends nothing after that moment.
        straggler: devices that finish part of their steps.
        edge_outage: edge servers that are offline for a while.
    """

    device_dropout: Probability = 0
    straggler: StragglerSection = StragglerSection()
    edge_outage: OutageSection = OutageSection()

    def faults(self) -> Faults:
        """The faults as the cloud draws them."""
        least, most = self.straggler.fraction
        return Faults(
            self.device_dropout,
            self.straggler.probability,
            (least, most),
            self.edge_outage.probability,
            self.edge_outage.intervals,
        )


class TrackingSection(Section):
    """`tracking:`, which changes nothing about a run but who watches it.

    Attributes:
        tensorboard: events in the run directory; null: where TensorBoard is installed.
        mlflow: a server's or a folder's URI; null for none.
        wandb: a project of Weights & Biases; null for none. With WANDB_MODE=offline it writes to the run directory.
    """

    tensorboard: Flag | None = None
    mlflow: Text | None = None
    wandb: Text | None = None


_LONGEST = 10_000  # local steps of an interval that a schedule could choose
Seed = Annotated[int, Field(ge=0, le=2**31 - 1), Expect("a whole number of at least 0")]


@extended
class ExperimentFile(Section):
    """One experiment: what the user wrote, checked, every default filled in.

    Attributes:
        name: name of the experiment; run and sweep directories are named after it.
        topology: the network: a topology file's path, relative to this file, or its contents.
        data: the data set, and the records of each device.
        model: the model: a name, a mapping with options, or a model of your own.
        method: a name, or a mapping of the axes that may extend a name.
        training: how devices train and how often they aggregate.
        privacy: the target and the calibration of the noise.
        control: whether and how the cloud plans intervals by their cost.
        runtime: where the run computes; never changes its results.
        faults: failures in the simulated world.
        tracking: services that receive the metrics.
        seed: seed of the network, the data, the channel and the faults; with `privacy.noise_key: seed` also of noise
            and batches.
        sweep: dotted key -> list of values, the grid of `h2fdp sweep`; keys separated by commas vary together.
        tune: the search of `h2fdp tune`.
        study: the networks of `h2fdp study`.
    """

    other_names: ClassVar[Mapping[str, str]] = OTHER_NAMES

    name: Annotated[
        str, Field(pattern=r"^[\w.\-]{1,100}$"), Expect("a name of letters, digits, dots, dashes and underscores")
    ] = "experiment"
    topology: Annotated[str | dict[str, Any], Expect("a topology file's path or an inline topology")]
    data: Annotated[DataSection, Expect("a data set's name, as digits, or keys and values, as {name: mnist}")]
    model: ModelSection = Field(default_factory=lambda: models.default_model())
    method: MethodSection = MethodSection.model_validate(METHODS["h2fdp"].model_dump())
    training: TrainingSection = Field(default_factory=lambda: TrainingSection.model_validate({}))
    privacy: PrivacySection = PrivacySection()
    control: ControlSection = ControlSection()
    runtime: RuntimeSection = RuntimeSection()
    faults: FaultsSection = FaultsSection()
    tracking: TrackingSection = TrackingSection()
    seed: Seed = 1
    sweep: dict[Text, Annotated[list[Any], Expect("a list of values")]] = Field(default_factory=dict)
    tune: Annotated[TuneSection | None, Expect("keys and values")] = None
    study: Annotated[StudySection | None, Expect("keys and values")] = None

    @property
    def messages(self) -> MessageStages:
        """The stages of messages on their way."""
        return messages_of(vars(self))

    @property
    def calibration(self) -> str:
        """The calibration of the noises: as it is stated, or the default."""
        return self.privacy.calibration or default_calibration(self)

    @property
    def model_name(self) -> str:
        """The name of the model, whatever a user calls one of his own."""
        return "a model of your own" if isinstance(self.model, OwnPart) else self.model.name

    @property
    def largest_step_size(self) -> float:
        """The largest step size that the schedule can choose."""
        training = self.training
        return self.method.traits.largest_step_size(training.step_size, training.local_steps, training.intervals)

    @property
    def averages_locally(self) -> bool:
        """Whether any edge server averages between two models of the cloud."""
        steps = self.training.local_steps
        steps = _LONGEST if self.method.traits.varies_tau or steps is None else steps
        return self.method.topology != "star" and bool(self.training.aggregation_times.offsets(steps))


def default_calibration(experiment: ExperimentFile) -> Literal["paper", "accounted"]:
    """The calibration of noise: by an account of the planned run, where there is one and no noise is stated.

    Objective perturbation has no sound one, and raw measurements have none. Schedules that spend a number of local
    iterations, or that nothing but the account ends, keep to the target under the formula's noise too.
    """
    placement, schedule = experiment.method.privacy, experiment.method.traits
    known = placement.private and placement.accounted and not placement.noise_is_given
    kept = schedule.counts_iterations or schedule.ends_by_account
    return "accounted" if known and not kept and schedule.measures is None else "paper"


def horizon(experiment: ExperimentFile) -> Horizon:
    """K_g, T and where the controller starts; its run is counted in steps."""
    training = experiment.training
    assert training.local_steps is not None, "a controller counts in steps"
    return Horizon.planned(training.intervals, training.local_steps, training.step_size, experiment.control)
