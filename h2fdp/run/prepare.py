"""From a checked experiment to a complete `RunSetup`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.algorithms import objective_of
from h2fdp.config.own_parts import FAILURES, OwnPart, Words
from h2fdp.data import DataRequest, DeviceData, Pool, from_function, load, within_unit_ball
from h2fdp.data.public_features import with_features
from h2fdp.data.standardized import Standardizing
from h2fdp.errors import UserError
from h2fdp.experiment.network import aggregation_times, check_adaptive_clipping, check_secure_sums, check_transmit_power
from h2fdp.experiment.sections import ExperimentFile, horizon
from h2fdp.experiment.training_section import TrainingSection
from h2fdp.models import ParameterLayout
from h2fdp.models.construct import builder_of
from h2fdp.models.parameters import load_parameters
from h2fdp.models.registry import Logistic, PublicFeatures
from h2fdp.privacy import Accounts, NoisePlacement, noise_placement_of
from h2fdp.radio import NetworkCosts
from h2fdp.run import recipe
from h2fdp.run.calibration import with_noise
from h2fdp.run.engine_choice import engine_of_run, fastest_engine
from h2fdp.run.forecast import planned_accounts, rough_accounts
from h2fdp.run.inputs import OwnParts
from h2fdp.run.public_training import trained_on_public
from h2fdp.run.setup import RunSetup
from h2fdp.run.trial import try_own_parts
from h2fdp.run.trust_choice import better, without_trust
from h2fdp.runtime import Blueprint
from h2fdp.runtime.blueprint import EstimateSettings
from h2fdp.runtime.local_hosts import training_device
from h2fdp.schedules.registry import chosen
from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.training import Clipping
from h2fdp.training.batches import Sampling, padded_width
from h2fdp.training.clipping import GAMMA
from h2fdp.training.engine import TrainingJob
from h2fdp.training.losses import loss_of

DataSource = Callable[[Topology, Streams, Path | None], DeviceData]
DeviceFunction = Callable[[str], tuple[Any, Any]]


def prepare(
    config: ExperimentFile,
    topology: Topology,
    *,
    data_root: str | Path | None = None,
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
            does not fit them, or the privacy; no noise that meets the target; a user's own part that fails, or gives
            what it may not.
    """
    data = (data_source or configured_data(config))(
        topology, Streams(config.seed), None if data_root is None else Path(data_root)
    )
    if (relying_on_nobody := without_trust(config)) is not None:
        relying = config.model_copy(update={"control": config.control.model_copy(update={"trust": "used"})})
        loaded = partial(_same_data, data)
        ways = (relying, relying_on_nobody)
        return better([partial(prepare, each, topology, data_source=loaded, own=own) for each in ways])
    own = own or OwnParts()
    config, shape = recipe.with_model(config, data), None
    if isinstance(config.model, PublicFeatures):
        shape, data = data.shape, with_features(data, config.model.size)
    standardizing = None
    if isinstance(config.model, Logistic) and config.model.standardize:
        standardizing = Standardizing.of(data)
        data = data if standardizing is None else standardizing.applied(data)
    placement = noise_placement_of(config.method.privacy)
    if placement.input_norm is not None:
        data = within_unit_ball(data, placement.input_norm)

    def noisy(complete: ExperimentFile) -> RunSetup:
        runtime = complete.runtime.model_copy(update={"engine": "loop"})  # nothing is trained
        return with_noise(
            _assembled(complete.model_copy(update={"runtime": runtime}), topology, data, own), rough_accounts
        )

    module = builder_of(config.model, data.shape, data.classes, Streams(config.seed).key("cloud", "model"))
    complete = recipe.completed(config, data, module, noisy, len(topology.subnets))
    setup = with_noise(_assembled(complete.config, topology, data, own)).keyed()
    setup = replace(setup, image_shape=shape, standardizing=standardizing, chosen=complete.lines)
    try_own_parts(setup)
    return setup


def with_settings(
    setup: RunSetup, config: ExperimentFile, foreseen: Callable[[RunSetup], Accounts] = planned_accounts
) -> RunSetup:
    """The same devices, records and model under another method, training or target; without a noise key.

    Args:
        foreseen: the accounts that are calibrated, see `with_noise`.

    Raises:
        UserError: see `prepare`.
    """
    if not (config.runtime.engine == "auto" and setup.blueprint.engine == "compiled"):  # other settings may not compile
        runtime = config.runtime.model_copy(update={"engine": setup.blueprint.engine})
        config = config.model_copy(update={"runtime": runtime})
    other = with_noise(_assembled(config, setup.drawn, setup.data, setup.own, setup), foreseen)
    return replace(other, image_shape=setup.image_shape, standardizing=setup.standardizing)


