"""The prelude of a run: statistics that are released before training, and the records as they leave them.

Each statistic is a run by itself of one interval, on the same network, under the same trust and the same law of noise:
devices take one step of length 1 on all their records along f instead of a gradient (`data.statistics`). So what it
releases, and to whom, what it costs, and what an aggregator may see of it follow from the same plan as those of any
interval. It is carried out in the process of the driver, whatever the placement of the run: its bits are the same
anywhere. Its rows stand in the ledger as those of the intervals 0, -1, ..., before the first.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from h2fdp.algorithms import ObjectiveOptions
from h2fdp.algorithms.fedavg import AverageOptions
from h2fdp.algorithms.registry import ONE_STEP
from h2fdp.config.fields import without_added
from h2fdp.costs.batteries import has_batteries
from h2fdp.data.columns import Columns
from h2fdp.data.federated import DeviceData, FederatedData, standardized
from h2fdp.data.records import Records, Scaling
from h2fdp.data.statistics import Bounds, Mean, Moments, Standardizing, Statistic, statistic_of
from h2fdp.data.targets import CLASS, Target
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.models.registry import Logistic, PublicFeatures
from h2fdp.network import Topology
from h2fdp.privacy import Accounts, Release
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.privacy.vectors import GAUSSIAN
from h2fdp.protocol import InProcessNodes, IntervalPlan
from h2fdp.protocol.cloud import Cloud
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.run.setup import RunInputs, RunSetup, StatisticRun
from h2fdp.runtime import RuntimeSection, run_interval, start_hosts
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.training.losses import Loss, OwnScore


class StatisticRows(ObjectiveOptions):
    """Rows of a statistic instead of gradients: the score is linear in the parameters, and its slope is the row."""

    loss: ClassVar[Loss] = OwnScore()
    name: Literal["statistic"] = "statistic"

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """A step moves by a sum of rows that were cut to their norm."""
        return True


def one_interval(config: ExperimentFile, statistic: Statistic, shape: tuple[int, ...]) -> ExperimentFile:
    """The experiment of one interval that releases a statistic, and nothing else."""
    placement = config.method.privacy
    norm = statistic.norm(shape) if placement.private else None
    training = config.training.complete(
        {
            **ONE_STEP,
            "aggregate_every": 1,
            "aggregations_per_interval": None,
            "step_decay": "none",
            "warm_up": 0,
            "budget_decay": "none",
            "participation": 1.0,
            "clip_norm": norm,
            "clip_scope": "batch" if placement.clips == "update" else "record",
            "until": None,
        }
    )
    axes = {"objective": StatisticRows(), "server": AverageOptions(), "schedule": FixedOptions(), "upcycle": None}
    method, privacy = config.method.model_copy(update=axes), without_added(config.privacy)
    return without_added(config).model_copy(update={"training": training, "method": method, "privacy": privacy})


def with_label(data: DeviceData) -> DeviceData:
    """Records whose last column is their label where that is a real value of no known scale; others as they are."""
    if not (isinstance(data, FederatedData) and data.target.open):
        return data
    joined = data.of_records(lambda each: Records(np.column_stack([each.x, each.y]), each.y))
    known = data.columns or Columns(("",) * data.shape[0], ("open",) * data.shape[0])
    return replace(joined, columns=Columns((*known.names, data.target.column), (*known.kinds, "open")))


def of_statistic(data: DeviceData, columns: NDArray[np.bool_] | None = None) -> DeviceData:
    """Records as a statistic of these columns sees them, all of one class."""
    assert isinstance(data, FederatedData), "records that are drawn have no prelude"

    def seen(each: Records) -> Records:
        x = each.x if columns is None else each.x[:, columns]
        return Records(x.astype(np.float32, copy=False), np.zeros(len(each), np.int64))

    return replace(data.of_records(seen), classes=1, target=CLASS)


def plan_of(part: RunSetup) -> tuple[Cloud, IntervalPlan]:
    """The cloud of a statistic's run and the plan of its interval."""
    return part.cloud(InProcessNodes({})), part.first_plan


