"""From a checked experiment to the parts of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import nn

from h2fdp.data import DeviceData, load
from h2fdp.data.pool import Pool, Request
from h2fdp.data.registry import read_pool
from h2fdp.data.unit_ball import within_unit_ball
from h2fdp.errors import UserError
from h2fdp.experiment.schema import ExperimentFile, horizon
from h2fdp.models import Flat, build
from h2fdp.privacy import placement_of
from h2fdp.radio import NetworkCosts
from h2fdp.run.noise_setting import setting_of
from h2fdp.run.preparation import Preparation
from h2fdp.runtime import Blueprint
from h2fdp.runtime.blueprint import Measuring
from h2fdp.runtime.local_hosts import training_device
from h2fdp.runtime.step_time import fastest_engine
from h2fdp.schedules import Rhythm
from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.training import Clipping, chosen_engine
from h2fdp.training.objectives import objective_of

DataSource = Callable[[Topology, Streams, Path | None], DeviceData]


def prepare(
    config: ExperimentFile,
    topology: Topology,
    data_root: Path | None = None,
    data_source: DataSource | None = None,
    model: Callable[[], nn.Module] | None = None,
) -> Preparation:
    """Load data, build the model, work out the noise.

    Args:
        topology: as drawn for the experiment's seed.
        data_source, model: a user's own data and model, instead of those that the configuration names.

    Data are spread over the topology as it was drawn, also for a star, so that methods compare on equal devices.
    """
    streams = Streams(config.seed)
    star = config.method.topology == "star"
    network = topology.as_star() if star else topology
    placement = placement_of(config.method.privacy)
    if model is not None and placement.models is not None:
        raise UserError(
            f"expected {' or '.join(sorted(placement.models))} under this privacy, found a model of your own",
            key="model",
        )
    data = (data_source or configured_data(config))(topology, streams, data_root)
    if placement.input_norm is not None:
        data = within_unit_ball(data, placement.input_norm)
    options = config.model.options() if model is None else None
    module = partial(
        build, model or config.model.name, data.shape, data.classes, options, streams.key("cloud", "model")
    )
    initial = module()
    device = training_device(config.runtime)
    training = config.training
    norm = None if placement.clips == "update" else training.clip_norm
    blueprint = Blueprint(
        streams,
        network,
        data,
        module,
        chosen_engine(initial, device) if config.runtime.engine in ("auto", "fastest") else config.runtime.engine,
        objective_of(config.method.objective),
        None if norm is None else Clipping(norm, training.clip_scope),
        # An order of all records amplifies no more than fixed batches do.
        "poisson" if training.sampling == "poisson" else "fixed",
        _sampling_rates(config, data),
        placement,
        star,
        _measuring(config),
        device,
        training.momentum,
        training.local_epochs,
        config.method.schedule.measures,
        training.clip_norm,
    )
    rhythm = Rhythm() if star else Rhythm(training.aggregate_every, training.aggregations_per_interval)
    vector = Flat(initial).to_vector(initial)
    if config.runtime.engine == "fastest":
        blueprint = replace(blueprint, engine=fastest_engine(blueprint, vector))
    costs = NetworkCosts(network, vector.numel(), streams)
    run = Preparation(config, topology, network, data, blueprint, vector, rhythm, costs, None)
    return replace(run, noise=placement.mechanism(setting_of(run, initial))) if placement.private else run


def _measuring(config: ExperimentFile) -> Measuring | None:
    """What the nodes measure for the controller, if anything: beta, sigma and zeta_c up to stated ranges."""
    control, training = config.control, config.training
    if not control.enabled or control.estimates == "released":
        return None
    assert training.clip_norm is not None
    return Measuring(
        (horizon(config).largest_beta(control), 2 * training.clip_norm, 2 * training.clip_norm),
        leaks=control.estimates == "oracle",
    )


def _sampling_rates(config: ExperimentFile, data: DeviceData) -> np.ndarray:
    """(I,) q_i = batch_size / D_i, set before the run: it does not move with a neighbouring data set."""
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


def configured_data(config: ExperimentFile, pools: Callable[[Request], Pool] = read_pool) -> DataSource:
    """The data of a configuration; `pools` see `load`."""

    def source(network: Topology, streams: Streams, root: Path | None) -> DeviceData:
        groups = [(subnet.name, subnet.size) for subnet in network.subnets]
        return load(config.data, network.devices, streams, root, groups=groups, pools=pools)

    return source
