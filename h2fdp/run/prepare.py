"""The complete `RunSetup` of a checked experiment, in which a user's own parts were tried before any release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread

import numpy as np
from torch import Tensor, nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.arithmetic import one_thread, run_arithmetic
from h2fdp.costs.batteries import Batteries, has_batteries
from h2fdp.data.augmentation import augment_of
from h2fdp.data.federate import DataSource, configured_data
from h2fdp.data.federated import (
    DeviceData,
    FederatedData,
    dealt,
    refuse_gaps,
    standardized,
    standardizing_by_tests,
    within_unit_ball,
)
from h2fdp.data.public_features import PublicFeatures, with_features
from h2fdp.data.scattering import are_images
from h2fdp.data.statistics import FARTHEST, Mean, OwnStatistic, Standardizing, Statistic, score_of
from h2fdp.data.targets import CLASS
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.network import check_network
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.models.construct import ParameterLayout, begin, builder_of
from h2fdp.models.registry import Logistic
from h2fdp.network import Topology
from h2fdp.privacy import LocalDp
from h2fdp.privacy.mechanisms.secret_draws import SecretDraw
from h2fdp.run import recipe
from h2fdp.run.calibration import calibrate, uncalibrated
from h2fdp.run.devices import costs_of, of_rows, trained_on
from h2fdp.run.encoders import features_of
from h2fdp.run.identity import own_parts_of, package_digests
from h2fdp.run.noise_plan import NoisePlans
from h2fdp.run.prelude import columns_of, in_words, of_statistic, one_interval, statistics_of, with_label
from h2fdp.run.setup import Noise, RunInputs, RunSetup, StatisticRun
from h2fdp.run.trial import try_own_parts
from h2fdp.runtime import Blueprint
from h2fdp.runtime.placement import training_device
from h2fdp.schedules.control_section import BUDGETS
from h2fdp.schedules.turns import TurnsPlan, cheapest
from h2fdp.schedules.turns_controller import TurnsController
from h2fdp.streams import Streams
from h2fdp.training.batches import BatchSampler, padded_width, row_length
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import device_records
from h2fdp.training.engine import WORTH_COMPILING, TrainingJob, build_engine, compile_ahead, engine_of_run
from h2fdp.training.local_steps import Descent
from h2fdp.training.losses import CROSS_ENTROPY, loss_of, minimised


def spread(source: DataSource, topology: Topology, seed: int, root: Path | None) -> DeviceData:
    """The records of a source on the devices of a network."""
    groups = [(subnet.name, subnet.size) for subnet in topology.subnets]
    return source(groups, topology.device_names(), Streams(seed), root)


def prepare(
    config: ExperimentFile,
    topology: Topology,
    *,
    data_root: str | Path | None = None,
    data_source: DataSource | None = None,
    trains: bool = True,
) -> RunSetup:
    """Load the data, build the model, work out the noise and calibrate it.

    Data are spread over the topology as it was drawn, also for a star, so that methods compare on equal devices.

    Args:
        topology: as drawn for the experiment's seed.
        data_source: a user's own data, instead of those that the configuration names.
        trains: false for a plan alone: features of images are not computed then, and gradients are probed on random
            inputs.

    Raises:
        UserError: local aggregations of tiers that the network does not have; data that cannot be read; a model that
            does not fit them, or the privacy; no noise that meets the target; a user's own part that fails, or gives
            what it may not.
    """
    with one_thread():  # features use more, for images side by side
        source = data_source or configured_data(config.data)
        data = spread(source, topology, config.seed, None if data_root is None else Path(data_root))
        data = data.rounded if are_images(data.shape) else data
        owners = dealt(data.holders, topology.device_names()) if data.holders else ""
    if config.training.evaluate_devices and data.test_owners is None and data.target != CLASS:
        text = f"devices differ in test records alone where labels are {data.target.task}, and have none of their own"
        raise UserError(f"{text}; expected data.test: 0.2, or false", key="training.evaluate_devices")
    control = config.control
    if control.enabled and control.trust == "weighed" and config.method.topology != "star":
        return _in_the_better_way(config, partial(prepare, topology=topology, data_source=lambda *_: data))
    if topology.replacing is not None:
        data = trained_on(topology.replacing, data, topology, Streams(config.seed))

    def untrained(complete: ExperimentFile) -> RunInputs:
        # On the records as they are when this is called: images before, features after the model is chosen.
        return inputs_of(_untrained(complete), topology, data)

    plans = NoisePlans(untrained, by_length=has_batteries(topology))
    with one_thread():
        config = recipe.with_model(config, data, plans, topology)
        standardize = isinstance(config.model, Logistic) and config.model.standardize
        released = statistics_of(config, data, topology)
        data = data if released else _on_a_scale(data)
        given = data = data if standardize or released else data.rounded  # columns are standardised first
        features = features_of(config.model, data.shape)
        _refuse_small_budget(config, topology, data, features)
    if features is not None:
        products = int(data.sizes.sum()) * features.size * data.classes
        data = with_features(data, features, meanwhile=partial(_meanwhile, config, products), computed=trains)
        data = data if trains else replace(data, test=data.test.part(slice(0)))
    with one_thread():
        standardizing = _standardizing(with_label(data) if released else data, standardize, bool(released))
        if standardizing is None and all(isinstance(each, Mean) for each in released):  # which fills none
            refuse_gaps(data)
        data = data.rounded if standardizing is None or released else standardized(data, standardizing)
        placement = config.method.privacy
        if placement.input_norm is not None:
            data = within_unit_ball(data, placement.input_norm)
        module = _module_of(config, data)
        # The recipe sees test records that are public as they will be.
        public = standardizing_by_tests(data) if released and features is None else None
        seen = data if public is None else standardized(data, public)
        complete, lines = recipe.completed(config, seen, module, plans, topology)
        inputs = inputs_of(complete if trains else _untrained(complete), topology, data)
        inputs = replace(inputs, config=complete, given=given, features=features, standardizing=standardizing)
        inputs = replace(inputs, chosen=(*lines, *(in_words(inputs) if lines else ()), *filter(None, [owners])))
        setup = RunSetup.of(inputs, plans.noise(inputs)).keyed()
        if own_parts_of(complete, topology):
            try_own_parts(setup)
        return setup


def _on_a_scale(data: DeviceData) -> DeviceData:
    """The data with real values on the scale of public test records, where they have no range.

    Raises:
        UserError: there are none, and no statistic of devices' values is released.
    """
    if not data.target.open:
        return data
    if data.test_owners is not None or not isinstance(data, FederatedData):
        raise data.target.without_range()
    values = data.test.y
    scale = float(values.std())
    return replace(data, target=data.target.scaled(float(values.mean()), scale, FARTHEST))


def _standardizing(data: DeviceData, standardize: bool, released: bool) -> Standardizing | None:
    """The standardising of inputs before statistics of them are released, by public numbers alone."""
    if data.test_owners is None or not (standardize or released):
        return standardizing_by_tests(data) if standardize and not released else None
    if data.columns is None or (data.columns.unbounded and not released):
        return None
    return data.columns.standardizing(uniform=not released)


def _refuse_small_budget(
    config: ExperimentFile, topology: Topology, images: DeviceData, features: PublicFeatures | None
) -> None:
    """Refuse a budget that pays for no plan before features are computed: the length of messages says what they cost.

    Raises:
        UserError: see `TurnsController`.
    """
    if features is None or not config.control.has_budget:
        return
    if (found := recipe.foreseen(config, topology)) is None:
        return
    blank = replace(with_features(images, features, computed=False), public=None)
    run = RunSetup.of(inputs_of(_untrained(found), topology, blank), Noise())
    servers = len(run.topology.subnets)
    run.traits.build(replace(run.context, noise=lambda tau: np.ones(servers), releases=lambda tau: 1))


def _untrained(config: ExperimentFile) -> ExperimentFile:
    """The experiment with the engine that takes nothing to prepare, as nothing is trained."""
    return config.model_copy(update={"runtime": config.runtime.model_copy(update={"engine": "loop"})})


def _meanwhile(config: ExperimentFile, products: int) -> None:
    """Begin what the first run of a machine does by one thread, while features are computed.

    Our own code is parsed. Kernels are compiled where they may train a linear model with so many multiply-adds on all
    records: not in the short runs that `training: auto` chooses, of all records at once.
    """
    Thread(target=package_digests, name="parsing").start()
    runtime = config.runtime
    likely = products >= WORTH_COMPILING and "batch_size" not in config.training.left_open
    asked = runtime.engine == "compiled" or (runtime.engine == "auto" and likely)
    if asked and training_device(runtime).type == "cpu":
        compile_ahead()


@one_thread()
def with_settings(setup: RunSetup, config: ExperimentFile) -> RunSetup:
    """A setup of the same devices, records and model under another method, training or target; without a noise key.

    Raises:
        UserError: see `prepare`.
    """
    if not (config.runtime.engine == "auto" and setup.blueprint.engine == "compiled"):  # other settings may not compile
        runtime = config.runtime.model_copy(update={"engine": setup.blueprint.engine})
        config = config.model_copy(update={"runtime": runtime})
    inputs = inputs_of(config, setup.drawn, setup.data, setup)
    inputs = replace(inputs, given=setup.given, features=setup.features, standardizing=setup.standardizing)
    return RunSetup.of(inputs, calibrate(inputs))


def inputs_of(
    config: ExperimentFile,
    topology: Topology,
    data: DeviceData,
    begun: RunInputs | None = None,
    statistic: Statistic | None = None,
) -> RunInputs:
    """All but the noise, of data that lie in the unit ball where the placement asks for it.

    Args:
        begun: a run whose first model this one shares.
        statistic: what is released in place of a model.
    """
    network, times = check_network(config, topology)
    star, network = network is not topology, network.with_rows()
    data = of_rows(data, network, config.training.intervals)
    streams, training, method = Streams(config.seed), config.training, config.method
    placement, costs_by_size, rates = method.privacy, costs_of(config, network), training.sampling_rates(data.sizes)
    local_steps = training.interval_steps(data.sizes, rates)
    expected_records = training.records_of_interval(data.sizes, rates)
    if training.local_epochs is not None:  # the largest step size may depend on the local steps, known only here
        known = config.model_copy(update={"training": training.model_copy(update={"local_steps": local_steps})})
        if problems := [Problem(text, key=key) for key, text in placement.problems(known)]:
            raise UserError(problems)
    faults = config.faults.faults()
    device, engine = training_device(config.runtime), config.runtime.engine
    module = _module_of(config, data) if statistic is None else partial(score_of, statistic, data.shape)
    initial = module()
    trains = begun is None and statistic is None
    warm_start = None if begun is None else begun.warm_start
    if trains:
        warm_start = begin(initial, config.model)
    vector = ParameterLayout(initial).to_vector(initial) if begun is None else begun.initial
    if trains and data.public is not None:
        vector = trained_on_public(vector, initial, data, config, streams)
    objective = method.local_objective
    loss = CROSS_ENTROPY if statistic else loss_of(training.loss, data.classes, data.target)
    whole = placement.clips in ("update", "model")  # is clipped, not gradients
    norm = None if whole else training.largest_norm
    clipping = None
    if norm is not None:
        mean_too = training.clip_scope == "record" and placement.accumulates
        clipping = Clipping(norm, training.clip_scope, mean_too, training.gamma)
    augment = None if statistic is not None else augment_of(getattr(config.data, "augment", None))
    if augment is not None:
        augment.check(data.shape)
    variants = 1 if augment is None else augment.times
    products = expected_records * variants * vector.numel()
    width = padded_width(training.sampling, rates * data.sizes)
    work = clipping, data.shape, products, width, training.precision, data.target.examples(data.classes)
    intervals = training.intervals if (rates == 1).all() else None
    more = augment is not None, intervals
    descent = Descent(objective, training.momentum, training.optimizer).on(initial)
    job = TrainingJob(descent, minimised(objective, loss), *work, *more)

    blueprint = Blueprint(
        streams=streams,
        topology=network,
        data=data,
        module=module,
        engine=engine_of_run(engine, initial, device, job),
        descent=descent,
        clipping=clipping,
        sampling=training.sampling,
        rates=rates,
        noise_placement=placement,
        star=star,
        measures=method.traits.measures,
        device=device,
        epochs=training.local_epochs,
        clip_norm=training.largest_norm,
        step_size=method.traits.largest_step_size(training.step_size, local_steps, training.intervals),
        loss=loss,
        gamma=training.gamma if whole else None,
        precision=training.precision,
        aggregation=method.combination,
        messages=config.messages,
        law=config.privacy.noise_law,
        draw=None if training.draw is None else SecretDraw(training.draw.rate, training.draw.cover),
        augment=augment,
    )
    sent = vector.numel() - descent.head
    if not sent:
        text = "all layers of the model would be heads that never leave devices; expected fewer than it has"
        raise UserError(text, key="method.objective.layers")
    costs = costs_by_size(sent, (rates * float(variants)) * data.sizes)
    inputs = RunInputs(
        config=config,
        drawn=topology,
        topology=network,
        data=data,
        given=data,
        blueprint=blueprint,
        initial=vector,
        aggregation_times=times,
        local_steps=local_steps,
        costs=costs,
        faults=replace(faults, sends=costs.sends),
        world=streams,
        warm_start=warm_start,
    )
    if statistic is None and (released := statistics_of(config, data, topology)):
        return replace(inputs, prelude=tuple(_released(each, inputs) for each in released))
    return inputs if not has_batteries(network) else _with_batteries(inputs)


def _module_of(config: ExperimentFile, data: DeviceData) -> Callable[[], nn.Module]:
    """A builder of the first model on records like these."""
    key, outputs = Streams(config.seed).key("cloud", "model"), data.target.outputs(data.classes)
    return builder_of(config.model, data.shape, outputs, key, data.whole)


def _released(statistic: Statistic, inputs: RunInputs) -> StatisticRun:
    """A statistic of a run's prelude, on its network."""
    columns = columns_of(statistic, inputs.data)
    data = of_statistic(with_label(inputs.data), columns)
    own = inputs_of(one_interval(_untrained(inputs.config), statistic, data.shape), inputs.drawn, data, None, statistic)
    if isinstance(statistic, OwnStatistic):
        statistic.check_rows(data.shape)
    statistic.use(np.zeros(own.initial.numel()), 1.0, data.shape)  # so that a mistake is seen before a release
    return StatisticRun(statistic, RunSetup.of(own, uncalibrated(own)), columns)


