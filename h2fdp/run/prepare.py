"""From a checked experiment to a complete `RunSetup`, in which a user's own parts were tried before any release."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.algorithms import aggregation_of, objective_of, server_of
from h2fdp.algorithms.fedavg import Plain
from h2fdp.algorithms.own import OwnObjective, OwnServer
from h2fdp.arithmetic import one_thread, run_arithmetic
from h2fdp.config.own_answers import FAILURES
from h2fdp.config.own_parts import OwnPart
from h2fdp.costs import NetworkCosts, interval_cost
from h2fdp.data.configured import DataSource, Network, configured_data
from h2fdp.data.federate import within_unit_ball
from h2fdp.data.federated import DeviceData, FederatedData, Standardizing
from h2fdp.data.files import is_bounded
from h2fdp.data.public_features import with_features
from h2fdp.data.records import Records
from h2fdp.errors import UserError
from h2fdp.experiment.network import check_network
from h2fdp.experiment.sections import ExperimentFile, horizon
from h2fdp.experiment.training_section import TrainingSection
from h2fdp.models.construct import ParameterLayout, builder_of, load_parameters
from h2fdp.models.registry import Logistic, PublicFeatures
from h2fdp.network import Topology
from h2fdp.network.association import Value, label_counts, mean_divergence
from h2fdp.network.devices import Floats, Integers
from h2fdp.privacy import Accounts, LocalDp, NoisePlacement, Pipeline, noise_placement_of
from h2fdp.protocol import InProcessNodes, IntervalPlan, Plan
from h2fdp.protocol.devices import WorkAccumulator
from h2fdp.protocol.planned_releases import average_alone, observation
from h2fdp.run import recipe
from h2fdp.run.calibration import calibrate
from h2fdp.run.forecast import first_interval, planned_accounts, rough_accounts
from h2fdp.run.identity import own_parts_of
from h2fdp.run.poisoning import poisoned
from h2fdp.run.setup import Noise, RunInputs, RunSetup
from h2fdp.runtime import Blueprint
from h2fdp.runtime.blueprint import EstimateSettings
from h2fdp.runtime.local_hosts import training_device
from h2fdp.schedules.registry import chosen
from h2fdp.schedules.turns import TurnsPlan, cheapest
from h2fdp.schedules.turns_controller import TurnsController
from h2fdp.streams import Streams
from h2fdp.training.batches import Batches, BatchSampler, Sampling, padded_width, row_length
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import device_records
from h2fdp.training.engine import WORTH_COMPILING, TrainingJob, build_engine, compile_ahead, engine_of_run
from h2fdp.training.local_steps import StepTerms, TrainingResult, gain, head_size
from h2fdp.training.losses import loss_of, minimised


def prepare(
    config: ExperimentFile,
    topology: Topology,
    *,
    data_root: str | Path | None = None,
    data_source: DataSource | None = None,
) -> RunSetup:
    """Load the data, build the model, work out the noise and calibrate it.

    Data are spread over the topology as it was drawn, also for a star or where devices then join other edge servers, so
    that methods compare on equal devices.

    Args:
        topology: as drawn for the experiment's seed.
        data_source: a user's own data, instead of those that the configuration names.

    Raises:
        UserError: local aggregations of tiers that the network does not have; data that cannot be read; a model that
            does not fit them, or the privacy; no noise that meets the target; a user's own part that fails, or gives
            what it may not.
    """
    topology = _settled(topology, config)
    source = data_source or configured_data(config.data)
    with one_thread():  # features use more, for images side by side
        data = source(topology.as_filed(), Streams(config.seed), None if data_root is None else Path(data_root))
    if (relying_on_nobody := without_trust(config)) is not None:
        relying = config.model_copy(update={"control": config.control.model_copy(update={"trust": "used"})})
        loaded = partial(_same_data, data)
        ways = (relying, relying_on_nobody)
        return better([partial(prepare, each, topology, data_source=loaded) for each in ways])
    if topology.adversaries is not None and topology.adversaries.attack.poisons:
        data = poisoned(data, topology, Streams(config.seed))

    def noisy(complete: ExperimentFile) -> RunSetup:
        # On the records as they are when this is called: images before, features after the model is chosen.
        runtime = complete.runtime.model_copy(update={"engine": "loop"})  # nothing is trained
        inputs = _inputs(complete.model_copy(update={"runtime": runtime}), topology, data)
        return RunSetup.of(inputs, calibrate(inputs, rough_accounts))

    with one_thread():
        config, given = recipe.with_model(config, data, noisy, topology), data
        _refuse_small_budget(config, topology, data)
    if isinstance(config.model, PublicFeatures):
        products = int(data.sizes.sum()) * config.model.size * data.classes
        data = with_features(data, config.model.size, meanwhile=partial(_compile_if_likely, config, products))
    with one_thread():
        topology, data = _associated(topology, config, data)
        standardizing = None
        if isinstance(config.model, Logistic) and config.model.standardize:
            standardizing = Standardizing.of(data, bounded=is_bounded(config.data, data.shape))
            data = data if standardizing is None else standardizing.applied(data)
        placement = noise_placement_of(config.method.privacy)
        if placement.input_norm is not None:
            data = within_unit_ball(data, placement.input_norm)
        module = builder_of(config.model, data.shape, data.classes, Streams(config.seed).key("cloud", "model"))
        complete, lines = recipe.completed(config, data, module, noisy, topology)
        inputs = _inputs(complete, topology, data)
        inputs = replace(inputs, given=given, standardizing=standardizing, chosen=lines)
        setup = RunSetup.of(inputs, calibrate(inputs)).keyed()
        try_own_parts(setup)
        return setup


def _refuse_small_budget(config: ExperimentFile, topology: Topology, images: DeviceData) -> None:
    """Refuse a budget that pays for no plan before features are computed: the length of messages says what they cost.

    Raises:
        UserError: see `TurnsController`.
    """
    if not (config.control.has_budget and isinstance(config.model, PublicFeatures)) or topology.association is not None:
        return
    if (found := recipe.foreseen(config, topology)) is None:
        return
    runtime = found.runtime.model_copy(update={"engine": "loop"})  # nothing is trained
    blank = replace(with_features(images, config.model.size, computed=False), public=None)
    run = RunSetup.of(_inputs(found.model_copy(update={"runtime": runtime}), topology, blank), Noise())
    servers = len(run.topology.subnets)
    run.traits.build(replace(run.context, noise=lambda tau: np.ones(servers), releases=lambda tau: 1))


def _compile_if_likely(config: ExperimentFile, products: int) -> None:
    """Begin to compile kernels where they may train a linear model with so many multiply-adds on all records."""
    runtime = config.runtime
    asked = runtime.engine == "compiled" or (runtime.engine == "auto" and products >= WORTH_COMPILING)
    if asked and training_device(runtime).type == "cpu":
        compile_ahead()


@one_thread()
def with_settings(
    setup: RunSetup, config: ExperimentFile, foreseen: Callable[[RunSetup], Accounts] = planned_accounts
) -> RunSetup:
    """The same devices, records and model under another method, training or target; without a noise key.

    Args:
        foreseen: the accounts that are calibrated, see `calibrate`.

    Raises:
        UserError: see `prepare`.
    """
    if not (config.runtime.engine == "auto" and setup.blueprint.engine == "compiled"):  # other settings may not compile
        runtime = config.runtime.model_copy(update={"engine": setup.blueprint.engine})
        config = config.model_copy(update={"runtime": runtime})
    inputs = _inputs(config, setup.drawn, setup.data, setup)
    inputs = replace(inputs, given=setup.given, standardizing=setup.standardizing)
    return RunSetup.of(inputs, calibrate(inputs, foreseen))


def _inputs(config: ExperimentFile, topology: Topology, data: DeviceData, begun: RunInputs | None = None) -> RunInputs:
    """All but the noise, of data that lie in the unit ball where the placement asks for it.

    Args:
        begun: a run whose first model this one shares.
    """
    network, times = check_network(config, topology)
    streams, training, method = Streams(config.seed), config.training, config.method
    placement, star, network = noise_placement_of(method.privacy), network is not topology, network.with_visits()
    _check_presence(network, training.intervals)
    data = _of_rows(data, network)
    measuring = _measuring(config)
    module = builder_of(config.model, data.shape, data.classes, streams.key("cloud", "model"))
    initial = module()
    warm_start = None if begun is None else begun.warm_start
    if begun is None and not isinstance(config.model, OwnPart) and config.model.start is not None:
        warm_start = load_parameters(initial, Path(config.model.start))
    vector = ParameterLayout(initial).to_vector(initial) if begun is None else begun.initial
    if begun is None and data.public is not None:
        vector = trained_on_public(vector, initial, data, config, streams)
    rates = training.sampling_rates(data.sizes)
    local_steps, faults = training.interval_steps(data.sizes, rates), config.faults.faults()
    device, engine = training_device(config.runtime), config.runtime.engine
    objective, loss = objective_of(method.objective), loss_of(training.loss, data.classes)
    whole = placement.clips in ("update", "model")  # is clipped, not gradients
    norm = None if whole else training.first_clip_norm
    clipping = None if norm is None else _clipping(norm, training, placement)
    # An order of all records amplifies no more than fixed batches do.
    sampling: Sampling = "poisson" if training.sampling == "poisson" else "fixed"
    products = training.records_of_interval(data.sizes, rates) * vector.numel()
    width = padded_width(sampling, rates * data.sizes)
    job = TrainingJob(objective, minimised(objective, loss), clipping, data.shape, products, width, training.precision)

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
        gamma=training.gamma if whole else None,
        adaptive=training.adaptive,
        precision=training.precision,
        aggregation=aggregation_of(method.aggregation),
        compression=config.compression.of_devices,
        uplink=config.compression.of_edges,
        downlink=Pipeline(config.compression.of_models),
        correlated=config.privacy.noise_law,
    )
    sent = vector.numel() - head_size(objective, initial)
    if not sent:
        text = "all layers of the model would be heads that never leave devices; expected fewer than it has"
        raise UserError(text, key="method.objective.layers")
    costs = _costs(config, network, sent, rates * data.sizes)
    return RunInputs(
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


def _costs(config: ExperimentFile, network: Topology, parameters: int, records: Floats) -> NetworkCosts:
    """Those of messages with M parameters, and of steps with `records` (I,) records in the mean."""
    return NetworkCosts(
        network,
        parameters + (config.training.adaptive is not None),
        Streams(config.seed),
        config.control.power_rule,
        records,
        Pipeline(config.compression.of_devices).message_bits,
        Pipeline(config.compression.of_edges).message_bits,
        Pipeline(config.compression.of_models).message_bits,
        config.control.frequency_rule,
    )


def _associated(topology: Topology, config: ExperimentFile, data: DeviceData) -> tuple[Topology, DeviceData]:
    """The network after devices have joined edge servers, with their records in the order of its devices."""
    section = topology.association
    if section is None:
        return topology, data
    if not isinstance(data, FederatedData):
        text = "records that are drawn where they are trained on belong to one edge server each; expected fewer of them"
        raise UserError(f"{text}, or no association in the topology", key="data")
    if section.was is None:
        value = None
        if section.by == "data":
            value = mean_divergence(label_counts(data.train.y[data.order], data.offsets, data.classes))
        elif section.by == "cost":
            value = _cost_of_joining(topology, config, data)
        topology = topology.associated(value)
        section = topology.association
        assert section is not None, "it says where devices were"
    return topology, data.rearranged(section.places)


def _cost_of_joining(topology: Topology, config: ExperimentFile, data: FederatedData) -> Value:
    """From (I,) edge servers to what an interval costs in which all devices take part, without fading and without the
    keys of secure sums: joules and seconds of the clock, weighed as control weighs them."""
    training = config.training
    steps_of = {"local_steps", "batch_size", "sampling_rate", "aggregate_every", "aggregations_per_interval"}
    if missing := sorted(steps_of & training.left_open):
        text = f"{missing[0]} is chosen after devices have joined edge servers by what an interval costs"
        raise UserError(f"{text}; expected it stated, as in training: {{extends: paper}}", key="training")
    (_, times), every = check_network(config, topology), topology.everywhere()
    rates = training.sampling_rates(data.sizes)
    steps = training.interval_steps(data.sizes, rates)
    module = builder_of(config.model, data.shape, data.classes, Streams(config.seed).key("cloud", "model"))()
    parameters = ParameterLayout(module).to_vector(module).numel()
    costs = _costs(config, every, parameters, np.tile(rates * data.sizes, topology.edges)).drawn(0)
    segments = [times.of(subnet.name).segments(steps) for subnet in topology.subnets]
    heights = times.heights(steps, topology.depth) if topology.depth > 1 else None
    joule, second = config.control.cost_weights

    def value(home: Integers) -> float:
        used = np.unique(home).tolist()
        rows = [np.flatnonzero(home == number) for number in used]
        cost = interval_cost(costs, every, used, rows, [segments[number] for number in used], heights=heights)
        return joule * cost.energy_j + second * cost.clock_s

    return value


def _settled(topology: Topology, config: ExperimentFile) -> Topology:
    """The network with the way of every device, for as many intervals as the run may have."""
    if topology.mobility is None or not topology.mobility.drawn:
        return topology
    intervals = config.training.intervals
    if intervals is None:
        text = "the ways of devices are drawn for all intervals (mobility in the topology); expected how many"
        raise UserError(text, key="training.intervals")
    return replace(topology, mobility=topology.mobility.settled(topology.subnets, intervals, Streams(config.seed)))


def _check_presence(network: Topology, intervals: int) -> None:
    """Refuse ways on which no device ever is at an edge server."""
    visits = network.visits
    if visits is not None and not any(visits.there(interval).any() for interval in range(intervals)):
        text = f"mobility has every device nowhere in all {intervals} intervals; expected some at edge servers"
        raise UserError(text, key="topology")


def _of_rows(data: DeviceData, network: Topology) -> DeviceData:
    """The records of each row of a network in which devices move; the same elsewhere."""
    if network.visits is None or len(data.sizes) == len(network.visits.device):
        return data
    if not isinstance(data, FederatedData):
        text = "records that are drawn where they are trained on belong to one edge server each; expected fewer of them"
        raise UserError(f"{text}, or no mobility in the topology", key="data")
    return data.for_rows(network.visits.device)


def _same_data(data: DeviceData, network: Network, streams: Streams, root: Path | None) -> DeviceData:
    return data


def _clipping(norm: float, training: TrainingSection, placement: NoisePlacement) -> Clipping:
    scope = training.clip_scope
    mean_too = scope == "record" and placement.accumulates
    return Clipping(norm, scope, mean_too, training.gamma, training.adaptive is not None)


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


def without_trust(config: ExperimentFile) -> ExperimentFile | None:
    """The settings of the same run in which no edge server is relied on, nor averages before the cloud does.

    None where that is not asked (`control.trust: weighed`). A trusted edge server adds one noise to the sum of its
    devices, which is less noise for the same epsilon, but it must see each step. A device that adds noise to its own
    steps sends one message where it would send tau. Which is better depends on what is wanted, on the network and on
    its channels, on nothing private.
    """
    control = config.control
    if control.trust != "weighed" or not control.enabled or config.method.topology == "star":
        return None
    never = {"aggregate_every": None, "aggregations_per_interval": 0}  # edge servers have no noise to save
    training = config.training.model_copy(update=never)
    method = config.method.model_copy(update={"privacy": LocalDp(noise="steps")})
    control = control.model_copy(update={"trust": "used"})  # it is decided
    return config.model_copy(update={"method": method, "training": training, "control": control})


def better(ways: Sequence[Callable[[], RunSetup]]) -> RunSetup:
    """The better of these runs: with a budget that of least noise, with a target as `cheapest` says.

    Raises:
        UserError: that of the last, where the budget pays for none of them.
    """
    found, problem = [], None
    for way in ways:
        try:
            found.append(way())
        except UserError as error:
            if {each.key for each in error.problems} - {"control.joules", "control.seconds"}:
                raise
            problem = error
    if not found:
        assert problem is not None, "there is a way at least"
        raise problem
    plans = [_plan(each) for each in found]
    control = found[0].config.control
    if control.has_budget:
        return found[int(np.argmin([plan.noise for plan in plans]))]
    best = cheapest(plans, *control.cost_weights, control.noise)
    return next(setup for setup, plan in zip(found, plans, strict=True) if plan is best)


def _plan(setup: RunSetup) -> TurnsPlan:
    schedule = setup.schedule()
    assert isinstance(schedule, TurnsController), "trust is weighed where turns are planned"
    return schedule.plan


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
    loss, row = loss_of(config.training.loss, data.classes), np.array([0])
    engine = build_engine("loop", module, None, Plain(), loss=loss)
    size = recipe.step_without_noise(module, data, config)
    with run_arithmetic():
        batches = sampler.draw(0, range(_PUBLIC_STEPS), row, "public batch")
        trained = engine.train(model[None], records, row, batches, size)
    return model - trained.updates[0]


_STEP_SIZE = 1e-3


def try_own_parts(setup: RunSetup) -> None:
    """Ask every own part once for what the first interval will ask of it; nothing where there is none.

    1. The first interval is planned, which asks the schedule and the aggregation, and costs what the radio models say.
       A schedule learns from a made-up end of it, where it asks for nothing that devices measure.
    2. Two devices take a local step on records of zeros, which asks the objective, the loss and the model, as the
       engine of the run does; they remember what the objective says.
    3. The server update moves the model by a made-up average, is stored and resumed.

    Raises:
        UserError: a part fails, or answers what it may not.
    """
    method = setup.config.method
    if not own_parts_of(setup.config, setup.drawn):
        return
    plan = first_interval(setup)
    setup.interval_costs(plan)
    setup.drawn.radio.check_fading()
    setup.cloud(InProcessNodes({})).state()
    trained_by = method.objective, setup.config.model, setup.config.training.loss
    with run_arithmetic():
        if isinstance(method.schedule, OwnPart):
            _try_schedule(setup, plan)
        if any(isinstance(part, OwnPart) for part in trained_by):
            _try_step(setup)
        if isinstance(method.server, OwnPart):
            _try_server(setup)


def _try_schedule(setup: RunSetup, plan: IntervalPlan) -> None:
    """Let schedules of their own end the first interval, keep what they learned, and resume from it."""
    run, planned, resumed = (setup.schedule() for _ in range(3))
    for each in (run, planned):
        each.decide(0, 0)
    steps, model = plan.decision.local_steps, setup.initial
    spent = setup.interval_costs(plan) if run.observes else {}
    if run.observes and not setup.probes and setup.blueprint.measuring is None:
        upload = torch.linspace(-_STEP_SIZE, _STEP_SIZE, len(model))
        facts = {each.name: each for each in setup.blueprint.facts}
        uploads = [upload.clone() for _ in range(1 if average_alone(facts) else len(plan.parts))]
        run.observe(replace(observation(plan, model.clone(), uploads, facts, None, setup.noise), spent=spent))
    if run.scores:
        run.scored(1.0)
    run.kept(model.clone())
    run.returned(model.clone())
    planned.skipped(plan.interval, steps, spent)
    for each in (run, planned):
        each.ends(plan.last_slot)
    resumed.load(copy.deepcopy(run.state()))


def _try_step(setup: RunSetup) -> None:
    blueprint, objective = setup.blueprint, setup.blueprint.objective
    model = setup.initial.to(blueprint.device)
    models = model.expand(2, -1)
    if isinstance(objective, OwnObjective):
        given = model if blueprint.engine == "loop" else models
        objective.try_out(given, empty_batches=blueprint.sampling == "poisson")
    zeros = Records(np.zeros((2, *setup.data.shape), dtype=setup.data.test.x.dtype), np.zeros(2, dtype=np.int64))
    records = device_records(setup.data, zeros, np.arange(3)).to(blueprint.device)
    batches = Batches(np.zeros((1, 2, 1), dtype=np.int64), np.ones((1, 2), dtype=np.int64))
    work = _work(setup, model)
    rows = np.arange(2)
    terms = StepTerms(corrections=work.corrections(rows))
    try:
        trained = blueprint.local_engine().train(models, records, rows, batches, _STEP_SIZE, terms)
    except UserError:
        raise
    except FAILURES as error:  # all other parts of a step tell their own failures
        if isinstance(part := setup.config.model, OwnPart):
            raise part.origin.failed("", error, "fails in a local step, where its loss is differentiated") from error
        raise
    work.note(work.plan.aggregation(0), model, TrainingResult(trained.updates, trained.personal))
    work.upload(trained.updates[0])


def _work(setup: RunSetup, model: Tensor) -> WorkAccumulator:
    """Of two devices, before their first step in their first interval."""
    blueprint, size = setup.blueprint, setup.initial.numel()
    plan = Plan(
        interval=0,
        first_slot=0,
        segments=(1,),
        step_size=_STEP_SIZE,
        rows=np.arange(2),
        shares=np.full(2, 0.5),
        noise_std=np.empty((1, 0)),
        memory=None if blueprint.objective.memory is None else torch.zeros(2, size),
    )
    server = server_of(setup.config.method.server, setup.server_context)
    variate = None if server.variate is None else server.variate.to(model.device)
    return WorkAccumulator.begun(blueprint.objective, partial(gain, blueprint.momentum), plan, model, variate)


def _try_server(setup: RunSetup) -> None:
    objective = setup.blueprint.objective
    server, other = (server_of(setup.config.method.server, setup.server_context) for _ in range(2))
    assert isinstance(server, OwnServer), "a user's own"
    assert isinstance(other, OwnServer), "a user's own"
    sends = objective.memory is not None and server.variate is not None
    server.try_out(other, setup.initial, variate=sends)
