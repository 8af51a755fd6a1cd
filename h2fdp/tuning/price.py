"""The price of a search: what it reveals, who pays for it, and the noise of trials that follows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from h2fdp.config import Document
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.sections import ExperimentFile, TuneSection
from h2fdp.network import Topology
from h2fdp.privacy.accounting import ACCOUNTANTS, ORDERS, ReleaseType, total_rdp
from h2fdp.privacy.accounting.selection import SearchBudget, TrialNumbers, budget_of_best
from h2fdp.privacy.calibration import Composition, scaled, smallest_factor
from h2fdp.privacy.own_targets import Targets
from h2fdp.records.atomic import write_text
from h2fdp.run.forecast import planned_accounts
from h2fdp.run.prepare import with_settings
from h2fdp.run.setup import RunSetup

TUNE = "tune"
PRIVATE = "publish only best.yaml; everything else here can leak"
_INSTEAD = "tune.privacy: ignore, or stand_in data"
_CAUTION, _ROUNDS = 0.998, 20


@dataclass(frozen=True)
class Price:
    """The price of a search.

    Attributes:
        kind: `account`, `public` or `ignore`; `none` where the method promises nothing.
        trials: fixed number, or mean.
        stand_in: the data of the trials under `public`.
        epsilon, delta: of all that is covered under `account`.
        observers: whom it is promised about.
        law: of the number of trials under `account`; else None.
        budget: what a trial may reveal under `account`.
        each: about the epsilon of a trial, and of the final run, under `account`.
    """

    kind: str
    trials: int
    stand_in: str = ""
    epsilon: float = 0.0
    delta: float = 0.0
    observers: tuple[str, ...] = ()
    law: TrialNumbers | None = None
    budget: SearchBudget | None = None
    each: float = 0.0

    @property
    def covered(self) -> bool:
        """Whether the search is part of an account."""
        return self.kind == "account"

    @property
    def drawn_number(self) -> str:
        """The origin of a number of trials that is not stated, in words."""
        why = "drawn at random so that the search can be counted in epsilon"
        return f"{why}; {self.trials} is its mean; see tune.privacy"

    def beforehand(self) -> list[str]:
        """The sentences for the user before the search."""
        if not self.covered:
            return []
        kept = f"the final run keeps epsilon {self.each:.2g} of {self.epsilon:g}, and each trial has as much"
        return [
            f"{kept}: the rest pays for the choice among trials (tune.privacy: account)",
            f"the number of trials is {self.drawn_number}",
        ]

    def sentences(self) -> list[str]:
        """The sentences for the user about the search that was made."""
        if self.budget is None:
            return [
                {
                    "none": "the method promises no privacy, and the search none",
                    "public": f"trials used stand-in data ({self.stand_in}) alone, so that the search reveals nothing",
                    "ignore": "the search is not covered by any reported epsilon: trials were trained and judged on "
                    "private records, and the account of a run of best.yaml counts that run alone",
                }[self.kind]
            ]
        orders = " and ".join(f"{most:.4g} at order {order}" for order, most in self.budget.bounds.items())
        return [
            f"epsilon {self.epsilon:g} at delta {self.delta:g}, for each of {', '.join(self.observers)}, covers the "
            f"search and one run of best.yaml: the number of trials was drawn at random (geometric, mean "
            f"{self.trials}), and only the best is published; each trial has a Renyi divergence of at most {orders}, "
            f"its score noise of standard deviation {self.budget.score_deviation:.3g} on the number of right records",
            PRIVATE,
        ]


def price_of(section: TuneSection, corners: Sequence[tuple[ExperimentFile, Topology]], document: Document) -> Price:
    """The price of a search.

    Args:
        corners: configurations from all over the space, with their networks.

    Raises:
        UserError: a search that is not covered by what it asks for; keys that mean nothing with what is stated.
    """
    if section.stand_in is not None:
        if "privacy" in section.model_fields_set:
            problem = "means nothing with stand_in, as trials read no private records then"
            raise UserError([_problem(document, "privacy", problem)])
        return Price("public", section.trials, str(getattr(section.stand_in, "name", "your own")))
    private = [config.method.privacy.private for config, _ in corners]
    if section.privacy == "ignore" or not any(private):
        return Price("ignore" if any(private) else "none", section.trials)
    problems = unaccounted(corners, document)
    if section.score != "accuracy":
        text = f"one record may move {section.score} by any amount, and the search is counted in epsilon"
        problems.append(_problem(document, "objective", f"{text}; expected {_INSTEAD}"))
    if section.costs:
        text = "one trial is released, and several objectives have several best ones; expected a score with "
        problems.append(_problem(document, "objective", f"{text}tune.limits, or {_INSTEAD}"))
    if problems:
        raise UserError(problems)
    config, _ = corners[0]
    epsilon, delta = config.privacy.epsilon, config.privacy.delta
    law = TrialNumbers.of_mean(section.trials)
    budget = budget_of_best(law, epsilon, delta)
    if budget is None:
        text = f"{section.trials} trials cost more than epsilon {epsilon:g}, however noisy they are; expected fewer"
        raise UserError(f"{text}, or {_INSTEAD}", document.where((TUNE, "trials")), f"{TUNE}.trials")
    observers = tuple(config.privacy.target_observers)
    gaussian = ReleaseType(budget.score_deviation, steps=1, sampling_rate=1.0)  # its divergences are the bounds
    each = ACCOUNTANTS[config.privacy.accountant].epsilon({gaussian: 1}, delta)
    return Price("account", section.trials, "", epsilon, delta, observers, law, budget, each)


def unaccounted(corners: Sequence[tuple[ExperimentFile, Topology]], document: Document) -> list[Problem]:
    """Why a search with trials of these configurations has no account."""
    instead = f"expected {_INSTEAD}, or"
    for config, topology in corners:
        placement = config.method.privacy
        if not placement.private or config.privacy.calibration != "accounted":
            text = "some settings have no noise that is calibrated to an account"
            return [_problem(document, "privacy", f"{text}; {instead} privacy.calibration: accounted for all")]
        if placement.protects == "device":
            text = f"the account covers records, and {config.method.privacy.name} protects devices"
            return [_problem(document, "privacy", f"{text}; {instead} another method.privacy")]
        if Targets.in_network(config.privacy.epsilon, topology).own is not None:
            text = "trials divide privacy.epsilon, and devices ask for an epsilon of their own"
            return [_problem(document, "privacy", f"{text}; expected {_INSTEAD}")]
        if getattr(config.data, "public", 0):
            text = "data.public draws public records by the seed, and trials have other seeds than final runs"
            return [_problem(document, "privacy", f"{text}; {instead} data.public: 0")]
        schedule = config.method.traits
        if schedule.controlled or not schedule.foreseen:
            text = "what a trial reveals must be known before it starts"
            return [_problem(document, "privacy", f"{text}; {instead} a fixed schedule")]
    return []


def _problem(document: Document, key: str, text: str) -> Problem:
    return Problem(text, document.where((TUNE, key)), f"{TUNE}.{key}")


def share_of(composition: Composition, bounds: Mapping[int, float]) -> float:
    """The share of the bounds on Renyi divergence that a composition takes, 1 where it is at the nearest of them.

    Args:
        bounds: order, one of `ORDERS` -> the largest divergence.
    """
    divergences = total_rdp(composition)
    return max(float(divergences[_place(order)]) / most for order, most in bounds.items())


def _place(order: int) -> int:
    return int(np.searchsorted(ORDERS, order))


def held_by(setup: RunSetup) -> list[Composition]:
    """The compositions of target observers about each distinct device after the planned run."""
    accounts = planned_accounts(setup)
    compositions = [each.composition for observer in setup.target_observers for each in accounts.classes(observer)]
    return list({tuple(sorted(each.items())): each for each in compositions}.values())


def within(setup: RunSetup, bounds: Mapping[int, float]) -> RunSetup:
    """The run under the epsilon at which every target observer's divergences are at most these, as near as may be.

    The noise is still calibrated to an epsilon, by the accountant of the file; the epsilon is that of the noise which
    the bounds ask for. So the configuration of the run says how it is made.

    Raises:
        UserError: no noise is enough.
    """
    privacy = setup.config.privacy
    accountant = ACCOUNTANTS[privacy.accountant]
    compositions = held_by(setup)
    factor = smallest_factor(compositions, 1.0, lambda each: share_of(each, bounds))
    epsilon = max(accountant.epsilon(scaled(each, factor), privacy.delta) for each in compositions)
    for _ in range(_ROUNDS):
        config = setup.config.model_copy(update={"privacy": privacy.model_copy(update={"epsilon": epsilon})})
        rescaled = with_settings(setup, config).keyed(setup.noise_key or None)
        if max(share_of(each, bounds) for each in held_by(rescaled)) <= 1:
            return rescaled
        epsilon *= _CAUTION
    raise UserError("no noise was found that keeps to the budget of the search", key="privacy.epsilon")


def with_facts(facts: Path, bounds: Mapping[int, float] | None, setup: RunSetup) -> RunSetup:
    """The trial under its noise; its public facts are on disk when this returns.

    Args:
        facts: the file of the number of validation records.
        bounds: order -> largest divergence of the trial; None where its own epsilon holds.
    """
    setup = setup if bounds is None else within(setup, bounds)
    assert setup.data.validation is not None, "trials are judged on validation records"
    numbers = {"validation_records": len(setup.data.validation)}
    facts.parent.mkdir(exist_ok=True)
    write_text(facts, json.dumps(numbers) + "\n")
    return setup