def _assembled(
    config: ExperimentFile, topology: Topology, data: DeviceData, own: OwnParts, begun: RunSetup | None = None
) -> RunSetup:
    """All but the noise, of data that lie in the unit ball where the placement asks for it.

    Args:
        begun: a run whose first model this one shares.
    """
    times = aggregation_times(config, topology)
    check_secure_sums(config, topology)
    streams, training, method = Streams(config.seed), config.training, config.method
    star, placement = method.topology == "star", noise_placement_of(method.privacy)
    network = topology.as_star() if star else topology
    measuring = _measuring(config)
    module = builder_of(config.model, data.shape, data.classes, streams.key("cloud", "model"))
    initial = module()
    warm_start = None if begun is None else begun.warm_start
    if begun is None and not isinstance(config.model, OwnPart) and config.model.start is not None:
        warm_start = load_parameters(initial, Path(config.model.start))
    vector = ParameterLayout(initial).to_vector(initial) if begun is None else begun.initial
    if begun is None and training.public is not None:
        vector = trained_on_public(
            vector, initial, data, training.public, loss_of(training.loss, data.classes), streams
        )
    rates = training.sampling_rates(data.sizes)
    local_steps, faults = training.interval_steps(data.sizes, rates), config.faults.faults()
    device, engine = training_device(config.runtime), config.runtime.engine
    objective, loss = objective_of(method.objective), loss_of(training.loss, data.classes)
    norm = None if placement.clips == "update" else training.first_clip_norm
    check_adaptive_clipping(config, topology)
    check_transmit_power(config, topology)
    clipping = None if norm is None else _clipping(norm, training, placement)
    # An order of all records amplifies no more than fixed batches do.
    sampling: Sampling = "poisson" if training.sampling == "poisson" else "fixed"
    products = training.records_of_interval(data.sizes, rates) * vector.numel()
    width = padded_width(sampling, rates * data.sizes)
    job = TrainingJob(objective, loss, clipping, data.shape, products, width, training.precision)

    blueprint = Blueprint(
        streams=streams,
        topology=network,
        data=data,
        module=module,
        engine=engine_of_run(engine, initial, device, job),
        objective=objective,
        clipping=clipping,
        sampling=sampling,
        rates=rates,
        noise_placement=placement,
        star=star,
        measuring=measuring,
        device=device,
        momentum=training.momentum,
        epochs=training.local_epochs,
        probes=chosen(method.schedule).measures == "secants",
        clip_norm=training.first_clip_norm,
        loss=loss,
        gamma=GAMMA if placement.clips == "update" and training.clipping == "normalized" else None,
        adaptive=training.adaptive,
        precision=training.precision,
    )
    if engine == "fastest":
        blueprint = replace(blueprint, engine=fastest_engine(blueprint, vector))
    return RunSetup(
        config=config,
        drawn=topology,
        topology=network,
        data=data,
        blueprint=blueprint,
        initial=vector,
        aggregation_times=times,
        local_steps=local_steps,
        costs=NetworkCosts(
            network, vector.numel() + (training.adaptive is not None), streams, config.control.power_rule
        ),
        faults=faults,
        world=streams,
        own=own,
        warm_start=warm_start,
    )


def _same_data(data: DeviceData, network: Topology, streams: Streams, root: Path | None) -> DeviceData:
    return data


def _clipping(norm: float, training: TrainingSection, placement: NoisePlacement) -> Clipping:
    scope = training.clip_scope
    mean_too = scope == "record" and placement.accumulates
    gamma = GAMMA if training.clipping == "normalized" else None
    return Clipping(norm, scope, mean_too, gamma, training.adaptive is not None)


def configured_data(config: ExperimentFile, pools: Callable[[DataRequest], Pool] = DataRequest.read) -> DataSource:
    """The data of a configuration; `pools` see `load`."""
    section = config.data
    if isinstance(section, OwnPart):
        return own_data(section)

    def source(network: Topology, streams: Streams, root: Path | None) -> DeviceData:
        groups = [(subnet.name, subnet.size) for subnet in network.subnets]
        return load(section, network.devices, streams, root, groups=groups, pools=pools)

    return source


def own_data(part: OwnPart, test: tuple[Any, Any] | None = None) -> DataSource:
    """The data of a user's own function: for a device's name its inputs and labels.

    The source raises a `UserError` where the function fails, with the user's line, or gives no records.

    Args:
        test: the test data; None where the function gives them too, for None in place of a name.
    """

    def called(device: str | None) -> tuple[Any, Any]:
        try:
            records: tuple[Any, Any] = part.function(device)
        except FAILURES as error:
            whose = "the test data (device None)" if device is None else f"device {device}"
            raise part.origin.failed("", error, f"fails for {whose}") from error
        return records

    def source(network: Topology, streams: Streams, root: Path | None) -> DeviceData:
        names = [subnet.device_name(row) for subnet in network.subnets for row in range(subnet.size)]
        try:
            tested = called(None) if test is None else test
            data = from_function(called, names, tested)
            first, again = data.device(0), from_function(called, names[:1], tested, classes=data.classes).device(0)
        except UserError as error:  # of the form of its records
            raise part.origin.located(error) from error.__cause__
        if not (np.array_equal(first.x, again.x) and np.array_equal(first.y, again.y)):
            raise part.origin.wrong("", f"the same records of device {names[0]} at each call", Words("other ones"))
        return data

    return source


def _measuring(config: ExperimentFile) -> EstimateSettings | None:
    """What the nodes measure for the controller, if anything: beta, sigma and zeta_c up to stated ranges."""
    control, training = config.control, config.training
    measured = chosen(config.method.schedule).measures
    if measured != "gradients" or control.estimates == "released":
        return None
    norm = training.first_clip_norm
    assert norm is not None
    return EstimateSettings(
        (horizon(config).largest_beta, 2 * norm, 2 * norm),
        leaks=control.estimates == "oracle",
    )