def _with_batteries(inputs: RunInputs) -> RunInputs:
    """The run in which devices take part as long as their batteries last."""
    run, training = RunSetup.of(inputs, Noise()), inputs.config.training
    batches, cycles = inputs.blueprint.rates * inputs.data.sizes, "cycles_per_record" in inputs.topology.table.columns
    told = training.local_epochs is not None or (cycles and np.ptp(batches) > 1e-9 * batches.max())
    if told and run.placement.private and run.placement.protects == "device":
        text = "payments for local steps, and so who takes part, would follow from the number of records of a device"
        right = "local_steps, and batches no larger than any device's records, or joules_per_step without cycles"
        raise UserError(f"{text}, which is private; expected {right}", key="privacy.protects")
    sums = run.exchange_sizes if any(each.shares_noise for each in run.blueprint.facts) else None
    spread = training.intervals if training.device_turns == "battery" else None
    batteries = Batteries(run.topology, run.costs, sums, spread)
    return replace(inputs, faults=replace(inputs.faults, batteries=batteries))


def _in_the_better_way(config: ExperimentFile, prepared: Callable[[ExperimentFile], RunSetup]) -> RunSetup:
    """The better of two runs, one of which relies on no edge server, nor averages before the cloud does.

    A trusted edge server adds one noise to the sum of its devices, which is less noise for the same epsilon, but it
    must see each step. A device that adds noise to its own steps sends one message where it would send tau. Which is
    better depends on what is wanted, on the network and on its channels, on nothing private: with a budget that of
    least noise, with a target as `cheapest` says.

    Raises:
        UserError: that of the last, where the budget pays for neither.
    """
    relying = config.model_copy(update={"control": config.control.model_copy(update={"trust": "used"})})
    never = {"aggregate_every": None, "aggregations_per_interval": 0}  # edge servers have no noise to save
    training = config.training.model_copy(update=never)
    method = config.method.model_copy(update={"privacy": LocalDp(noise="steps")})
    found, plans, problem = [], list[TurnsPlan](), None
    for way in (relying, relying.model_copy(update={"method": method, "training": training})):
        try:
            setup = prepared(way)
        except UserError as error:
            if {each.key for each in error.problems} - {f"control.{key}" for key in BUDGETS}:
                raise
            problem = error
            continue
        schedule = setup.schedule()
        assert isinstance(schedule, TurnsController), "trust is weighed where turns are planned"
        found.append(setup)
        plans.append(schedule.plan)
    if not found:
        assert problem is not None, "there is a way at least"
        raise problem
    control = config.control
    if control.has_budget:
        return found[int(np.argmin([plan.noise for plan in plans]))]
    best = cheapest(plans, *control.cost_weights, control.noise)
    return next(setup for setup, plan in zip(found, plans, strict=True) if plan is best)


