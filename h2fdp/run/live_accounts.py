"""Privacy accounts during a run: updates, budgets, columns of the metrics, the summary, what has to be said with it."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any

from h2fdp.data.federated import STANDARDIZED
from h2fdp.data.source import DEVICES_TEST, PUBLIC_RECORDS
from h2fdp.errors import UserError
from h2fdp.experiment.training_section import UNTIL
from h2fdp.models.registry import WARM_STARTED
from h2fdp.privacy import AggregationCounts, BudgetFilter, Mechanism, Observer, Release, Tier
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.budget_filter import Reserve
from h2fdp.privacy.mechanisms.secret_draws import COVERED, PASSING, SECRET
from h2fdp.privacy.own_targets import OWN, of_targets
from h2fdp.privacy.places import UNTARGETED, targeted_as
from h2fdp.privacy.releases import ADJACENCY_NOTES
from h2fdp.privacy.statement import about_delta, statement, verdict_of, worst_epsilon
from h2fdp.protocol import IntervalPlan
from h2fdp.records import noise_key
from h2fdp.records.log import about
from h2fdp.run.forecast import budgets_of, planned_accounts, rough_accounts
from h2fdp.run.setup import RunSetup
from h2fdp.wording import SCORES

Row = dict[str, Any]  # of the metrics
_MOST_ROWS = 100  # of a run that have epsilon, without those that are printed: a few milliseconds each
_SHORT, _LONG = 8, 32  # types of releases that are composed for an observer in such a row, or else in five rows
_LEFT_OUT = (
    "an account of so many kinds of releases takes long, so epsilon is computed in at most five intervals of this run, "
    "and at its end"
)
_KEPT = ("local", "global", "unplanned", "keeps_to_target", "keeps_to_plan", "long", "missing")  # in a checkpoint
_log = logging.getLogger(__name__)

SCORED = (
    "training.evaluate_devices: deciles and the worst tenth, and scores of personal models, weigh test records by the "
    "labels of each device, which no epsilon covers; tracking servers receive them too"
)
SUMS_ALONE = "secure sums: these epsilons hold only if the real network runs a secure aggregation protocol"
OVER_THE_AIR = (
    "radio.access: signals that add up in the air are not encrypted; these epsilons assume that access points alone "
    "receive them, and where trust is secure-sum, that no antenna separates them"
)
FILTERED = (
    "method.schedule: the schedule may depend on earlier releases, so the guarantee is that of a privacy filter, by "
    "rdp, and other accountants are indicative. An own schedule that does not depend on them needs less noise: set "
    "reads_releases = False in its class"
)


def notes(setup: RunSetup) -> tuple[str, ...]:
    """The conditions that accompany every epsilon of this run."""
    if setup.noise is None:
        return setup.placement.notes
    protects_devices = setup.placement.protects == "device"
    units = setup.drawn.devices if protects_devices else int(setup.data.sizes.min())
    delta = about_delta(setup.config.privacy.delta, units, protects_devices)
    features = None if setup.features is None else setup.features.note
    conditions = {
        delta: delta is not None,
        noise_key.BY_SEED: not setup.has_noise_key,
        SUMS_ALONE: any(facts.sees_sums for facts in setup.blueprint.facts),
        DEVICES_TEST: setup.data.test_owners is not None,
        SCORED: setup.data.test_owners is None and (setup.config.training.evaluate_devices or setup.personal),
        FILTERED: setup.adapts,
        PUBLIC_RECORDS: setup.data.public is not None,
        WARM_STARTED: setup.warm_start is not None,
        features: features is not None,
        STANDARDIZED: setup.standardizing is not None and setup.data.test_owners is None and not setup.prelude,
        UNTIL: not SCORES.keys().isdisjoint(setup.config.training.until or {}),
        **dict.fromkeys((part.note or None for part in setup.topology.parts.values()), True),
        OWN: setup.targets.own is not None and setup.target is not None,
        _of_draw(setup): setup.blueprint.draw is not None,
        OVER_THE_AIR: setup.topology.radio.truncation is not None,
        ADJACENCY_NOTES.get(setup.config.privacy.adjacency): setup.config.privacy.adjacency in ADJACENCY_NOTES,
    }
    said = *setup.placement.notes, *(setup.data.columns.notes if setup.data.columns else ())
    return (*said, *(note for note, holds in conditions.items() if note is not None and holds))


def _of_draw(setup: RunSetup) -> str | None:
    """The condition under which draws are secret, and the price of cover: of messages of those expected to be absent.

    These words are public, so they must not depend on any draw: it is taken of all devices, none of which comes.
    """
    if (draw := setup.blueprint.draw) is None:
        return None
    none_come = (replace(draw, rate=0.0, cover=cover) for cover in (False, True))
    less, more = (replace(setup.bill, draw=each).columns(setup.first_plan) for each in none_come)
    parts = ((more[column] - less[column]) * (1 - draw.rate) for column in ("energy_j", "clock_s", "bytes"))
    joules, seconds, size = parts
    price = f"{joules:.3g} J, {seconds:.3g} s and {size / 1e6:.3g} MB an interval"
    if draw.cover:
        return f"{COVERED}, for about {price}"
    passing = PASSING if setup.config.method.topology == "star" else ""
    return f"{SECRET}{passing}; cover: true hides messages for about {price}"


def verdict(setup: RunSetup, observer: Observer, claimed: float | None, accounted: float) -> str:
    """The word for what an observer holds: about the target where there is one, otherwise about the claim."""
    if setup.target is None:
        return verdict_of(claimed, accounted)
    if targeted_as(observer) not in setup.target_observers:
        return UNTARGETED
    return verdict_of(setup.target, accounted)


class BudgetSpent(Exception):
    """An interval must not begin: it would exceed this observer's budget."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self.observer = observer


