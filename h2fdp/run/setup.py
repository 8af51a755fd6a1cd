"""A run that is ready to start: its cloud, planner and schedule, built from what determines it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from h2fdp.algorithms import ServerContext, aggregation_of, server_of
from h2fdp.algorithms.upcycled import upcycled
from h2fdp.privacy import SecureSum, padded
from h2fdp.privacy.secure_sum import KEY_BITS, SHARE_BITS
from h2fdp.protocol import Averaging, Cloud, NodeGroup, Planner
from h2fdp.protocol.planned_uploads import noise_and_gradients
from h2fdp.radio import ExchangeSizes
from h2fdp.run.inputs import RunInputs
from h2fdp.run.interval_meter import IntervalMeter
from h2fdp.schedules import Decision, Schedule, ScheduleContext
from h2fdp.training.descent import gradients_in_uploads
from h2fdp.training.local_objective import pull_of


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSetup(RunInputs):
    """A run, complete but not started. `prepare` builds it: nothing is added later."""

    def cloud(self, edges: NodeGroup) -> Cloud:
        """The cloud at the start of the run, above these edge servers."""
        method, schedule = self.config.method, self.schedule()
        aggregators = self.blueprint.aggregators(self.blueprint.tiers())
        planner = self._planner(schedule.observes)
        context = ServerContext(self.initial.numel(), self.blueprint.objective)
        return Cloud(
            self.initial,
            planner,
            edges,
            schedule,
            server=upcycled(server_of(method.server, context), method.upcycle),
            remembers=self.blueprint.objective.memory is not None,
            meter=self.interval_costs,
            aggregators=aggregators,
        )

    @cached_property
    def interval_costs(self) -> IntervalMeter:
        """What planned intervals cost."""
        return IntervalMeter(self.topology, self.costs, self.exchange_sizes, self.placement.cloud_sums)

    @cached_property
    def exchange_sizes(self) -> ExchangeSizes | None:
        """Of what devices exchange under secure-sum edge servers; None where the method has no secure sums."""
        model = self.placement.trust_model("secure-sum")
        if not isinstance(model, SecureSum):
            return None
        message = vector = self.costs.message_bits
        if model.rounding is not None:
            vector = model.rounding * padded(self.initial.numel())
        return ExchangeSizes.of_bits(key=KEY_BITS, share=SHARE_BITS, vector=vector, message=message)

    def _planner(self, observes: bool) -> Planner:
        """Plans intervals; `observes` where a schedule learns from what devices measure, if anything."""
        config, tiers = self.config, self.blueprint.tiers()
        estimates = "released" if self.blueprint.measuring is None else config.control.estimates
        return Planner(
            streams=self.blueprint.streams,
            subnets=self.blueprint.facts,
            aggregation_times=self.aggregation_times,
            noise=self.noise,
            averaging=Averaging(
                aggregation_of(config.method.aggregation),
                config.training.weights,
                partial(gradients_in_uploads, config.training.momentum, pull_of(self.blueprint.objective) or 0.0),
            ),
            faults=self.faults,
            epochs=config.training.local_epochs,
            measures=observes and estimates != "released",
            leaks=estimates == "oracle",
            world=self.world,
            tiers=tiers,
            children=self.topology.children(None),
            parameters=self.initial.numel(),
            longest=self.blueprint.longest(),
            adjacency=config.privacy.adjacency,
            adaptive=self.blueprint.adaptive,
        )

    def noise_brought(self, tau: int) -> np.ndarray:
        """(N,) each subnet's part of the noise variance on the global model after an interval of tau steps of size 1,
        in which all devices that may take part do: what the mechanism really adds, before it is calibrated to an
        account. Noise of aggregators above edge servers is divided equally.
        """
        noise = self.noise if self.uncalibrated is None else self.uncalibrated
        planner = replace(self.without_faults(), noise=noise)._planner(observes=False)
        plan = planner.plan(0, 0, Decision(tau, 1.0, self.context.participation))
        parts = [
            weight**2 * planner.noises.variances(plan, name).sum()
            for name, weight in zip(plan.subnets, plan.weights.tolist(), strict=True)
        ]
        whole, _ = noise_and_gradients(plan, planner.facts, noise)
        return np.asarray(np.array(parts) + max(0.0, whole - sum(parts)) / len(parts))

    def releases_made(self, tau: int) -> int:
        """The most releases about one device that an observer has of an interval of tau steps, if all take part."""
        noise = self.noise if self.uncalibrated is None else self.uncalibrated
        planner = replace(self.without_faults(), noise=noise)._planner(observes=False)
        accounts = self.empty_accounts()
        accounts.add(planner.releases(planner.plan(0, 0, Decision(tau, 1.0, self.context.participation))))
        found = (each.composition for observer in self.observers for each in accounts.classes(observer))
        return max((sum(each.values()) for each in found), default=0)

    @property
    def context(self) -> ScheduleContext:
        """What the schedule is built from."""
        training, privacy = self.config.training, self.config.privacy
        models = [facts.trust_model for facts in self.blueprint.facts]
        return ScheduleContext(
            topology=self.topology,
            costs=self.costs,
            streams=self.blueprint.streams.public,
            aggregation_times=self.aggregation_times,
            one_noise=np.array([model.one_noise for model in models]),
            exchanges=[self.exchange_sizes if model.shares_noise else None for model in models],
            intervals=training.intervals,
            local_steps=self.local_steps,
            step_size=training.step_size,
            step_decay=training.step_decay,
            share=training.participation,
            parameters=self.initial.numel(),
            sampling_rates=self.blueprint.rates,
            records=self.data.sizes,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            c2=privacy.c2,
            v2=privacy.c2 if privacy.v2 is None else privacy.v2,
            clip_norm=training.first_clip_norm,
            control=self.config.control,
            step_noise_multiplier=self.step_noise_multiplier,
            iterations=self.iterations,
            noise=None if self.noise is None else self.noise_brought,
            accounted=privacy.calibration == "accounted",
            releases=None if self.noise is None else self.releases_made,
        )

    def schedule(self) -> Schedule:
        """The schedule at the start of the run."""
        return self.traits.build(self.context)