_PUBLIC_STEPS, _PUBLIC_BATCH = 200, 64  # for more, train elsewhere and state `model.from`


def trained_on_public(
    model: Tensor, module: nn.Module, data: DeviceData, config: ExperimentFile, streams: Streams
) -> Tensor:
    """(M,) the model after 200 plain steps of SGD on 64 public records each, drawn without replacement.

    The step size is not that of the run, which is for clipped gradients under noise: `recipe.step_without_noise`.

    Nothing of it depends on the noise key or on a device: the same seed gives the same model.

    Args:
        model: (M,) that it begins with.
        module: of the model's architecture.
    """
    assert data.public is not None, "there are records to train on"
    records = device_records(data, data.public)
    batch = min(_PUBLIC_BATCH, len(data.public))
    rates = np.array([batch / len(data.public)])
    sampler = BatchSampler(streams.public, "cloud", "fixed", records.sizes, rates, row_length("fixed", float(batch)))
    loss, row = loss_of(config.training.loss, data.classes, data.target), np.array([0])
    engine = build_engine("loop", module, None, Descent(Plain()), loss=loss)
    size = recipe.step_without_noise(module, data, config)
    with run_arithmetic():
        batches = sampler.draw(0, range(_PUBLIC_STEPS), row, "public batch")
        trained = engine.train(model[None], records, row, batches, size)
    return model - trained.updates[0]
