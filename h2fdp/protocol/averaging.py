"""The weights of every aggregation of an interval, by the method's aggregation, from what is public."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import get_args

import numpy as np

from h2fdp.algorithms.aggregation import Aggregation, Contributions, Link, WeightedAverage, upload_weights
from h2fdp.algorithms.fedavg import Plain
from h2fdp.costs.traffic import Tasks
from h2fdp.errors import UserError
from h2fdp.privacy import Mechanism
from h2fdp.privacy.views import Vector
from h2fdp.protocol.messages import Plan, present_shares
from h2fdp.protocol.subnet_facts import SubnetFacts, Weighting
from h2fdp.protocol.tiers import Part
from h2fdp.training.local_steps import Descent

_WANTED = "expected an aggregation that is a sum, such as average"
GradientCounts = Callable[[float, int], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A child of an aggregator in a stretch of an interval: what it does, and what it sends up.

    Attributes:
        part: its plan.
        records, devices: of those below of which anything arrives.
        steps, gradients: that its upload adds up.
        last: what it sends of the last segment; None where nothing of that arrives, or in a network of one tier.
        noise_variance: of each coordinate of its upload, of all noise that it accumulates; not a number there.
        share, weight: of a child of the cloud in its average; not a number elsewhere.
        mass: see `SubnetFacts.mass`.
    """

    part: Part
    records: float
    devices: int
    steps: float
    gradients: float
    last: Vector | None = None
    noise_variance: float = nan
    share: float = nan
    weight: float = nan
    mass: float = 1.0


