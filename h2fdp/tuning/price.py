"""What a search reveals, and who pays for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from h2fdp.config import Document
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.sections import ExperimentFile, TuneSection
from h2fdp.privacy import noise_placement_of
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.accounting.selection import SearchBudget, TrialNumbers, budget_of_best
from h2fdp.schedules.registry import chosen
from h2fdp.tuning.space import TUNE

PRIVATE = "publish only best.yaml; everything else here can leak"


@dataclass(frozen=True)
class Price:
    """The price of a search.

    Attributes:
        kind: `account`, `public` or `ignore`; `none` where the method promises nothing.
        epsilon, delta: of all that is covered under `account`.
        observers: whom it is promised about.
        law: of the number of trials under `account`; else None.
        budget: what a trial may reveal under `account`.
        trials: fixed number, or mean.
        stand_in: the data of the trials under `public`.
        each: about the epsilon of a trial, and of the final run, under `account`.
    """

    kind: str
    trials: int
    epsilon: float = 0.0
    delta: float = 0.0
    observers: tuple[str, ...] = ()
    law: TrialNumbers | None = None
    budget: SearchBudget | None = None
    stand_in: str = ""
    each: float = 0.0

    @property
    def covered(self) -> bool:
        """Whether the search is part of an account."""
        return self.kind == "account"

    def beforehand(self) -> list[str]:
        """What the user must know before the search."""
        if not self.covered:
            return []
        kept = f"the final run keeps epsilon {self.each:.2g} of {self.epsilon:g}, and each trial has as much"
        return [
            f"{kept}: the rest pays for the choice among trials (tune.privacy: account)",
            f"the number of trials is {self.drawn_number}",
        ]

    @property
    def drawn_number(self) -> str:
        """In words how a number of trials comes about that is not stated."""
        why = "drawn at random so that the search can be counted in epsilon"
        return f"{why}; {self.trials} is its mean; see tune.privacy"

    def sentences(self) -> list[str]:
        """What the user must know."""
        if self.kind == "none":
            return ["the method promises no privacy, and the search none"]
        if self.kind == "public":
            return [f"trials used stand-in data ({self.stand_in}) alone, so that the search reveals nothing"]
        if self.kind == "ignore":
            text = "the search is in nobody's epsilon: trials were trained and judged on private records"
            return [f"{text}, and the account of a run of best.yaml counts that run alone"]
        assert self.budget is not None, "it is counted"
        orders = " and ".join(f"{most:.4g} at order {order}" for order, most in self.budget.bounds.items())
        text = f"epsilon {self.epsilon:g} at delta {self.delta:g}, for each of {', '.join(self.observers)}, covers the"
        each = f"each trial has a Renyi divergence of at most {orders}, its score noise of standard deviation "
        each += f"{self.budget.score_deviation:.3g} on the number of right records"
        drawn = f"the number of trials was drawn at random (geometric, mean {self.trials})"
        text += f" search and one run of best.yaml: {drawn}, and only the best is published"
        return [f"{text}; {each}", PRIVATE]


def price_of(section: TuneSection, corners: Sequence[ExperimentFile], document: Document) -> Price:
    """The price of a search.

    Args:
        corners: configurations from all over the space.

    Raises:
        UserError: a search that is not covered by what it asks for; keys that mean nothing with what is stated.
    """
    problems = _contradictions(section, document)
    private = [noise_placement_of(config.method.privacy).private for config in corners]
    if not problems and section.privacy == "account" and any(private):
        problems = unaccounted(corners, document)
        if section.costs:
            text = "one trial is released, and several objectives have several best ones; expected accuracy with "
            problems.append(_problem(document, "objective", f"{text}tune.limits, or privacy: public or ignore"))
    if problems:
        raise UserError(problems)
    if section.privacy == "public":
        assert section.stand_in is not None, "there is one"
        name = getattr(section.stand_in, "name", "your own")
        return Price("public", section.trials, stand_in=str(name))
    if not any(private):
        return Price("none", section.trials)
    if section.privacy == "ignore":
        return Price("ignore", section.trials)
    return _accounted(section, corners[0], document)


def _accounted(section: TuneSection, config: ExperimentFile, document: Document) -> Price:
    epsilon, delta = config.privacy.epsilon, config.privacy.delta
    law = TrialNumbers.of_mean(section.trials)
    budget = budget_of_best(law, epsilon, delta)
    if budget is None:
        text = f"{section.trials} trials cost more than epsilon {epsilon:g}, however noisy they are; expected fewer"
        raise UserError(f"{text}, or privacy: public or ignore", document.where((TUNE, "trials")), f"{TUNE}.trials")
    observers = tuple(config.privacy.target_observers)
    gaussian = ReleaseType(budget.score_deviation, steps=1, sampling_rate=1.0)  # its divergences are the bounds
    each = ACCOUNTANTS[config.privacy.accountant].epsilon({gaussian: 1}, delta)
    return Price("account", section.trials, epsilon, delta, observers, law, budget, each=each)


def _contradictions(section: TuneSection, document: Document) -> list[Problem]:
    if section.privacy != "public" and "stand_in" in section.model_fields_set:
        return [_problem(document, "stand_in", "means nothing without privacy: public")]
    if section.privacy == "public" and section.stand_in is None:
        text = "the key is missing; expected the data of trials, as `digits`: models that were trained on private "
        text += "records reveal them, whatever records they are judged on"
        return [_problem(document, "stand_in", text)]
    return []


def unaccounted(corners: Sequence[ExperimentFile], document: Document) -> list[Problem]:
    """Why a search with trials of these configurations has no account."""
    instead = "expected tune.privacy: public or ignore, or"
    for config in corners:
        placement = noise_placement_of(config.method.privacy)
        if not placement.private or config.privacy.calibration != "accounted":
            text = "some settings have no noise that is calibrated to an account"
            return [_problem(document, "privacy", f"{text}; {instead} privacy.calibration: accounted for all")]
        if placement.clips == "update":
            text = f"the account covers records, and {config.method.privacy.name} protects devices"
            return [_problem(document, "privacy", f"{text}; {instead} another method.privacy")]
        if getattr(config.data, "public", 0):
            text = "data.public draws public records by the seed, and trials have other seeds than final runs"
            return [_problem(document, "privacy", f"{text}; {instead} data.public: 0")]
        schedule = chosen(config.method.schedule)
        if schedule.controlled or not schedule.foreseen:
            text = "what a trial reveals must be known before it starts"
            return [_problem(document, "privacy", f"{text}; {instead} a fixed schedule")]
    return []


def _problem(document: Document, key: str, text: str) -> Problem:
    return Problem(text, document.where((TUNE, key)), f"{TUNE}.{key}")
