"""From a checked experiment to a complete `RunSetup`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import nn

from h2fdp.algorithms import aggregation_of, objective_of
from h2fdp.algorithms.fedprox import ProximalOptions
from h2fdp.config.own_parts import OwnPart
from h2fdp.data import DataRequest, DeviceData, Pool, load, within_unit_ball
from h2fdp.experiment.rules import aggregate_every, check_tiers
from h2fdp.experiment.sections import ExperimentFile, horizon
from h2fdp.models import ParameterLayout, build
from h2fdp.privacy import Mechanism, MechanismContext, NoisePlacement, Tier, noise_placement_of
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.protocol.tree_plan import tier_aggregations
from h2fdp.radio import NetworkCosts
from h2fdp.run.own_data import DataSource, named_data
from h2fdp.run.planned_privacy import calibrated
from h2fdp.run.setup import OwnParts, RunSetup, interval_steps
from h2fdp.runtime import Blueprint
from h2fdp.runtime.blueprint import EstimateSettings
from h2fdp.runtime.local_hosts import training_device
from h2fdp.runtime.step_time import fastest_engine
from h2fdp.schedules import AggregationTimes, Horizon
from h2fdp.schedules.registry import chosen
from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.training import Clipping, chosen_engine
from h2fdp.training.clipping import ClipScope
from h2fdp.training.descent import gain
from h2fdp.training.losses import loss_of

ModuleSource = Callable[[], nn.Module]


def prepare(
    config: ExperimentFile,
    topology: Topology,
    *,
    data_root: Path | None = None,
    data_source: DataSource | None = None,
    own: OwnParts | None = None,
) -> RunSetup:
    """Load the data, build the model, work out the noise and calibrate it.

    Data are spread over the topology as it was drawn, also for a star, so that methods compare on equal devices.

    Args:
        topology: as drawn for the experiment's seed.
        data_source: a user's own data, instead of those that the configuration names.
        own: how these are recorded.

    Raises:
        UserError: local aggregations of tiers that the network does not have; data that cannot be read; a model that
            does not fit them, or the privacy; no noise that meets the target.
    """
    check_tiers(config, topology)
    streams, training, method = Streams(config.seed), config.training, config.method
    star = method.topology == "star"
    network = topology.as_star() if star else topology
    placement = noise_placement_of(method.privacy)
    data = (data_source or configured_data(config))(topology, streams, data_root)
    if placement.input_norm is not None:
        data = within_unit_ball(data, placement.input_norm)
    module = _module(config, data, streams)
    initial = module()
    vector = ParameterLayout(initial).to_vector(initial)
    rates = _sampling_rates(config, data)
    device, engine = training_device(config.runtime), config.runtime.engine
    norm = None if placement.clips == "update" else training.clip_norm

    blueprint = Blueprint(
        streams=streams,
        topology=network,
        data=data,
        module=module,
        engine=chosen_engine(initial, device) if engine == "auto" or engine == "fastest" else engine,
        objective=objective_of(method.objective),
        clipping=None if norm is None else _clipping(norm, training.clip_scope, placement),
        # An order of all records amplifies no more than fixed batches do.
        sampling="poisson" if training.sampling == "poisson" else "fixed",
        rates=rates,
        noise_placement=placement,
        star=star,
        measuring=_measuring(config),
        device=device,
        momentum=training.momentum,
        epochs=training.local_epochs,
        probes=chosen(method.schedule).measures == "secants",
        clip_norm=training.clip_norm,
        loss=loss_of(training.loss, data.classes),
        edge_sees=aggregation_of(method.aggregation).sees,
    )
    if engine == "fastest":
        blueprint = replace(blueprint, engine=fastest_engine(blueprint, vector))
    aggregation_times = (
        AggregationTimes()
        if star
        else AggregationTimes(aggregate_every(config, topology), training.aggregations_per_interval)
    )
    local_steps = interval_steps(training, data.sizes, rates)
    noise = None
    if placement.private:
        noise = placement.mechanism(
            _noise_setting(config, network, aggregation_times, local_steps, data.sizes, rates, initial)
        )
    return calibrated(
        RunSetup(
            config=config,
            drawn=topology,
            topology=network,
            data=data,
            blueprint=blueprint,
            initial=vector,
            aggregation_times=aggregation_times,
            local_steps=local_steps,
            costs=NetworkCosts(network, vector.numel(), streams),
            world=streams,
            noise=noise,
            iterations=_iterations(config, noise),
            own=own or OwnParts(),
        )
    ).keyed()


def _clipping(norm: float, scope: ClipScope, placement: NoisePlacement) -> Clipping:
    return Clipping(norm, scope, mean_too=scope == "record" and placement.accumulates)


def configured_data(config: ExperimentFile, pools: Callable[[DataRequest], Pool] = DataRequest.read) -> DataSource:
    """The data of a configuration; `pools` see `load`."""
    section = config.data
    if isinstance(section, OwnPart):
        return named_data(section)

    def source(network: Topology, streams: Streams, root: Path | None) -> DeviceData:
        groups = [(subnet.name, subnet.size) for subnet in network.subnets]
        return load(section, network.devices, streams, root, groups=groups, pools=pools)

    return source


def _module(config: ExperimentFile, data: DeviceData, streams: Streams) -> ModuleSource:
    """What builds the model, under the initial parameters that the seed draws."""
    model, of_data, key = config.model, (data.shape, data.classes), streams.key("cloud", "model")
    if isinstance(model, OwnPart):
        return partial(build, model.function, *of_data, None, key)
    return partial(build, model.name, *of_data, model.options(), key)


def _measuring(config: ExperimentFile) -> EstimateSettings | None:
    """What the nodes measure for the controller, if anything: beta, sigma and zeta_c up to stated ranges."""
    control, training = config.control, config.training
    measured = chosen(config.method.schedule).measures
    if measured != "gradients" or control.estimates == "released":
        return None
    assert training.clip_norm is not None
    return EstimateSettings(
        (horizon(config).largest_beta(control), 2 * training.clip_norm, 2 * training.clip_norm),
        leaks=control.estimates == "oracle",
    )


def _sampling_rates(config: ExperimentFile, data: DeviceData) -> np.ndarray:
    """(I,) q_i = batch_size / D_i, set before the run: it does not change with a neighbouring data set."""
    training = config.training
    if training.sampling_rate is not None:
        rates = np.full(len(data.sizes), training.sampling_rate)
    else:
        assert training.batch_size is not None
        rates = np.minimum(1.0, training.batch_size / data.sizes)
    if training.sampling == "poisson":
        return rates
    # A batch of fixed size holds whole records: the rate is the one that is really drawn.
    return np.asarray(np.clip(np.rint(rates * data.sizes), 1, data.sizes) / data.sizes)


def _noise_setting(
    config: ExperimentFile,
    topology: Topology,
    aggregation_times: AggregationTimes,
    local_steps: int,
    records: np.ndarray,
    rates: np.ndarray,
    module: nn.Module,
) -> MechanismContext:
    """What the noise is worked out from, with the numbers of releases that are planned.

    Where a schedule chooses tau that is K_g intervals with the most local aggregations that any tau has, so that the
    claim covers whatever it does.
    """
    training, privacy, schedule = config.training, config.privacy, chosen(config.method.schedule)
    objective = config.method.objective
    planned = Horizon.planned(training.intervals, local_steps, training.step_size, config.control)
    most_local = max(len(aggregation_times.offsets(length)) for length in schedule.lengths(planned))
    return MechanismContext(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        c2=privacy.c2,
        sensitivity=privacy.sensitivity,
        clip_norm=training.clip_norm,
        intervals=training.intervals,
        local_aggregations=most_local * training.intervals,
        local_steps=schedule.steps_to_cover(planned),
        tiers=_most_of_tiers(aggregation_times, topology, schedule.lengths(planned), training.intervals),
        records=records,
        sampling_rates=rates,
        sampling="poisson" if training.sampling == "poisson" else "fixed",
        gain=partial(gain, training.momentum),
        by_record=training.clip_scope == "record",
        own_objective=isinstance(objective, OwnPart),
        step_size=schedule.largest_step_size(training.step_size, local_steps, training.intervals),
        # In epochs a record is drawn exactly once in each, not by chance at every step.
        gradients_attained=not training.momentum and training.local_epochs is None,
        mu=objective.mu if isinstance(objective, ProximalOptions) else 0.0,
        biased=any(parameter.ndim == 1 for parameter in module.parameters()),
    )


def _most_of_tiers(
    aggregation_times: AggregationTimes, topology: Topology, lengths: Iterable[int], intervals: int
) -> dict[Tier, int]:
    """The most local aggregations that each tier makes in a run of intervals of these lengths."""
    most: dict[Tier, int] = {}
    for length in lengths:
        for tier, count in tier_aggregations(aggregation_times, topology, length).items():
            most[tier] = max(most.get(tier, 0), count * intervals)
    return most


def _iterations(config: ExperimentFile, noise: Mechanism | None) -> int | None:
    """R_c under noise that is given; noise that is calibrated says so afterwards."""
    privacy = config.privacy
    if noise is None or privacy.calibration != "paper":
        return None
    return noise.iterations(privacy.epsilon, ACCOUNTANTS[privacy.accountant])
