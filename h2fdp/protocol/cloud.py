"""The cloud: plans an interval, has the subnets run it, averages what comes up (14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2fdp.algorithms import ServerUpdate, Uploaded
from h2fdp.algorithms.aggregation import weighted_sum
from h2fdp.algorithms.fedavg import Average
from h2fdp.algorithms.server_update import models_of_children
from h2fdp.costs.batteries import Charge
from h2fdp.errors import UserError
from h2fdp.network.parts import Replacement
from h2fdp.privacy import Pipeline, Release, add_gaussian_noise
from h2fdp.privacy.mechanisms.secret_draws import draw_of
from h2fdp.privacy.releases import AlikeReleases
from h2fdp.privacy.views import Past
from h2fdp.protocol.aggregator import NodeGroup, sent_down
from h2fdp.protocol.devices import DeviceMemories
from h2fdp.protocol.interval_plan import IntervalPlan
from h2fdp.protocol.messages import Plan, SubnetState, Upload
from h2fdp.protocol.planned_releases import average_alone, observation
from h2fdp.protocol.planner import Planner
from h2fdp.protocol.tiers import Part, Tiers, Uplinks, UpperAggregator
from h2fdp.schedules import Decision, Schedule
from h2fdp.schedules.measuring import Measured, joined
from h2fdp.schedules.schedule import IntervalObservation

Meter = Callable[[IntervalPlan], Mapping[str, float]]
NoiseChoice = Callable[[IntervalPlan, Sequence[Release]], float]
"""From an interval and what it would release to the factor on its noise."""


class Cloud:
    """Holds the global model w and the clock t_k.

    One interval, in order:
    1. `plan`: the schedule decides tau_k, eta_k and s_c^k; participants are drawn, and the faults that they meet;
       noises follow from who is really averaged.
    2. `releases`: what every observer will receive, for the ledger, before anything is sent.
    3. `run_interval`: w(t_k) goes down (`sent_down`) to the subnets with active devices, their uploads come back.
    4. The server update moves the model by the average, under the cloud's own noise where that is its part; plain
       averaging gives w(t_{k+1}) = w(t_k) - sum_c varrho_c upload_c.
    5. A schedule that learns sees the uploads, or their average where the public's account is of that alone, and what
       it had devices measure at w(t_{k+1}) if anything.
    """

    def __init__(
        self,
        model: Tensor,
        planner: Planner,
        edges: NodeGroup,
        schedule: Schedule,
        server: ServerUpdate | None = None,
        remembers: int = 0,
        meter: Meter | None = None,
        aggregators: Mapping[str, UpperAggregator] | None = None,
        uplinks: Uplinks | None = None,
        replacement: Replacement | None = None,
        down: Pipeline = Pipeline(),  # noqa: B008 - a frozen value
        measures: bool = False,
    ) -> None:
        self.model = model
        self.next_slot = 0
        self._planner = planner
        self._tiers = Tiers(aggregators or {}, edges, uplinks or Uplinks(Pipeline(), planner.streams))
        self._schedule = schedule
        self._replacement, self._measures = replacement, measures
        self._server = Average() if server is None else server
        self._memories = DeviceMemories(remembers) if remembers else None
        self._refuse_unprotected_variate()
        self._meter, self._down = meter, down
        self._reverts = type(schedule).kept is not Schedule.kept  # it may continue from another model
        self.past: Mapping[str, Past] = planner.begun  # of subnets, where the law of the noise has any
        self._charge, self._clock_s = planner.charge, 0.0  # of batteries, and the time that a schedule knows
        self._tell()
        self._kept: dict[str, Any] = {}  # of server and devices, before the interval
        self._versions: dict[int, Tensor] = {}  # the cloud's earlier models that edge servers still work from
        self._models: dict[str, Tensor] = {}  # edge servers' earlier models that devices still train from

    def state(self) -> dict[str, Any]:
        """The state that outlives an interval, in plain values and tensors, for a checkpoint."""
        return (
            {
                "model": self.model,
                "next_slot": self.next_slot,
                "schedule": self._schedule.state(),
                "server": self._server.state(),
                "memories": None if self._memories is None else self._memories.state(),
            }
            | self._older
            | ({"uplinks": self._tiers.uplinks.memories} if self._tiers.uplinks.remembers else {})
            | ({"past": {name: each.state() for name, each in self.past.items()}} if self.past else {})
            | ({"clock_s": self._clock_s} if self._clock_s else {})
            | ({} if self._charge is None else {"charge": dict(vars(self._charge))})
        )

    @property
    def _older(self) -> dict[str, Any]:
        """The older models that are still in use, if any."""
        return {"versions": self._versions, "models": self._models} if self._versions or self._models else {}

    def load(self, state: Mapping[str, Any], *, afresh: bool = False) -> None:
        """Go on from a `state`.

        Args:
            afresh: under draws of other keys.
        """
        self._versions, self._models = dict(state.get("versions", {})), dict(state.get("models", {}))
        self.model, self.next_slot = state["model"], state["next_slot"]
        self._schedule.load(state["schedule"])
        self._server.load(state["server"])
        if self._memories is not None:
            self._memories.load(state["memories"])
        self._tiers.uplinks.memories = dict(state.get("uplinks", {}))
        # Earlier versions stored no past of subnets in which nothing had been released.
        stored, begun = state.get("past", {}), self._planner.begun
        past = {name: each.of_state(stored[name]) if name in stored else each for name, each in begun.items()}
        self.past = {name: each.afresh() for name, each in past.items()} if afresh else past
        self._clock_s = state.get("clock_s", 0.0)
        self._charge = Charge.of_state(state["charge"]) if "charge" in state else self._charge
        self._tell()

    def alike(self, interval: int) -> int:
        """The number of intervals, from this one on, that differ in nothing but their step size and participants."""
        unlike = self._planner.faults.possible or self._planner.begun or self._planner.membership is not None
        return 1 if unlike else self._schedule.alike(interval)

    def model_of(self, edge: str) -> Tensor:
        """(M,) the model that a subnet has: that of all, or its own."""
        return models_of_children(self._server).get(edge, self.model)

    @property
    def ended(self) -> bool:
        """Whether the schedule's last slot is reached."""
        return self._schedule.ends(self.next_slot)

    def memories(self, edge: str) -> Mapping[int, Tensor]:
        """Row -> what each device of a subnet remembers, of those that took part in an interval."""
        return {} if self._memories is None else self._memories.known(edge)

    def plan(self, interval: int, noise: NoiseChoice | None = None) -> IntervalPlan:
        """The plan of interval k, counted from 0.

        Args:
            noise: chooses the noise of the interval by the releases that it plans; None: as it was made.
        """
        decision = self._schedule.decide(interval, self.next_slot)
        plan = self._planned(interval, decision)
        if noise is None or not plan.subnets:
            return plan
        factor = noise(plan, list(self.releases(plan)))
        reasons = None if decision.reasons is None else {**decision.reasons, "noise_factor": factor}
        decision = replace(decision, noise_factor=decision.noise_factor * factor, reasons=reasons)
        return self._planned(interval, decision)

    def _planned(self, interval: int, decision: Decision) -> IntervalPlan:
        plan = self._planner.plan(interval, self.next_slot, decision, self.past, self._charge)
        return replace(plan, began_s=self._clock_s) if self._clock_s else plan

    def _tell(self) -> None:
        """Tell the schedule how many devices of each subnet are not out of the run."""
        if self._charge is not None:
            self._schedule.devices_left(self._planner.left(self._charge))

    def releases(self, plan: IntervalPlan) -> Iterator[Release]:
        """Every release of the interval, as each observer sees it: the ledger's rows."""
        return self._planner.noises.releases(plan)

    def alike_releases(self, plan: IntervalPlan) -> Iterator[AlikeReleases]:
        """The releases, once for all subnets that look alike."""
        return self._planner.noises.alike(plan)

    def above(self, edges: NodeGroup) -> Cloud:
        """This cloud as it is now, above other hosts: how it travels to a host of its own and back."""
        other = copy(self)
        other._tiers = self._tiers.above(edges)
        return other

    def become(self, other: Cloud) -> None:
        """Go on as `other`, which ran an interval elsewhere; the hosts below stay."""
        vars(self).update(vars(other) | {"_tiers": self._tiers})
        self._tiers.uplinks.memories = other._tiers.uplinks.memories

    def skip(self, plan: IntervalPlan, times: int = 1) -> None:
        """Let intervals that are alike pass without running them, to plan the ones after them."""
        for interval in range(plan.interval, plan.interval + times):
            spent = self._spent(plan)
            self._schedule.skipped(interval, plan.decision.local_steps, spent)
            self._pass(replace(plan, first_slot=self.next_slot), spent)

    def _pass(self, plan: IntervalPlan, spent: Mapping[str, float]) -> None:
        self.next_slot, self._charge = plan.last_slot, plan.charge
        self._clock_s += spent.get("clock_s", 0.0)
        self._tell()
        if self._planner.begun:
            self.past = self._planner.noises.after(plan)

    def run_interval(self, plan: IntervalPlan) -> None:
        """Run a plan: the model goes down, uploads come up, the model moves."""
        received: dict[str, Upload] = {}
        states: dict[str, SubnetState] = {}
        uploaded: Uploaded | None = None
        before = self.model
        if self._reverts:
            memories = None if self._memories is None else self._memories.state()
            # Copied, as a server may change in place what it remembers.
            uplinks = dict(self._tiers.uplinks.memories)
            self._kept = {"server": deepcopy(self._server.state()), "memories": memories, "uplinks": uplinks}
        if plan.subnets:
            states = self._states(plan)
            sent = sent_down(self._down, self._planner.streams, "cloud", before, plan.interval, plan.first_slot)
            asked = self._sent(plan, sent)
            received = self._tiers.run_interval(asked, self._server.variate, states)
            assert not any(each.raw for each in received.values()), "the cloud sees no raw update"
            uploaded = self._uploaded(plan, received, states)
            if not average_alone(self._planner.facts):
                uploaded = replace(
                    uploaded,
                    updates={name: received[name].update for name in plan.parts},
                    began={name: model for name, (model, _) in asked.items()},
                    weights=plan.branch_weights,
                    children=self._planner.children or tuple(self._planner.facts),
                )
            self.model = self._server.apply(before, uploaded)
        spent = self._spent(plan)
        if self._schedule.observes:
            self._schedule.observe(replace(self._observed(plan, before, received, states, uploaded), spent=spent))
        self._pass(plan, spent)

    def close(self, loss: float | None) -> bool:
        """End an interval that was run: the schedule may continue from another model.

        Args:
            loss: on public records; None where it was not evaluated.

        Returns:
            whether it does, so that scores of the interval's model are not those of the model that goes on.
        """
        if self._schedule.scores:
            assert loss is not None, "this schedule scores every interval"
            self._schedule.scored(loss)
        kept = self._schedule.kept(self.model)
        if kept is self.model:
            return False
        # The interval is given up: so is what server and devices remember of it.
        self._server.load(self._kept["server"])
        if self._memories is not None:
            self._memories.load(self._kept["memories"])
        self._tiers.uplinks.memories = self._kept["uplinks"]
        self.model = kept
        return True

    @property
    def scores(self) -> bool:
        """Whether `close` wants a loss."""
        return self._schedule.scores

    @property
    def returned(self) -> Tensor:
        """(M,) the model that training returns if it ends now."""
        return self._schedule.returned(self.model)

    def _observed(
        self,
        plan: IntervalPlan,
        before: Tensor,
        received: Mapping[str, Upload],
        states: Mapping[str, SubnetState],
        uploaded: Uploaded | None,
    ) -> IntervalObservation:
        """The observation that the schedule is shown, measurements included. Its decisions and the model that it
        keeps are public."""
        uploads = [received[name].update for name in plan.parts]
        if uploaded is not None and average_alone(self._planner.facts):
            uploads = [uploaded.average]
        seen = observation(plan, before, uploads, self._planner.facts, self._planner.noise)
        return replace(seen, measured=self._measured(plan, states))

    def _spent(self, plan: IntervalPlan) -> Mapping[str, float]:
        """The costs of the interval, where they are metered."""
        return {} if self._meter is None or not self._schedule.observes else self._meter(plan)

    def _measured(self, plan: IntervalPlan, states: Mapping[str, SubnetState]) -> Measured | None:
        asked, weights = {}, []
        for (name, part), share in zip(plan.subnets.items(), plan.shares.tolist(), strict=True):
            ends, last_steps = states[name].ends, states[name].last_steps
            if ends is not None and last_steps is not None:
                asked[name] = replace(part, state=SubnetState(ends=ends, last_steps=last_steps))
                weights.append(share * part.aggregation(-1).shares)
        if not asked:
            return None
        answers = self._tiers.edges.call("measure", self.model, asked)
        mass = np.concatenate(weights)
        return {**joined([answers[name] for name in asked]), "weights": mass / mass.sum()}

    def _sent(self, plan: IntervalPlan, model: Tensor) -> dict[str, tuple[Tensor, Part]]:
        """The cloud's children with the model that each begins with: the newest, or its own, where it waits for all."""
        arrivals, parts = plan.decision.arrivals, plan.parts
        if arrivals is None:
            own = models_of_children(self._server)
            return {name: (own.get(name, model), part) for name, part in parts.items()}
        self._versions[plan.interval] = model
        began = dict(
            zip(parts, (arrivals.backlogs[number].version for number in sorted(arrivals.backlogs)), strict=True)
        )
        sent = {name: (self._versions[began[name]], part) for name, part in parts.items()}
        self._versions = {number: self._versions[number] for number in arrivals.kept}
        return sent

    def _states(self, plan: IntervalPlan) -> dict[str, SubnetState]:
        """The state that subnets need of the intervals before."""
        self._refuse_unprotected_variate()  # a server of the user's own may send one only later

        def state(name: str, part: Plan) -> SubnetState:
            memory = None if self._memories is None else self._memories.of(name, part.rows)
            models = None if part.begun is None else self._models.pop(name, None)
            return SubnetState(memory=memory, models=models, watched=self._measures)

        return {name: state(name, part) for name, part in plan.subnets.items()}

    def _refuse_unprotected_variate(self) -> None:
        """Refuse a variate whose devices send changes of their memory raw, as not each of their steps has noise.

        Raises:
            UserError: the run promises a guarantee.
        """
        guarded = self._planner.noise is not None and not all(
            each.pipeline.noisy_steps for each in self._planner.subnets
        )
        if self._memories is not None and self._server.variate is not None and guarded:
            text = "devices that remember answer its `variate` with the change of their memory, which gets no noise"
            raise UserError(f"{text}; expected a server without one, or a method without noise", key="method.server")

    def _uploaded(
        self, plan: IntervalPlan, received: Mapping[str, Upload], states: Mapping[str, SubnetState]
    ) -> Uploaded:
        self._models |= {name: each.models for name, each in states.items() if each.models is not None}
        if self._memories is not None:
            for name, part in plan.subnets.items():
                memory = states[name].memory
                assert memory is not None, "devices under this objective remember"
                self._memories.keep(name, part.rows, memory)
        updates = [received[name].update for name in plan.parts]
        if self._replacement is not None:
            updates = list(self._replacement(torch.stack(updates), list(plan.parts)))
        average = self._planner.averaging.above.combine(updates, plan.branch_weights)
        if any(facts.adds_noise == "cloud" for facts in self._planner.subnets):
            stream = self._planner.streams.borrowed("cloud", "noise-central", plan.interval, plan.last_slot)
            average = add_gaussian_noise(average, plan.noise_std, stream)
        variates = [each for name in plan.subnets if (each := states[name].variate) is not None]
        devices = sum(len(facts.records) for facts in self._planner.subnets)
        changed_by = weighted_sum(variates, plan.shares) if variates else None
        draw = draw_of(self._planner.subnets[0].pipeline)
        share = 1.0 if draw is None else draw.rate
        return Uploaded(average, changed_by, share * plan.participants / devices)
