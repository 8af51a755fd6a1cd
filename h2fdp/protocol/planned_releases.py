"""Releases of a planned interval: vectors that observers receive, their noise, and facts that a schedule may learn."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from h2fdp.privacy import Mechanism, Merged, Release, Span, Uploads, releases
from h2fdp.privacy.mechanisms.secret_draws import as_one, draw_of
from h2fdp.privacy.places import Holder, Observer, Segment
from h2fdp.privacy.releases import Adjacency, AlikeReleases, device_ranges, rows_in, under
from h2fdp.privacy.views import Past, Sensitivities, Vector, hidden_variance, merged
from h2fdp.protocol.interval_plan import IntervalPlan
from h2fdp.protocol.messages import Plan, SubnetPhase
from h2fdp.protocol.subnet_facts import SubnetFacts
from h2fdp.schedules.schedule import IntervalObservation


def average_alone(facts: Mapping[str, SubnetFacts]) -> bool:
    """Whether the public's account is of the global average alone: the cloud adds the noise, or holds a secure sum.

    Elsewhere it covers what each of the cloud's children uploads.
    """
    return any(each.cloud_sums or each.adds_noise == "cloud" for each in facts.values())


def observation(
    plan: IntervalPlan,
    model: Tensor,
    uploads: list[Tensor],
    facts: Mapping[str, SubnetFacts],
    noise: Mechanism | None,
) -> IntervalObservation:
    """The facts that a schedule may know of an interval that began at `model` (M,).

    Args:
        uploads: (M,) of the cloud's children, or one, their average, where `average_alone`.
    """
    variances, steps = _noise_and_steps(plan, facts, noise)
    shares = plan.shares if plan.branches is None else np.array([each.share for each in plan.branches.values()])
    if uploads and average_alone(facts):
        variance, gradients = noise_and_gradients(plan, facts, noise)
        variances, steps, shares = np.array([variance]), np.array([gradients]), np.ones(1)
    return IntervalObservation(
        plan.interval,
        plan.decision.local_steps,
        plan.decision.step_size,
        model,
        uploads,
        shares,
        variances,
        steps,
        children=tuple(plan.parts),
    )


def noise_and_gradients(
    plan: IntervalPlan, facts: Mapping[str, SubnetFacts], noise: Mechanism | None
) -> tuple[float, float]:
    """Variance of all noise on each coordinate of the global average, and the mean number of gradients in it."""
    variances, steps = _noise_and_steps(plan, facts, noise)
    weights = plan.branch_weights
    return float(weights**2 @ variances) + plan.noise_std**2, float(weights @ steps)


def _noise_and_steps(
    plan: IntervalPlan, facts: Mapping[str, SubnetFacts], noise: Mechanism | None
) -> tuple[np.ndarray, np.ndarray]:
    """(n,) of the uploads of the cloud's children: variance of their noise, and gradients that they accumulate."""
    if plan.branches is not None:
        children = plan.branches.values()
        return np.array([each.noise_variance for each in children]), np.array([each.steps for each in children])
    planned = PlannedNoise(facts, noise)
    known: dict[int, tuple[float, float]] = {}
    for (name, subnet), number in zip(plan.subnets.items(), plan.classes, strict=True):
        if number not in known:
            known[number] = sum(planned.variances(plan, name).tolist()), _mean_steps(subnet)
    return np.array([known[each][0] for each in plan.classes]), np.array([known[each][1] for each in plan.classes])


def _mean_steps(subnet: Plan) -> float:
    """The number of gradients that the upload accumulates: of each aggregation the weighted sum over its devices."""
    if subnet.tasks.whole and (subnet.weights == subnet.shares).all():
        return float(sum(subnet.segments))
    return sum(float(phase.weights @ phase.steps) for phase in subnet.aggregations())


@dataclass(frozen=True)
class NoiseOnModel:
    """The noise that the global model takes up in a run without faults, before the server's own update rule.

    If r is the noise `per_step`, the run descends by gradients g + N(0, r^2 I) on average, so that its ratio of noise
    to signal is r / |g|. Where gradients are clipped, |g| is at most the clip norm.

    Attributes:
        noise_std: of each coordinate, of all intervals' noise together; of noise at local steps to first order, as if
            the noise of one step did not change the gradients of the next.
        way: sum over all intervals of step size times the gradients that the average of the uploads adds up.
    """

    noise_std: float
    way: float

    @property
    def per_step(self) -> float:
        """r: the noise, over the length of the way that it would have gone along gradients of norm 1."""
        return self.noise_std / self.way

    def scaled(self, noise: float, steps: float = 1.0) -> NoiseOnModel:
        """The noise on the model under noises and step sizes that are larger by these factors."""
        return NoiseOnModel(self.noise_std * noise, self.way * steps)