def add_planned(run: RunSetup, accounts: Accounts) -> Accounts:
    """These accounts, with all that the prelude of a run releases."""
    for part in run.statistics:
        cloud, plan = plan_of(part)
        accounts.add_alike(cloud.alike_releases(plan))
    return accounts


def noises_before(run: RunSetup, alone: float) -> tuple[float, ...]:
    """Factors of the noise of each statistic, in units of the factor that the run's own noise will have.

    Of a composition of Gaussians the squares of mu add up (Dong et al. 2022, Corollary 3.3), so that a statistic whose
    release has the share s of the squared mu of (epsilon, delta) leaves 1 - s to the rest. Where the rest is no plain
    Gaussian the share is about that; the account of all together is exact in any case.

    Args:
        alone: the factor at which the run meets its target without a prelude.

    Raises:
        UserError: faults keep all of a statistic's uploads.
    """
    privacy = run.config.privacy
    whole = distance_of(float(run.targets.distinct[-1]), privacy.delta)
    left = 1 - sum(each.statistic.share for each in run.prelude)
    factors = []
    for stage, part in zip(run.prelude, run.statistics, strict=True):
        cloud, plan = plan_of(part)
        accounts = run.empty_accounts()
        accounts.add_alike(cloud.alike_releases(plan))
        squares = [
            sum(count / kind.noise_multiplier**2 for kind, count in each.composition.items())
            for observer in run.target_observers
            for each in accounts.classes(observer)
        ]
        if not squares:
            text = f"no upload of {stage.statistic.name} arrives in the one interval that releases it"
            raise UserError(f"{text}; expected less probable faults, another seed, or data.prelude: []", key="faults")
        own = math.sqrt(max(squares) / stage.statistic.share) / whole
        factors.append(own / (alone / math.sqrt(left)))
    return tuple(factors)


def distance_of(epsilon: float, delta: float) -> float:
    """mu: the distance of two Gaussians of deviation 1 whose epsilon at this delta is that.

    >>> round(gaussian_epsilon(distance_of(2.0, 1e-5), 1e-5), 6)
    2.0
    """
    low, high = 1e-12, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gaussian_epsilon(middle, delta) < epsilon else (low, middle)
    return low


def statistics_of(config: ExperimentFile, data: DeviceData, topology: Topology) -> tuple[Statistic, ...]:
    """The statistics that a run releases before its first interval: as stated, or those that a table's columns need.

    Where test records are devices' own, no public record says how large inputs are.

    Raises:
        UserError: a stated prelude that this run cannot have.
    """
    stated = getattr(config.data, "prelude", "auto")
    why = why_none(config, data, topology)
    if stated != "auto":
        if stated and why:
            raise UserError(f"there is no prelude {why}; expected []", key="data.prelude")
        return _checked(tuple(map(statistic_of, stated)), config, data)
    if isinstance(config.model, PublicFeatures) and config.model.head == "centred":
        if why:
            raise UserError(f"there is no prelude {why}, and it releases the mean; expected softmax", key="model.head")
        return (Mean(),)
    standardizes = isinstance(config.model, Logistic) and config.model.standardize
    if why or not standardizes or data.test_owners is None:
        return ()
    return tuple(each for each in (Bounds(), Moments()) if _sees(each, data))


def _checked(released: tuple[Statistic, ...], config: ExperimentFile, data: DeviceData) -> tuple[Statistic, ...]:
    share = sum(each.share for each in released)
    if share >= 1 and config.method.privacy.private:
        text = f"these have {share:.0%} of the privacy budget together; expected less than all of it"
        raise UserError(text, key="data.prelude")
    if idle := [each.name for each in released if not _sees(each, data)]:
        text = f"no column is left to {idle[0]}, as all have bounds that are public"
        raise UserError(f"{text}; expected a list without {idle[0]}", key="data.prelude")
    return released


