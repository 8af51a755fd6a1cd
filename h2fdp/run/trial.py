"""Every part of a user's own is tried once before a run releases anything."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from h2fdp.algorithms import server_of
from h2fdp.algorithms.own import OwnObjective, OwnServer
from h2fdp.arithmetic import run_arithmetic
from h2fdp.config.own_answers import FAILURES
from h2fdp.config.own_parts import OwnPart
from h2fdp.costs.traffic import Tasks
from h2fdp.data.records import Records
from h2fdp.errors import UserError
from h2fdp.privacy.places import Segment
from h2fdp.protocol import InProcessNodes, IntervalPlan, Plan
from h2fdp.protocol.devices import WorkAccumulator
from h2fdp.protocol.messages import SubnetState
from h2fdp.protocol.planned_releases import average_alone, observation
from h2fdp.run.forecast import first_interval
from h2fdp.run.setup import RunSetup
from h2fdp.training.batches import Batches
from h2fdp.training.device_records import device_records
from h2fdp.training.local_steps import StepTerms, TrainingResult

_STEP_SIZE = 1e-3


def try_own_parts(setup: RunSetup) -> None:
    """Ask every own part once for what the first interval will ask of it.

    1. The first interval is planned, which asks the schedule and the aggregation, and costs what the radio models say.
       A schedule learns from a made-up end of it, where it asks for nothing that devices measure.
    2. Two devices take a local step on records of zeros, which asks the objective, the loss and the model, as the
       engine of the run does; they remember what the objective says.
    3. The server update moves the model by a made-up average, is stored and resumed.

    Raises:
        UserError: a part fails, or answers what it may not.
    """
    method = setup.config.method
    plan = first_interval(setup)
    setup.bill.columns(plan)
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
    spent = setup.bill.columns(plan) if run.observes else {}
    if run.observes and not setup.measures:
        upload = torch.linspace(-_STEP_SIZE, _STEP_SIZE, len(model), dtype=torch.float32)
        facts = {each.name: each for each in setup.blueprint.facts}
        uploads = [upload.clone() for _ in range(1 if average_alone(facts) else len(plan.parts))]
        run.observe(replace(observation(plan, model.clone(), uploads, facts, setup.noise), spent=spent))
    if run.scores:
        run.scored(1.0)
    run.kept(model.clone())
    run.returned(model.clone())
    planned.skipped(plan.interval, steps, spent)
    for each in (run, planned):
        each.ends(plan.last_slot)
    resumed.load(copy.deepcopy(run.state()))


def _try_step(setup: RunSetup) -> None:
    blueprint, objective = setup.blueprint, setup.blueprint.descent.objective
    model = setup.initial.to(blueprint.device)
    models = model.expand(2, -1)
    if isinstance(objective, OwnObjective):
        given = model if blueprint.engine == "loop" else models
        objective.try_out(given, empty_batches=blueprint.sampling != "fixed")
    labels = setup.data.target.examples(setup.data.classes).numpy()
    zeros = Records(np.zeros((2, *setup.data.shape), dtype=setup.data.test.x.dtype), labels)
    records = device_records(setup.data, zeros, np.arange(3)).to(blueprint.device)
    batches = Batches(np.zeros((1, 2, 1), dtype=np.int64), np.ones((1, 2), dtype=np.int64))
    work = _work(setup, model)
    rows = np.arange(2)
    terms = StepTerms(corrections=work.corrections(rows))
    try:
        trained = blueprint.local_engine().train(models, records, rows, batches, _STEP_SIZE, terms)
    except UserError:
        raise
    except FAILURES as error:  # all other parts of a step report their own failures
        if isinstance(part := setup.config.model, OwnPart):
            raise part.origin.failed("", error, "fails in a local step, where its loss is differentiated") from error
        raise
    work.note(work.plan.aggregation(0), model, TrainingResult(trained.updates, trained.personal))
    work.upload(trained.updates[0])


def _work(setup: RunSetup, model: Tensor) -> WorkAccumulator:
    """The work of two devices before their first step in their first interval."""
    blueprint, size = setup.blueprint, setup.initial.numel()
    remembers = blueprint.descent.objective.memory is not None
    plan = Plan(
        at=Segment.row(0, 0, (1,), _STEP_SIZE),
        tasks=Tasks.planned(np.arange(2), (1,)),
        shares=np.full(2, 0.5),
        weights=np.full((1, 2), 0.5),
        reach=np.full((1, 2), 0.5),
        noise_std=np.empty((1, 0)),
        state=SubnetState(memory=torch.zeros(2, size, dtype=torch.float32) if remembers else None),
    )
    server = server_of(setup.config.method.server, setup.server_context)
    variate = None if server.variate is None else server.variate.to(model.device)
    return WorkAccumulator.begun(blueprint.descent, plan, model, variate)


def _try_server(setup: RunSetup) -> None:
    objective = setup.blueprint.descent.objective
    server, other = (server_of(setup.config.method.server, setup.server_context) for _ in range(2))
    assert isinstance(server, OwnServer), "a user's own"
    assert isinstance(other, OwnServer), "a user's own"
    sends = objective.memory is not None and server.variate is not None
    server.try_out(other, setup.initial, variate=sends)