class LiveAccounts:
    """Keeps the accounts of one run, a `Recorder`.

    Raises:
        UserError: a budget that the first interval would exceed.
    """

    def __init__(self, setup: RunSetup) -> None:
        budgets = budgets_of(setup)
        self._setup = setup
        self._delta = setup.config.privacy.delta
        self._facts = {facts.name: facts for facts in setup.blueprint.facts}
        self.accounts = setup.empty_accounts()
        self._filter = setup.watched
        self._keeps_to_plan, self._keeps_to_target = setup.reserve is not None, False
        if setup.noise is not None and budgets and self._filter is None:
            interval = rough_accounts(setup, 1)
            self._filter = BudgetFilter.planned(budgets, self._delta, interval)
            if (observer := self._filter.exceeded(interval)) is not None:
                stated, spent = observer in setup.config.privacy.budget, self._filter.spent(interval, observer)
                text = (
                    f"the first interval is epsilon {spent:.4g} (rdp) for observer {observer}; expected a larger number"
                )
                raise UserError(text, key=f"privacy.budget.{observer}" if stated else "privacy.epsilon")
        self._local = self._global = 0
        self._tiers: Counter[Tier] = Counter()
        self._unplanned = setup.beyond_formulas
        self._long = False  # whether an account took more than `_SHORT`, or `_LONG`
        self._missing = False  # whether the newest row has no epsilon

    def admit(self, plan: IntervalPlan, releases: Sequence[Release]) -> Observer | None:
        """Enter the releases of an interval that is about to start, unless an observer's budget would be exceeded.

        Returns:
            The observer whose budget, reserve of planned releases, or target forbids it; None when it may start.
        """
        self.accounts.add(releases)
        observer = None if self._filter is None else self._filter.exceeded(self.accounts)
        if observer is None and self._keeps_to_plan:
            observer = self._reserve.exceeded(self.accounts, releases)
        elif observer is None and self._keeps_to_target:
            observer = self._above_target()
        if observer is not None:
            self.accounts.add(releases, times=-1)
            return observer
        made = [part.tasks.releasing for part in plan.subnets.values()]
        self._local += max((int(each[:-1].sum()) for each in made), default=0)
        self._global += any(each[-1] for each in made)
        if plan.heights:
            self._tiers.update(self._made_by_tiers(plan))
        self._unplanned |= plan.decision.noise_factor != 1.0
        return None

    @cached_property
    def _reserve(self) -> Reserve:
        """The accounts that noise was calibrated to; planned again where they were not kept, as few runs need them."""
        planned = planned_accounts(self._setup) if self._setup.reserve is None else self._setup.reserve
        return Reserve(planned, self._setup.target_observers)

    def _above_target(self) -> Observer | None:
        """The first target observer that would hold more than the target, by the accountant that met it.

        Participants are drawn from streams that know nothing of the records, and interruptions are assumed not to
        depend on what was released: then what a run releases is fixed without looking at the data, and the account
        of a composition holds.
        """
        setup, accounts = self._setup, self.accounts
        assert setup.target is not None, "only noise that was made for a target is held to it"
        known = setup.target, self._delta, ACCOUNTANTS[setup.accountant]
        above = next((each for each in setup.target_observers if accounts.exceeds(each, *known)), None)
        own = of_targets(accounts.held(), setup.targets, self._delta, setup.accountant, setup.target_observers)
        missed = (max(each["accounted"], key=each["accounted"].get) for each in own if each["verdict"] != "met")
        return above or next(missed, None)

    def _made_by_tiers(self, plan: IntervalPlan) -> Mapping[Tier, int]:
        """The local aggregations of each tier in which anything arrives, of the subnet that has most."""
        most: dict[Tier, int] = {}
        for name, part in plan.subnets.items():
            pairs = zip(plan.heights[:-1], part.tasks.releasing[:-1].tolist(), strict=True)
            made = Counter(self._facts[name].tier(height) for height, arrives in pairs if arrives)
            most |= {tier: max(count, most.get(tier, 0)) for tier, count in made.items()}
        return most

    def before(self, plan: IntervalPlan, releases: Sequence[Release]) -> None:
        """Let `admit` decide, and end the run where it refuses; see `Recorder`."""
        if (observer := self.admit(plan, releases)) is not None:
            raise BudgetSpent(observer)
        self._missing = False  # an interval that is refused releases nothing: the row before it is the last

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """Add the accounts to the row, all of them or none; see `Recorder`."""
        if self._setup.noise is None or self._setup.leaks:
            return
        columns = self._columns(self._affordable(int(row["interval"])))
        self._missing = not columns
        row.update({"epsilon_claimed": self._claimed(self._setup.noise), **columns})

    def _affordable(self, done: int) -> int:
        """The number of types of releases that may be composed for an observer after this interval; 0 for none."""
        total = self._setup.config.training.intervals
        if done == total or done % max(1, total // 5) == 0:
            return _LONG
        chosen = done == 1 or done % -(-total // _MOST_ROWS) == 0 or done % max(1, total // 10) == 0
        return _SHORT if chosen and not self._long else 0

    def missing(self) -> dict[str, float | None]:
        """The accounts that the newest row was left without; empty where it has them, or where more was released."""
        return self._columns() if self._missing else {}

    def state(self) -> dict[str, Any]:
        """The aggregations so far that the claim counts; the accounts are the ledger's."""
        tiers = [[*tier, count] for tier, count in self._tiers.items()]
        return {"tiers": tiers} | {name: getattr(self, f"_{name}") for name in _KEPT}

    def load(self, state: Mapping[str, Any]) -> None:
        """Load a `state`; `enter` the ledger's releases too, so that no account ever starts again at zero."""
        planned = self._keeps_to_plan
        for name in _KEPT:
            setattr(self, f"_{name}", state[name])
        self._keeps_to_plan |= planned
        self._tiers = Counter({(height, above): count for height, above, count in state["tiers"]})

    def keep_to_plan(self) -> None:
        """Release, from here on, no more of any device than was planned: for a run whose plan met more than its target.

        Runs that are under a filter, or that no noise was made for, have no plan to keep to.
        """
        self._keeps_to_plan |= self._setup.target is not None and self._setup.watched is None

    def enter(self, releases: Iterable[Release]) -> None:
        """Enter the releases of intervals that are done."""
        self.accounts.add(releases)

    def enter_lost(self, releases: Iterable[Release]) -> None:
        """Enter releases of intervals whose outcome was lost: they are done again under fresh noise, and both count.

        The target binds the run from here on, also where nothing was lost: under fresh draws other devices may
        take part than those for which noise was calibrated.
        """
        self._keeps_to_target = self._setup.target is not None and self._setup.watched is None
        for _, rows in groupby(releases, key=lambda release: release.interval):
            lost = list(rows)
            self.accounts.add(lost)
            local = {(row.edge, row.slot) for row in lost if row.kind == "local"}
            made = max(Counter(edge for edge, _ in local).values(), default=0)
            self._local += made
            deep = [facts for facts in self._facts.values() if facts.depth > 1]
            for tier in {facts.tier(height) for facts in deep for height in facts.heights}:
                self._tiers[tier] += made  # rows do not name their tier, so all may be of any
            self._global += 1
            self._unplanned |= self._setup.traits.scales_noise  # rows do not say how far

    def _columns(self, most: float = math.inf) -> dict[str, float | None]:
        """Each observer's account about the worst device, by the accountant that bounds the run.

        Args:
            most: see `worst_epsilon`; empty where some observer's account would take more.
        """
        columns: dict[str, float | None] = {}
        for observer in self._setup.observers if most else ():
            epsilon = worst_epsilon(self.accounts, observer, self._delta, self._setup.accountant, most)
            if epsilon is None and self.accounts.worst(observer, self._delta) is not None:
                if not self._long:
                    self._long = True
                    _log.warning("notice", extra=about(note=_LEFT_OUT))
                return {}
            columns[f"epsilon_{observer}"] = epsilon
        return columns

    def summary(self) -> dict[str, Any] | None:
        """The accounts for `summary.json` by `rdp`, `pld` and the accountant of a target, of the worst device and of
        each; None without any.

        About the worst device there is also the `verdict` on the target that noise was calibrated to, or else on the
        claim.
        """
        setup, accounts = self._setup, self.accounts
        if setup.noise is None or setup.leaks:
            return None
        names = setup.drawn.device_names()
        claimed, target = self._claimed(setup.noise), setup.target
        by = None if target is None else setup.accountant
        stated = statement(accounts.held(), names, self._delta, tuple(dict.fromkeys(("rdp", "pld", by or "rdp"))))
        for observer, numbers in stated["worst"].items():
            accounted = numbers["rdp"] if setup.adapts else min(numbers["rdp"], numbers["pld"])
            targeted = target is not None and observer in setup.target_observers
            numbers["left"] = max(0.0, target - accounted) if targeted else None  # what was not needed of the target
            numbers["verdict"] = verdict(setup, observer, claimed, accounted)
        own = of_targets(accounts.held(), setup.targets, self._delta, setup.accountant, setup.target_observers)
        if any(each["verdict"] != "met" for each in own):
            for numbers in stated["worst"].values():
                numbers["verdict"] = "open" if numbers["verdict"] == "met" else numbers["verdict"]
        silent = {each: setup.placement.silence(each) for each in setup.observers if each not in stated["worst"]}
        facts = {"claimed": claimed, "target": target, "target_by": by, "notes": list(notes(setup))}
        return {**facts, **stated, "silent": silent, **({"targets": own} if own else {})}

    def _claimed(self, noise: Mechanism) -> float | None:
        return noise.claimed(self.accounts, AggregationCounts(self._local, self._global, self._unplanned, self._tiers))
