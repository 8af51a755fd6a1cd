"""From a checked experiment to the parts of a run: data on devices, model, noise, schedule, nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.control import FixedSchedule, Rhythm
from h2fdp.data import FederatedData, load
from h2fdp.experiment.schema import ExperimentFile
from h2fdp.models import Flat, build
from h2fdp.nodes import Cloud, Team
from h2fdp.privacy import NOISE_PLACEMENTS, NoiseLevels, PaperCalibration
from h2fdp.runtime import Blueprint
from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.training import Clipping, chosen_engine
from h2fdp.training.objectives import objective_of

DataSource = Callable[[Topology, Streams, Path | None], FederatedData]


@dataclass(frozen=True)
class Preparation:
    """The parts of one run, built but not started.

    Attributes:
        drawn: the topology as it was drawn for the seed.
        topology: the network that is simulated: a star of all devices where the method asks for one.
        initial: (M,) w(0).
        noise: None where the method adds none.
    """

    config: ExperimentFile
    drawn: Topology
    topology: Topology
    data: FederatedData
    blueprint: Blueprint
    initial: Tensor
    rhythm: Rhythm
    noise: NoiseLevels | None

    def cloud(self, edges: Team) -> Cloud:
        """The cloud at the start of the run."""
        training = self.config.training
        schedule = FixedSchedule(
            training.local_steps, training.step_size, training.step_decay, self.topology.sizes, training.participation
        )
        return Cloud(
            self.initial,
            self.blueprint.streams,
            self.blueprint.facts(),
            edges,
            schedule,
            self.rhythm,
            self.noise,
            training.weights,
        )


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
    data = (data_source or partial(_configured_data, config))(topology, streams, data_root)
    options = config.model.options() if model is None else None
    module = partial(
        build, model or config.model.name, data.shape, data.classes, options, streams.key("cloud", "model")
    )
    initial = module()
    training = config.training
    clipping = None if training.clip_norm is None else Clipping(training.clip_norm, training.clip_scope)
    blueprint = Blueprint(
        streams,
        network,
        data,
        module,
        chosen_engine(initial, torch.device("cpu")) if config.runtime.engine == "auto" else config.runtime.engine,
        objective_of(config.method.objective),
        clipping,
        training.sampling,
        _sampling_rates(config, data),
        NOISE_PLACEMENTS[config.method.privacy],
        star,
    )
    rhythm = Rhythm() if star else Rhythm(training.aggregate_every, training.aggregations_per_interval)
    return Preparation(
        config, topology, network, data, blueprint, Flat(initial).to_vector(initial), rhythm, _noise(config, rhythm)
    )


def _sampling_rates(config: ExperimentFile, data: FederatedData) -> np.ndarray:
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


def _noise(config: ExperimentFile, rhythm: Rhythm) -> NoiseLevels | None:
    """The paper's calibration for the numbers of releases that the fixed schedule plans."""
    if not NOISE_PLACEMENTS[config.method.privacy].private:
        return None
    training, privacy = config.training, config.privacy
    assert training.clip_norm is not None
    local = len(rhythm.offsets(training.local_steps)) * training.intervals
    calibration = PaperCalibration(privacy.epsilon, privacy.delta, privacy.c2, local, training.intervals)
    return NoiseLevels(calibration, training.clip_norm, privacy.sensitivity)


def _configured_data(config: ExperimentFile, network: Topology, streams: Streams, root: Path | None) -> FederatedData:
    groups = [(subnet.name, subnet.size) for subnet in network.subnets]
    return load(config.data, network.devices, streams, root, groups=groups)