@dataclass(frozen=True)
class PlannedNoise:
    """The noise of a network, by its plans.

    Attributes:
        facts: the subnets by name.
        noise: None where none is added.
        adjacency: what the ledger's sensitivities are about.
    """

    facts: Mapping[str, SubnetFacts]
    noise: Mechanism | None
    adjacency: Adjacency = "null-record"

    def variances(self, plan: IntervalPlan, name: str) -> np.ndarray:
        """(segments,) of the noise on each coordinate of a subnet's averages."""
        if self.noise is None:
            return np.zeros(len(plan.subnets[name].segments))
        return np.array([self.noise.variance(each) for _, each in self._uploads(plan, name)])

    def hidden_variances(self, plan: IntervalPlan, name: str) -> np.ndarray:
        """(segments,) of the part of that noise that hides other devices: what colluding devices do not reveal."""
        facts = self.facts[name]
        if facts.shown == 0:  # no upload hides another one
            return np.zeros(len(plan.subnets[name].segments))
        if facts.place is None or facts.place.tolerance.colluding == 0:
            return self.variances(plan, name)
        return np.array([hidden_variance(facts.place, each.parts) for _, each in self._uploads(plan, name)])

    def summed(self, plan: IntervalPlan) -> dict[str, dict[int, tuple[Merged, ...]]]:
        """The cloud's secure sum above each subnet's last average, in a network of one tier."""
        children = [
            (share, Vector(float(self.hidden_variances(plan, name)[-1]), 0.0, {name: (1.0, 0.0)}))
            for (name, subnet), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True)
            if subnet.aggregation(-1).rows.size
        ]
        views = merged(children, 0.0, 0.0).views()
        return {name: {len(plan.subnets[name].segments) - 1: (view,)} for name, view in views}

    def of_cloud(self, plan: IntervalPlan) -> float:
        """The standard deviation of what the cloud adds to the average, for the devices really in it."""
        place = next((each.place for each in self.facts.values() if each.adds_noise == "cloud"), None)
        if self.noise is None or place is None:
            return 0.0
        parts = zip(plan.subnets.items(), plan.weights.tolist(), strict=True)
        last = ((self.facts[name], share, subnet.aggregation(-1)) for (name, subnet), share in parts)
        asked = (facts.asked(share * each.weights, each.rows) for facts, share, each in last)
        largest = max((float(each.max(initial=0.0)) for each in asked), default=0.0)
        whole = Segment(plan.interval, plan.first_slot, plan.last_slot, "global", step_size=plan.decision.step_size)
        span = Span(place, None, whole, plan.decision.local_steps)
        return self.noise.unit(span) * largest * plan.decision.noise_factor

    def releases(self, plan: IntervalPlan) -> Iterator[Release]:
        """Every release of the interval, as each observer sees it: the ledger's rows.

        Subnets that look alike have the same ones, but for the name: they are worked out for the first of these.
        """
        if plan.charged is not None:
            for each in plan.charged:
                yield from self.releases(each)
            return
        by_name = {name: alike for alike in self.alike(plan) for name in alike.edges}
        for name in plan.subnets if self.noise is not None else ():
            first, rows = by_name[name].edges[0], by_name[name].releases
            yield from rows if name == first else (replace(release, edge=name) for release in rows)

    def alike(self, plan: IntervalPlan) -> Iterator[AlikeReleases]:
        """The releases, once for all subnets that look alike; they have one `Plan`."""
        if self.noise is None:
            return
        if plan.charged is not None:
            for each in plan.charged:
                yield from self.alike(each)
            return
        for subnets in self._alike(plan):
            yield AlikeReleases([name for name, _ in subnets], list(self._of_subnet(plan, *subnets[0])))

    def _alike(self, plan: IntervalPlan) -> Iterable[list[tuple[str, float]]]:
        """Subnets that have the same releases, with their weights in the global average."""
        alike: dict[Hashable, list[tuple[str, float]]] = {}
        for name, number, share in zip(plan.subnets, plan.classes, plan.weights.tolist(), strict=True):
            likeness = number, share, tuple(plan.vectors.get(name, {}).items())
            alike.setdefault(likeness, []).append((name, share))
        return alike.values()

    def after(self, plan: IntervalPlan) -> Mapping[str, Past]:
        """The pasts of subnets after the interval, where the law of the noise has any."""
        past = dict(plan.past)
        for subnets in self._alike(plan):
            for _, _, _, newest in self._known(plan, subnets[0][0]):
                past |= {} if newest is None else dict.fromkeys((name for name, _ in subnets), newest)
        return past

    def _known(
        self, plan: IntervalPlan, name: str
    ) -> Iterator[tuple[SubnetPhase, Uploads, Sensitivities, Past | None]]:
        """Phase, what is uploaded in it, how far records move it; the past then, if the law has any."""
        assert self.noise is not None, "there is nothing to release under no noise"
        facts = self.facts[name]
        law, past = facts.pipeline.law, plan.past.get(name)
        for phase, uploads in self._uploads(plan, name):
            if not uploads.rows.size:
                continue
            sensitivities = self.noise.sensitivities(uploads)
            if past is not None:
                past, uploads, sensitivities = past.joined(law, uploads, sensitivities, facts.unaccounted)
            yield phase, uploads, sensitivities, past

    def _uploads(self, plan: IntervalPlan, name: str) -> Iterator[tuple[SubnetPhase, Uploads]]:
        """The uploads of a subnet at each aggregation."""
        assert self.noise is not None, "there is nothing to release under no noise"
        facts, subnet = self.facts[name], plan.subnets[name]
        for phase in subnet.aggregations():
            place = facts.places[self._passed(plan, name, phase.number) - 1]
            assert place is not None, "somebody adds noise"
            levels, honest = self.noise.stated(phase.accounted), None
            if facts.unaccounted:
                honest = ~np.isin(phase.rows, facts.unaccounted)
                levels = levels if place.by_node else levels * honest
            yield (
                phase,
                phase.becomes(
                    Uploads,
                    edge=name,
                    place=place,
                    weights=phase.reach,
                    sampling_rates=facts.sampling_rates[phase.rows],
                    records=facts.records[phase.rows],
                    levels=levels,
                    sampling=facts.sampling if place.holder is Holder.STEP or not facts.in_epochs else "fixed",
                    honest=honest,
                    epochs=facts.steps_per_epoch[phase.rows] if facts.in_epochs else None,
                ),
            )

    def _passed(self, plan: IntervalPlan, name: str, segment: int) -> int:
        """The number of aggregators that average what is uploaded at the end of a segment."""
        facts = self.facts[name]
        return facts.passed(plan.heights[segment]) if plan.heights else 1

    def _of_subnet(self, plan: IntervalPlan, name: str, share: float) -> Iterator[Release]:
        """The rows of a subnet, whose weight in the global average is `share`."""
        follows = self.facts[name].follows
        if draw_of(self.facts[name].pipeline) is not None:
            yield from as_one(row for made in self._rows(plan, name, share) for row in made)
            return
        for made in self._rows(plan, name, share):
            changed = under(self.adjacency, made)
            yield from changed if follows is None else _of_moving(changed, dict(follows))

    def _rows(self, plan: IntervalPlan, name: str, share: float) -> Iterator[Iterator[Release]]:
        assert self.noise is not None, "there is nothing to release under no noise"
        facts, at_last = self.facts[name], plan.vectors.get(name, {})
        for phase, uploads, sensitivities, _ in self._known(plan, name):
            above = at_last.get(phase.number, ())
            if rounding := phase.rounding:
                sensitivities = sensitivities.grown(rounding, uploads.weights)
            if facts.adds_noise == "cloud":
                above = (*above, Merged(share, plan.noise_std, 0.0))
            levels = facts.vectors_seen(
                self._passed(plan, name, phase.number), facts.cloud_sums and uploads.segment.kind == "global"
            )
            step = uploads.place.holder is Holder.STEP
            kind = "step" if step else self.noise.kind(uploads.segment.kind)
            yield releases(uploads, kind, sensitivities, above, levels, facts.peers)


def _of_moving(made: Iterator[Release], follows: Mapping[Observer, tuple[bool, ...]]) -> Iterator[Release]:
    """The rows of a network in which devices move, with those of observers who know a device from elsewhere.

    An edge server that a device has left, or a device that it has left behind, still receives every global model: what
    everybody receives of the device where it is now. That it holds together with what it had before.
    """
    for release in made:
        yield replace(release, moves=True)
        for observer, rows in follows.items() if release.observer == "public" else ():
            known = [row for part in rows_in(release.devices) for row in range(part.start, part.stop) if rows[row]]
            if known:
                yield replace(release, moves=True, observer=observer, devices=device_ranges(known))
