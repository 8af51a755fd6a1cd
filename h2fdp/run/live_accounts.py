"""Privacy while a run goes on: accounts brought up to date, budgets kept, columns of the metrics, the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from h2fdp.errors import UserError
from h2fdp.privacy import OBSERVERS, Accounts, BudgetFilter, Made, Mechanism, Observer, Release
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.statement import statement, verdict_of
from h2fdp.protocol import IntervalPlan
from h2fdp.run.planned_privacy import accounts_of_one_interval
from h2fdp.run.privacy_report import attained_about
from h2fdp.run.setup import RunSetup


def _too_small(run: RunSetup, observer: Observer, spent: float) -> UserError:
    """What is said of a budget that no interval fits in."""
    stated = observer in run.config.privacy.budget
    limit = "this budget" if stated else f"epsilon, a budget under {run.config.method.schedule.name},"
    text = f"the first interval is epsilon {spent:.4g} for observer {observer} by the account, and {limit} would end"
    key = f"privacy.budget.{observer}" if stated else "privacy.epsilon"
    return UserError(f"{text} the run before it; expected a larger number", key=key)


class PrivacyWatch:
    """Keeps the accounts of one run.

    Raises:
        UserError: a budget that the first interval would exceed.
    """

    def __init__(self, run: RunSetup) -> None:
        self._run = run
        self._delta = run.config.privacy.delta
        self.accounts = Accounts(run.sizes)
        self._filter: BudgetFilter | None = None
        if run.noise is not None and run.budgets:
            interval = accounts_of_one_interval(run)
            self._filter = BudgetFilter.planned(run.budgets, self._delta, interval)
            if (observer := self._filter.exceeded(interval)) is not None:
                raise _too_small(run, observer, self._filter.spent(interval, observer))
        self._local = self._global = 0
        self._unplanned = False

    def admit(self, plan: IntervalPlan, releases: Sequence[Release]) -> Observer | None:
        """Enter the releases of an interval that is about to start, unless an observer's budget would be exceeded.

        Returns:
            The observer whose budget forbids the interval; None when it may start.
        """
        self.accounts.add(releases)
        if self._filter is not None and (observer := self._filter.exceeded(self.accounts)) is not None:
            self.accounts.add(releases, times=-1)
            return observer
        made = [part.releasing for part in plan.subnets.values()]
        self._local += max((int(each[:-1].sum()) for each in made), default=0)
        self._global += any(each[-1] for each in made)
        self._unplanned |= plan.decision.noise_factor != 1.0
        return None

    def state(self) -> dict[str, Any]:
        """The aggregations so far that the paper's claim counts; the accounts are the ledger's."""
        return {"local": self._local, "global": self._global, "unplanned": self._unplanned}

    def load(self, state: Mapping[str, Any], releases: Iterable[Release]) -> None:
        """Go on from a `state` and the releases of the ledger up to then: no account ever starts again at zero."""
        self._local, self._global, self._unplanned = state["local"], state["global"], state["unplanned"]
        self.accounts.add(releases)

    def load_lost(self, releases: Iterable[Release]) -> None:
        """Enter releases of intervals whose outcome was lost: they are done again under fresh noise, and both count."""
        for _, rows in groupby(releases, key=lambda release: release.interval):
            lost = list(rows)
            self.accounts.add(lost)
            local = {(row.edge, row.slot) for row in lost if row.kind == "local"}
            self._local += max(Counter(edge for edge, _ in local).values(), default=0)
            self._global += 1
            self._unplanned |= self._run.config.method.schedule.name == "noise-decay"  # rows do not say how far

    def columns(self) -> dict[str, float | None]:
        """Metrics columns: the claim, and each observer's account about the worst device; none for runs that leak."""
        if self._run.noise is None or self._run.leaks:
            return {}
        found = {f"epsilon_{observer}": self.accounts.worst(observer, self._delta) for observer in OBSERVERS}
        return {"epsilon_claimed": self._claimed(self._run.noise), **found}

    def summary(self) -> dict[str, Any] | None:
        """For `summary.json`: accounts by `rdp` and `pld`, of the worst device and of each; None without.

        About the worst device there is more: what a dominating record `attained`, and the `verdict` on the claim.
        """
        if self._run.noise is None or self._run.leaks:
            return None
        names = [subnet.device_name(row) for subnet in self._run.topology.subnets for row in range(subnet.size)]
        claimed = self._claimed(self._run.noise)
        found = statement(self.accounts, names, self._delta, ("rdp", "pld"))
        for observer, numbers in found["worst"].items():
            numbers["attained"] = self._attained(observer)
            numbers["verdict"] = verdict_of(claimed, min(numbers["rdp"], numbers["pld"]), numbers["attained"])
        return {"claimed": claimed, "notes": list(self._run.placement.notes), **found}

    def _claimed(self, noise: Mechanism) -> float | None:
        return noise.claimed(self.accounts, Made(self._local, self._global, self._unplanned))

    def _attained(self, observer: Observer) -> float | None:
        """About the device that is worst by `rdp`; as every attained epsilon, a lower bound."""
        rdp = ACCOUNTANTS["rdp"]
        worst = max(self.accounts.classes(observer), key=lambda each: rdp.epsilon(each.composition, self._delta))
        return attained_about(self._run, worst, self._delta)