def columns_of(statistic: Statistic, data: DeviceData) -> NDArray[np.bool_] | None:
    """(features,) of a table that a statistic is of, for bounds those without public ones, for moments all numbers;
    None where it is of all inputs."""
    if (columns := with_label(data).columns) is None:
        return None
    return (
        columns.open if isinstance(statistic, Bounds) else columns.numbers if isinstance(statistic, Moments) else None
    )


def _sees(statistic: Statistic, data: DeviceData) -> bool:
    columns = columns_of(statistic, data)
    return columns is None or bool(columns.any())


def in_words(run: RunInputs) -> list[str]:
    """A line on what is released before training; none where nothing is, unless columns of a table have no scale."""
    model, columns = run.config.model, run.data.columns
    if run.prelude:
        names = " and ".join(each.statistic.name for each in run.prelude)
        share = sum(each.statistic.share for each in run.prelude)
        of_budget = f" ({share:.0%} of the privacy budget)" if run.placement.private else ""
        return [f"released before training: {names} of inputs{of_budget}"]
    if isinstance(model, Logistic) and model.standardize and run.standardizing is None:
        named = textwrap.shorten(", ".join((columns and columns.unbounded) or ("all columns",)), 80, placeholder=" ...")
        return ["not standardised, as test records are devices'; this needs ranges of", named]
    return []


def what_ranges_gain(run: RunSetup) -> list[str]:
    """Words about the budget and joules that public ranges of columns would save."""
    found, columns = [], run.data.columns
    for each, part in zip(run.prelude, run.statistics, strict=True):
        if isinstance(each.statistic, Bounds):
            joules = part.bill.columns(part.first_plan)["energy_j"]
            names = filter(None, [*(columns.unbounded if columns else ()), run.data.target.column])
            stated = textwrap.shorten(", ".join(names), 60, placeholder=" ...")
            found.append(f"{stated}: stated, {each.statistic.share:.0%} of the budget and {joules:.3g} J are saved")
    return found


def what_noise_hides(run: RunSetup) -> list[str]:
    """Lines on statistics that the noise of this run leaves nothing of: records are few, or the budget is small."""
    hidden = ((each.statistic.name, each.statistic.hides(deviation)) for each, deviation in _deviations(run))
    return [f"{name}: {text}" for name, text in hidden if text]


def _deviations(run: RunSetup) -> Iterator[tuple[StatisticRun, float]]:
    """Statistics with the deviation of the noise on their averages."""
    for each, part in zip(run.prelude, run.statistics, strict=True):
        _, plan = plan_of(part)
        variance, _ = noise_and_gradients(plan, {facts.name: facts for facts in part.blueprint.facts}, part.noise)
        yield each, math.sqrt(variance)


def why_none(config: ExperimentFile, data: DeviceData, topology: Topology) -> str:
    """Why a run can have no prelude; empty where it can."""
    placement, privacy, combination = config.method.privacy, config.privacy, config.method.combination
    apart = any(combination.at(sender).visible == "each" for sender in ("device", "edge"))
    unscaled = placement.clips in ("model", "nothing") or placement.input_norm is not None
    unscaled |= placement.noise_law is not GAUSSIAN or placement.noise_is_given or not placement.accounted
    unscaled |= placement.states_divisor
    replacing = topology.replacing
    reasons = {
        "beside public records that a first model is trained on (data.public)": data.public is not None,
        "of records that are drawn as they are trained on": not isinstance(data, FederatedData),
        "where nodes see each upload by itself (method.aggregation)": apart,
        "where devices move": topology.moving is not None,
        "under batteries": has_batteries(topology),
        f"among {replacing and replacing.key}": replacing is not None,
        f"under privacy {placement.name} with these options": placement.private and unscaled,
        "by the paper's formulas (privacy.calibration)": placement.private and privacy.calibration == "paper",
        f"under schedule {config.method.schedule.name}": config.control.enabled
        or not isinstance(config.method.schedule, FixedOptions),
    }
    return next((why for why, holds in reasons.items() if holds), "")


