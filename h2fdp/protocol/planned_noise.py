"""The noise of a planned interval: on each average, what of it observers cannot subtract, and what it covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from h2fdp.privacy import AdaptiveClipping, Mechanism, Release, TierVector
from h2fdp.privacy.adjacency import Adjacency, under
from h2fdp.privacy.releases import AlikeReleases
from h2fdp.protocol.interval_plan import IntervalPlan
from h2fdp.protocol.planned_uploads import uploads_of
from h2fdp.protocol.subnet_facts import SubnetFacts
from h2fdp.protocol.upper_vectors import summed


@dataclass(frozen=True)
class PlannedNoise:
    """What the plans of a network say about its noise.

    Attributes:
        facts: the subnets by name.
        noise: None where none is added.
        adjacency: what the ledger's sensitivities are about.
        adaptive: how the clip norm moves; None where it does not.
        clip_norm: of the interval at hand, where it moves.
    """

    facts: Mapping[str, SubnetFacts]
    noise: Mechanism | None
    adjacency: Adjacency
    adaptive: AdaptiveClipping | None
    clip_norm: float | None

    def variances(self, plan: IntervalPlan, name: str) -> np.ndarray:
        """(segments,) of the noise on each coordinate of a subnet's averages."""
        subnet = plan.subnets[name]
        if self.noise is None:
            return np.zeros(len(subnet.segments))
        uploads = [each for each in uploads_of(self.facts[name], plan, subnet, 1.0) if each.kind != "estimate"]
        return np.array([self.noise.upload_variance(each) for each in uploads])

    def hidden_variances(self, plan: IntervalPlan, name: str) -> np.ndarray:
        """(segments,) of what of that noise colluding devices do not tell."""
        facts, subnet = self.facts[name], plan.subnets[name]
        if facts.visible == "each":  # no upload hides another one
            return np.zeros(len(subnet.segments))
        if facts.trust_model.colluding == 0:
            return self.variances(plan, name)
        shares = [
            facts.trust_model.noise_parts(subnet.accounted_noise(segment), subnet.aggregation(segment).weights)
            for segment in range(len(subnet.segments))
        ]
        return np.array([facts.trust_model.hidden_variance(each) if each.size else 0.0 for each in shares])

    def summed(self, plan: IntervalPlan) -> dict[str, dict[int, tuple[TierVector, ...]]]:
        """The cloud's secure sum above each subnet's last average, in a network of one tier."""
        averaged = [
            (name, share, self.hidden_variances(plan, name)[-1])
            for (name, subnet), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True)
            if subnet.aggregation(-1).rows.size
        ]
        return summed({name: len(part.segments) - 1 for name, part in plan.subnets.items()}, averaged)

    def of_cloud(self, plan: IntervalPlan) -> float:
        """The standard deviation of what the cloud adds to the average, for the devices really in it."""
        if self.noise is None:
            return 0.0
        parts = zip(plan.subnets.values(), plan.weights.tolist(), strict=True)
        averaged = [share * subnet.aggregation(-1).weights for subnet, share in parts]
        return self.noise.of_cloud(averaged) * plan.decision.noise_factor

    def releases(self, plan: IntervalPlan) -> Iterator[Release]:
        """Every release of the interval, as each observer sees it: the ledger's rows.

        Subnets that look alike have the same ones, but for the name: they are worked out for the first of these, and
        held until the last has them.
        """
        if self.noise is None:
            return
        likenesses = self._likenesses(plan)
        left, held = Counter(likenesses.values()), dict[Hashable, list[Release]]()
        for (name, likeness), share in zip(likenesses.items(), plan.weights.tolist(), strict=True):
            left[likeness] -= 1
            if likeness in held:
                yield from (replace(release, edge=name) for release in held[likeness])
                if not left[likeness]:
                    del held[likeness]
            elif left[likeness]:
                held[likeness] = list(self._of_subnet(plan, name, share))
                yield from held[likeness]
            else:
                yield from self._of_subnet(plan, name, share)

    def alike(self, plan: IntervalPlan) -> Iterator[AlikeReleases]:
        """The same, once for all subnets that look alike."""
        if self.noise is None:
            return
        shares = dict(zip(plan.subnets, plan.weights.tolist(), strict=True))
        found: dict[Hashable, list[str]] = {}
        for name, likeness in self._likenesses(plan).items():
            found.setdefault(likeness, []).append(name)
        for names in found.values():
            yield AlikeReleases(names, list(self._of_subnet(plan, names[0], shares[names[0]])))

    def _likenesses(self, plan: IntervalPlan) -> dict[str, Hashable]:
        """What the releases of each subnet depend on beside its name; those that look alike have the same `Plan`."""
        return {
            name: (id(subnet), self.facts[name].likeness, share, tuple(plan.vectors.get(name, {}).items()))
            for (name, subnet), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True)
        }

    def _of_subnet(self, plan: IntervalPlan, name: str, share: float) -> Iterator[Release]:
        facts, subnet = self.facts[name], plan.subnets[name]
        assert self.noise is not None, "there is nothing to release under no noise"
        before, made = None, list[Release]()
        for upload in uploads_of(facts, plan, subnet, share):
            if before is not None and upload.repeats(before):
                later = upload.slot - before.slot
                made = [replace(release, slot=release.slot + later) for release in made]
            else:
                made = list(under(self.adjacency, self.noise.releases(upload)))
                made = made if self.adaptive is None else list(map(self._with_votes, made))
            yield from made
            before = upload

    def _with_votes(self, release: Release) -> Release:
        """The same, saying that votes about a clip norm are part of it."""
        assert self.adaptive is not None, "votes are about a clip norm that moves"
        return replace(release, clip_norm=self.clip_norm, vote_share=self.adaptive.share)
