"""What determines a run before its noise is worked out, and the noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from h2fdp.costs import NetworkCosts
from h2fdp.data.federated import DeviceData, Standardizing
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.models.registry import PublicFeatures
from h2fdp.network import Topology
from h2fdp.privacy import Accounts, BudgetFilter, Mechanism, NoisePlacement, Observer, observers
from h2fdp.privacy.places import UNTARGETED
from h2fdp.privacy.statement import verdict_of
from h2fdp.protocol.arrivals import Faults
from h2fdp.runtime import Blueprint
from h2fdp.schedules import AggregationTimes, ScheduleTraits
from h2fdp.schedules.own import CheckedSchedule
from h2fdp.schedules.registry import chosen
from h2fdp.streams import Streams

FILTERED = (
    "method.schedule: the schedule may depend on earlier releases, so the guarantee is that of a privacy filter, by "
    "rdp, and other accountants are indicative. An own schedule that does not depend on them needs less noise: set "
    "reads_releases = False in its class"
)


def adapts(config: ExperimentFile) -> bool:
    """Whether decisions depend on what a run releases.

    An own schedule may read releases that it is not handed. With `calibration: accounted` its run is held to its
    forecast (`Reserve`), which is sound whatever it reads; without, nothing would hold it, so it has to say.
    """
    traits = chosen(config.method.schedule)
    reads = traits.reads_releases
    if isinstance(traits, CheckedSchedule) and config.privacy.calibration != "accounted":
        reads = traits.states_reading is not False
    return reads and not traits.foreseen


def accountant_of(config: ExperimentFile) -> str:
    """Of the account that a run is held to: `privacy.accountant`, or `rdp` where a privacy filter keeps it to its
    target, or to budgets in place of one."""
    filtered = adapts(config) or (config.privacy.calibration == "paper" and config.privacy.budget)
    return "rdp" if filtered else config.privacy.accountant


@dataclass(frozen=True, kw_only=True, eq=False)
class RunInputs:
    """Everything that determines a run but its noise, which `calibrate` works out.

    Attributes:
        drawn: the topology as it was drawn for the seed.
        topology: the network that is simulated: a star of all devices where the method asks for one.
        initial: (M,) w(0).
        local_steps: tau_0; where devices train in epochs, the steps of the one that takes most.
        costs: of messages on the network's links.
        faults: how often devices and edge servers fail.
        world: the streams of the simulated world (its faults; `costs` draws its fading from them). They stay the same
            when a resumed run draws its own noise, batches and participants afresh.
        warm_start: SHA-256 of the file that w(0) is from; None where it is random.
        given: the data before they became features or were standardised; `data` itself where they are as they were.
        standardizing: how inputs were standardised; None where they are as they were given.
        chosen: what was chosen for keys that the file leaves open, in words (`run.recipe`).
    """

    config: ExperimentFile
    drawn: Topology
    topology: Topology
    data: DeviceData
    blueprint: Blueprint
    initial: Tensor
    aggregation_times: AggregationTimes
    local_steps: int
    costs: NetworkCosts
    faults: Faults
    world: Streams
    given: DeviceData
    warm_start: str | None = None
    standardizing: Standardizing | None = None
    chosen: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Of the images whose public features the data are; None where they are no features."""
        return self.given.shape if isinstance(self.config.model, PublicFeatures) else None

    @property
    def placement(self) -> NoisePlacement:
        """Where noise is added."""
        return self.blueprint.noise_placement

    @property
    def adapts(self) -> bool:
        """Whether decisions depend on what the run releases, so that its forecast bounds nothing."""
        return adapts(self.config)

    @property
    def accountant(self) -> str:
        """By which a target is met, see `accountant_of`."""
        return accountant_of(self.config)

    @property
    def sizes(self) -> dict[str, int]:
        """Edge server -> number of its devices."""
        return {subnet.name: subnet.size for subnet in self.topology.subnets}

    @property
    def observers(self) -> tuple[Observer, ...]:
        """All observers in the network, from the edge servers up."""
        return observers(self.topology.depth)

    @property
    def target_observers(self) -> tuple[Observer, ...]:
        """Those whose accounts have to meet a calibration's target; by default all observers of the network."""
        stated = tuple(self.config.privacy.target_observers)
        return self.observers if stated == observers() else stated

    @property
    def target(self) -> float | None:
        """The accounted epsilon that the noise was calibrated to; None where a formula was."""
        return self.config.privacy.epsilon if self.config.privacy.calibration == "accounted" else None

    def verdict(self, observer: Observer, claimed: float | None, accounted: float) -> str:
        """The word for what an observer holds: about the target where there is one, otherwise about the claim."""
        if self.target is None:
            return verdict_of(claimed, accounted)
        if observer not in self.target_observers:
            return UNTARGETED
        return verdict_of(self.target, accounted)

    def empty_accounts(self) -> Accounts:
        """Accounts of the run's network with nothing released."""
        return Accounts(self.sizes, self.observers)

    def without_faults(self) -> Self:
        """The same run in a world where nothing fails: what was planned."""
        return replace(self, faults=Faults()) if self.faults.possible else self

    def drawing(self, attempt: str) -> Self:
        """The same run with noise, batches and participants drawn under another name; see `Streams.attempt`."""
        streams = replace(self.blueprint.streams, attempt=attempt)
        return replace(self, blueprint=replace(self.blueprint, streams=streams))

    @property
    def traits(self) -> ScheduleTraits:
        """What is known of the schedule before the run."""
        return chosen(self.config.method.schedule)


@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """The noise of a run, calibrated.

    Attributes:
        noise: None where the method adds none.
        iterations: R_c, the local iterations that the target allows each device; None where it sets no limit.
        factor: by which `calibration: accounted` multiplied the noises.
        uncalibrated: the noise before it was calibrated to an account. What a controller weighs: its decisions are then
            the same, to the bit, in the forecast that the noise is calibrated to and in the run.
        reserve: what a controller is held to, or a user's own schedule that reads no releases: they decide what they
            like, whatever was foreseen. None elsewhere; all other schedules make their forecast true.
        watched: the filter that keeps a run to the target whose decisions depend on what it releases; None elsewhere.
    """

    noise: Mechanism | None = None
    iterations: int | None = None
    factor: float = 1.0
    uncalibrated: Mechanism | None = None
    watched: BudgetFilter | None = None
    reserve: Accounts | None = None