@dataclass(frozen=True)
class Averaging:
    """Weighs uploads, at all aggregators of a link by the same rule.

    Attributes:
        weighting: `training.weights`, by which devices and subnets have shares.
        counts: from a step size and the most steps to the gradients in uploads of 0, 1, ... steps.
    """

    aggregation: Aggregation = WeightedAverage()  # noqa: RUF009 - a frozen value
    weighting: Weighting = "uniform"
    counts: GradientCounts = Descent(Plain()).counts

    def of_branches(self, branches: Sequence[Branch], planned_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """(n,) shares of these children, summing to 1, and (n,) weights of their uploads."""
        records = np.array([each.records for each in branches])
        mass = np.array([each.mass for each in branches])
        shares = mass / (mass.sum() or 1.0)
        if not branches:
            return shares, shares
        uploads = Contributions(
            shares=shares,
            records=records,
            devices=np.array([each.devices for each in branches]),
            steps=np.array([each.steps for each in branches]),
            gradients=np.array([each.gradients for each in branches]),
            planned_steps=planned_steps,
        )
        return shares, upload_weights(self.above, uploads)[0]

    @property
    def above(self) -> Aggregation:
        """The aggregation of what edge servers send up."""
        return self.aggregation.at("edge")

    def reach(self, weights: np.ndarray, raw: bool, link: Link) -> np.ndarray:
        """(n,) see `Aggregation.reach`; the weights where there is no bound and none is needed.

        Args:
            raw: some of the updates have no noise yet, and that of the result is sized by how far they move it.

        Raises:
            UserError: there is no bound, and one is needed.
        """
        reaches = self.aggregation.at(link).reach(weights)
        if reaches is None and raw:
            text = "trusted edge servers add noise to averages, and nothing says how far one upload moves this one"
            raise UserError(f"{text}; {_WANTED}, or its `reach`", key="method.aggregation")
        return weights if reaches is None else reaches

    def refuse(self, subnets: Sequence[SubnetFacts]) -> None:
        """Refuse a rule under which uploads are not hidden as these subnets' trust has it.

        Raises:
            UserError: sums alone are seen, but the rule is no function of a sum; a trusted node adds the noise to what
                the rule makes of raw uploads, and nothing bounds how far one of them moves that.
        """
        raw = {
            "device": any(facts.adds_noise == "edge" for facts in subnets),
            "edge": any(facts.adds_noise == "edge" and facts.place.node > 0 for facts in subnets if facts.place),
        }
        sums = {
            "device": any(facts.sees_sums for facts in subnets),
            "edge": any(facts.sums or facts.cloud_sums for facts in subnets),
        }
        for link in get_args(Link):
            if self.aggregation.at(link).visible == "sum":
                continue
            if sums[link]:
                text = "a secure sum shows no single uploads, which this rule needs"
                raise UserError(f"{text}; {_WANTED}, or no secure sums", key="method.aggregation")
            self.reach(np.ones(1), raw[link], link)

    def of_subnet(
        self,
        facts: SubnetFacts,
        tasks: Tasks,
        step_size: float,
        noise: Mechanism | None,
        ages: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """`Plan.weights`, `reach` and `portions` of the devices that have these tasks.

        Args:
            ages: (segments, s) what the age of a model leaves of each upload's weight; None for all of it.
            noise: says how much noise uploads of fewer steps ask for; None where none is added.
        """
        rows, whole = tasks.rows, tasks.whole
        shares, records = facts.shares(rows, self.weighting), facts.records[rows]
        counts = self.counts(step_size, max([*tasks.segments, 0 if whole else int(tasks.steps.max(initial=0))]))
        weights, plain, portions = np.zeros(tasks.steps.shape), True, None
        aggregation = self.aggregation.at("device")
        reach = weights if aggregation.visible == "sum" else np.zeros_like(weights)
        known: dict[int, int] = {}  # of devices that do all steps: the segment of as many
        for segment, planned in enumerate(tasks.segments):
            if whole and planned in known:
                weights[segment], reach[segment] = weights[known[planned]], reach[known[planned]]
                continue
            known[planned] = segment
            behind = tasks.steps[segment]
            stale = behind > 0
            if not stale.any():
                continue
            behind = behind[stale]
            uploads = Contributions(
                shares=shares if whole else present_shares(shares, stale)[stale],
                records=records[stale],
                devices=np.ones(len(behind), dtype=np.int64),
                steps=behind,
                gradients=counts[behind],
                planned_steps=planned,
            )
            upload_shares, normalisers = upload_weights(aggregation, uploads)
            if ages is not None and (ages[segment, stale] != 1.0).any():
                upload_shares = upload_shares * ages[segment, stale]
            weights[segment, stale] = upload_shares
            if reach is not weights:
                reach[segment, stale] = self.reach(upload_shares, facts.adds_noise == "edge", "device")
            plain = plain and upload_shares is uploads.shares
            if noise is not None and not whole and normalisers is not None:
                portions = np.ones(weights.shape) if portions is None else portions
                least = noise.portions(behind, planned, facts.sampling_rates[rows[stale]], uploads.records)
                portions[segment, stale] = np.clip(normalisers / self._of_planned(uploads, counts), least, 1.0)
        if whole and plain:
            everywhere = np.broadcast_to(shares, weights.shape)  # no array for each of many subnets
            weights, reach = everywhere, everywhere if reach is weights else reach
        return weights, reach, portions

    def branch(self, facts: SubnetFacts, plan: Plan) -> Branch:
        """The upload of a subnet, of the segments of its plan."""
        tasks, arriving = plan.tasks, plan.tasks.arriving
        counts = self.counts(plan.step_size, int(tasks.steps.max(initial=0)))

        def added_up(values: np.ndarray) -> float:  # within each average, then over them
            return float(np.multiply(plan.weights, values, order="C").sum(axis=1).sum())

        return Branch(
            part=plan,
            records=float(facts.records[arriving].sum()),
            devices=len(arriving),
            steps=added_up(tasks.steps),
            gradients=added_up(counts[tasks.steps]),
            mass=facts.mass(arriving, self.weighting),
        )

    def _of_planned(self, uploads: Contributions, counts: np.ndarray) -> np.ndarray:
        """(n,) normalisers of the same devices, had they done all steps."""
        planned = np.full(len(uploads.steps), uploads.planned_steps)
        whole = self.aggregation.at("device").normalisers(replace(uploads, steps=planned, gradients=counts[planned]))
        assert whole is not None, "it normalises these uploads"
        return whole