def standardizing_after(run: RunSetup, averages: Sequence[Tensor]) -> Standardizing | None:
    """The standardising of records once the statistics of a run have these averages (p,), of as many as there are."""
    found = run.standardizing
    for (each, deviation), part, average in zip(_deviations(run), run.statistics, averages, strict=False):
        used = each.statistic.use(average.double().numpy(), deviation, part.data.shape)
        used = used if each.columns is None else used.within(each.columns)
        found = _as_seen(with_label(run.data if run.image_shape else run.given)) if found is None else found
        found = used if found is None else found.then(used)
    return found


def apart_after(run: RunSetup, averages: Sequence[Tensor]) -> tuple[Standardizing | None, Target]:
    """The standardising of inputs once the statistics have these averages (p,), and the scale of labels then."""
    found, target = standardizing_after(run, averages), run.data.target
    if found is None or not target.open or len(averages) < len(run.prelude):
        return found, target
    inputs, (shift, scale, low, high) = found.apart()
    return inputs, target.scaled(shift, scale, max(abs(low), abs(high)))


def _as_seen(data: DeviceData) -> Standardizing | None:
    """The map from stored inputs to those that models and statistics see; None where these are equal."""
    if data.scaling == Scaling():
        return None
    scale, shift = (
        np.broadcast_to(each, data.shape).astype(np.float64) for each in (data.scaling.scale, data.scaling.shift)
    )
    return Standardizing(-shift / scale, 1 / scale, low=-np.inf, high=np.inf)


def after(run: RunSetup, averages: Sequence[Tensor]) -> RunSetup:
    """The run on the records that its statistics leave."""
    found, target = apart_after(run, averages)
    if not run.prelude or found is None:
        return run
    data = standardized(run.data if run.image_shape else run.given, found)
    if isinstance(data, FederatedData):
        data = replace(data, target=target)
    return replace(run, data=data, standardizing=found, blueprint=replace(run.blueprint, data=data))


Announce = Callable[[RunSetup, IntervalPlan, list[Release]], None]
Arrived = Callable[[int, Tensor], None]


def with_prelude(
    run: RunSetup, averages: list[Tensor], announce: Announce | None = None, arrived: Arrived | None = None
) -> RunSetup:
    """The run on the records that its prelude leaves; statistics that are still missing are released.

    Args:
        averages: (p,) of each statistic that was released before; the others are added.
        announce: is called with the run of each statistic before anything of it leaves a device.
        arrived: is called with the number of each statistic and its average, before anything is made of that.
    """
    for number, part in enumerate(run.statistics):
        if number < len(averages):
            continue
        seen, found = with_label(run.data if run.image_shape else run.given), standardizing_after(run, averages)
        seen = seen if found is None else standardized(seen, found)
        data = of_statistic(seen, run.prelude[number].columns)
        part = replace(part, data=data, blueprint=replace(part.blueprint, data=data))
        cloud, plan = plan_of(part)
        if announce is not None:
            rows = [replace(each, interval=number - len(run.prelude) + 1) for each in cloud.releases(plan)]
            announce(part, plan, rows)
        average = _average(part, plan)
        if arrived is not None:
            arrived(number, average)
        averages.append(average)
    return after(run, averages)


def _average(part: RunSetup, plan: IntervalPlan) -> Tensor:
    """(p,) of a statistic's rows, as it arrives at the cloud."""
    inline = RuntimeSection.model_validate({"backend": "inline"})
    with start_hosts(part.blueprint, inline) as edges:
        cloud = part.cloud(edges)
        run_interval(edges, cloud, plan)
    return cloud.model.cpu()
