"""The cheapest trust for an accuracy: which edge servers have to be trusted, or hold secure sums, or be relays.

The square of the noise in the last model is a sum over edge servers: one noise of each that is trusted, one for each
device of the others. Accuracy falls with it, so that an accuracy is a bound on that sum, and the choice a knapsack:
least price, each edge server in one state. It is solved exactly, by branch and bound (HiGHS); the chosen network is
then planned itself, calibration and all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.config import Document, check
from h2fdp.errors import UserError, not_one_of
from h2fdp.experiment.file import Setting, apply_settings, changed_topology, located
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import Topology, Trust
from h2fdp.network.network import TrustSection
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.records.directory import locked
from h2fdp.run.network_plan import NetworkPlan, plan_of, squares_by_server
from h2fdp.run.prelude import distance_of
from h2fdp.sweeps.asked import EPSILON, WHERE, Asked, listed_in
from h2fdp.sweeps.curve import Curve
from h2fdp.sweeps.one_curve import CurveMaker, directory_of
from h2fdp.sweeps.plan import SharedInputs
from h2fdp.sweeps.pool import WorkOptions
from h2fdp.wording import counted, note

Floats = NDArray[np.float64]
STATES: tuple[Trust, ...] = ("untrusted", "secure-sum", "trusted")
_TRIES = 20  # cheapest choices that are planned, until one keeps to the joules
_ADDITIVE = 0.01  # relative, by which the noise of the planned choice may differ from the sum
_MOST_NAMED = 12
_SLACK = 1e-6  # relative, to which the solver keeps a bound


class NoSum(UserError):
    """The noise of a network is no sum over its edge servers."""


def cheapest(
    prices: Floats, squares: Floats, most: float, least: float = 0.0, not_these: Sequence[NDArray[np.int64]] = ()
) -> NDArray[np.int64] | None:
    """(N,) the state of each edge server at the least price; of equal prices about the least noise. None where no
    choice keeps to the bounds.

    Args:
        prices: (N, S) of each state, inf where it is none; squares: (N, S) its part in the square of the noise.
        most, least: of the sum of squares.
        not_these: choices that are ruled out.

    >>> squares = np.array([[5.0, 1.0], [5.0, 1.0], [3.0, 1.0]])
    >>> cheapest(np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 1.0]]), squares, most=9.5).tolist()
    [1, 0, 0]
    """
    bounds = (least, most * (1 - _SLACK)), not_these
    best = _solved(prices, squares, *bounds)
    if best is None:
        return None
    price = float(prices[np.arange(len(prices)), best].sum())
    quieter = _solved(prices, squares, *bounds, price, seconds=5.0)
    return best if quieter is None else quieter


def quietest(
    prices: Floats, squares: Floats, price: float, least: float = 0.0, not_these: Sequence[NDArray[np.int64]] = ()
) -> NDArray[np.int64] | None:
    """(N,) the state of each edge server with the least noise that a price pays for; arguments see `cheapest`.

    >>> squares = np.array([[5.0, 1.0], [5.0, 1.0], [3.0, 1.0]])
    >>> quietest(np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 1.0]]), squares, price=2.0).tolist()
    [1, 0, 1]
    """
    return _solved(prices, squares, (least, np.inf), not_these, price)


def _solved(
    prices: Floats,
    squares: Floats,
    bounds: tuple[float, float],
    not_these: Sequence[NDArray[np.int64]],
    price: float | None = None,
    seconds: float | None = None,
) -> NDArray[np.int64] | None:
    """(N,) the states with the least price or, where a `price` bounds that, with the least sum of squares.

    Args:
        bounds: of the sum of squares.
        seconds: until the best so far is taken; None for the best of all.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    rows, states = np.nonzero(np.isfinite(prices))
    unit = prices[rows, states].max() or 1.0  # the solver's tolerances are absolute
    cost, parts = prices[rows, states] / unit, squares[rows, states] / squares.sum()
    once = coo_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(len(prices), len(rows))).tocsr()
    least, most = np.array(bounds) / squares.sum()
    limits = [LinearConstraint(once, 1, 1), LinearConstraint(parts, least, most)]
    limits += [LinearConstraint((choice[rows] == states).astype(float), 0, len(prices) - 1) for choice in not_these]
    limits += [] if price is None else [LinearConstraint(cost, 0, price / unit * (1 + 1e-9))]
    how = {"mip_rel_gap": 0.0} | ({} if seconds is None else {"time_limit": seconds})
    goal, whole = cost if price is None else parts, np.ones(len(rows))
    found = milp(goal, integrality=whole, bounds=Bounds(0, 1), constraints=limits, options=how)
    return None if found.x is None else states[found.x > 0.5]


@dataclass(frozen=True)
class TrustChoice:
    """The cheapest trust for an accuracy.

    Attributes:
        accuracy, most_price, epsilon, most_joules: as they were asked for; None where that was not asked.
        states: edge server -> the state to buy; empty where nothing has to be bought. Of relays all are `relay`.
        prices: edge server -> what its state costs; of relays the price of all under `relay`.
        plan: of the chosen network.
        score, half: its accuracy by the curve, and half of its band.
        without: edge server -> the accuracy without it; empty for relays.
        before: the accuracy where nothing is bought.
        kept: edge servers that are trusted for nothing, as the file states them.
        curve: accuracy over noise.
        directory: of the runs of the curve.
    """

    accuracy: float | None
    most_price: float | None
    epsilon: float
    most_joules: float | None
    states: dict[str, Trust]
    prices: dict[str, float]
    plan: NetworkPlan
    score: float
    half: float
    without: dict[str, float]
    before: float
    kept: tuple[str, ...]
    curve: Curve
    directory: Path

    @property
    def price(self) -> float:
        """The price of all that is bought."""
        return sum(self.prices.values())

    @property
    def answer(self) -> str:
        """The choice as a sentence."""
        return in_words(self.states)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        known = {key: each for key, each in vars(self).items() if key not in ("plan", "curve", "directory")}
        return known | {"price": self.price, "directory": str(self.directory), **vars(self.plan)}


def in_words(states: dict[str, Trust]) -> str:
    """States to buy as a sentence; of many edge servers the number.

    >>> in_words({"edge-1": "trusted", "edge-4": "trusted", "edge-2": "secure-sum"})
    'trust edge-1 and edge-4; secure sums at edge-2'
    >>> in_words({}), in_words({"edge-1": "relay"})
    ('buy nothing', 'relays for the whole network')
    """
    if not states or "relay" in states.values():
        return "relays for the whole network" if states else "buy nothing"
    parts = []
    for state, verb in (("trusted", "trust"), ("secure-sum", "secure sums at")):
        if names := [name for name, each in states.items() if each == state]:
            listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
            parts.append(f"{verb} {listed if len(names) <= _MOST_NAMED else counted(len(names), 'edge server')}")
    return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class TrustOffer:
    """A network whose trust can be bought.

    Attributes:
        start: the network as it is stated, where drawn edge servers are not trusted.
        section: its prices.
    """

    config: ExperimentFile
    start: Topology
    section: TrustSection
    shared: SharedInputs

    def __post_init__(self) -> None:
        names = [each.name for each in self.start.subnets]
        if self.start.depth > 1:
            text = "trust is chosen in networks of one tier of edge servers"
            raise UserError(f"{text}; expected one, found {self.start.depth}", key="topology.edges")
        if all(each.trust == "relay" for each in self.start.subnets):
            raise UserError("all edge servers are relays, so nothing is for sale; expected other trust", key="topology")
        for name in self.section.prices or {}:
            if name not in ("default", "secure-sum", "relay", *names):
                text = f"no edge server, default, secure-sum or relay: {not_one_of(name, names)}"
                raise UserError(text, key=f"topology.trust.prices.{name}")

    def plan(self, states: Sequence[Trust]) -> tuple[NetworkPlan, Floats]:
        """The plan of the network with these states of its edge servers, and their parts in the square of noise."""
        subnets = tuple(replace(each, trust=state) for each, state in zip(self.start.subnets, states, strict=True))
        network = replace(self.start, subnets=subnets, trust_probability=None)
        setup = self.shared.planned(self.config, network)
        return plan_of(setup), squares_by_server(setup)

    @cached_property
    def now(self) -> tuple[Trust, ...]:
        """The state of each edge server as it is."""
        return tuple(each.trust for each in self.start.subnets)

    @cached_property
    def prices(self) -> Floats:
        """(N, S) of each state of each edge server: 0 of that which it has, inf of what is not sold."""
        stated, found = self.section.prices or {}, np.full((len(self.now), len(STATES)), np.inf)
        for row, (subnet, now) in enumerate(zip(self.start.subnets, self.now, strict=True)):
            trusted = stated.get(subnet.name, stated.get("default", 1.0))
            if now == "untrusted":
                found[row] = 0.0, stated.get("secure-sum", np.inf), trusted
            elif now == "secure-sum":
                found[row] = np.inf, 0.0, trusted
            else:
                found[row, STATES.index(now) if now in STATES else 0] = 0.0
        return found

    def all_in(self, state: Trust) -> tuple[Trust, ...]:
        """The states where every edge server that is not trusted has another one, which is no worse than its own."""
        better = {"untrusted", "secure-sum"} if state == "trusted" else {"untrusted"}
        return tuple(state if now in better else now for now in self.now)


def choose_trust(
    document: Document,
    settings: Sequence[Setting],
    shared: SharedInputs,
    options: WorkOptions,
    accuracy: float | None,
    epsilon: float | None = None,
    joules: float | None = None,
    out: Path | None = None,
    price: float | None = None,
) -> TrustChoice:
    """The cheapest trust under which the curve reaches an accuracy, or the most accuracy that a price pays for, at an
    epsilon for every observer.

    Args:
        accuracy, price: one of them is None.
        epsilon: of the target; None for the file's.
        joules: the most that the run may spend; None for any number.
        out: directory of the runs of the curve, by default that of the file's study.

    Raises:
        UserError: no choice reaches the accuracy, within the joules; accuracy depends on more than the noise; several
            tiers; a price of no edge server.
        Stopped: by the user.
    """
    own = [*settings, *([] if epsilon is None else [Setting(EPSILON, epsilon, "--epsilon")])]
    config, topology = shared.experiment(document, own)
    section = _section_of(document, own)
    if any(not {"trust", "trusted"} & each.keys() for each in listed_in(document, own)):  # whose trust is drawn
        others = () if section.prices is not None else (("secure-sum", section.secure_sum), ("relay", section.relay))
        shares: dict[str, float] = {key: share for key, share in others if share is not None}
        note("the trust that the file draws is for sale, too: without it no edge server that states none is trusted")
        shares |= {"exact": True} if shares and section.exact else {}
        own.append(Setting("topology.trust", {"trusted": 0} | shares, WHERE))
        config, topology = shared.experiment(document, own)
    try:
        offer = TrustOffer(config, topology, section, shared)
        directory = directory_of(config, out)
        with locked(directory, str(directory), WHERE):
            maker = CurveMaker(document, tuple(own), shared, options, directory)
            maker.plans.keep()
            return _chosen(offer, maker, accuracy, price, joules)
    except UserError as error:
        raise located(error, document, own) from error.__cause__


def _section_of(document: Document, settings: Sequence[Setting]) -> TrustSection:
    copy = document.copy()
    reaching = apply_settings(copy, settings) or [Setting("name", "choice", WHERE)]
    inner = changed_topology(copy, copy.values().get("topology"), reaching)
    return TrustSection() if inner.values().get("trust") is None else check(TrustSection, inner.part("trust"))


def _chosen(
    offer: TrustOffer, maker: CurveMaker, accuracy: float | None, price: float | None, joules: float | None
) -> TrustChoice:
    sold = [state for state, column in zip(STATES, offer.prices.T, strict=True) if np.isfinite(column).any()]
    found = {state: offer.plan(offer.now if state == "untrusted" else offer.all_in(state)) for state in sold}
    priced = offer.section.prices or {}
    if relays := "relay" in priced:
        found["relay"] = offer.plan(["relay"] * len(offer.now))
    now = found["untrusted"] if "untrusted" in found else offer.plan(offer.now)
    if why := now[0].depends:
        text = f"no curve says what accuracy a trust has: {why}"
        raise UserError(f"{text}; expected training: auto, or a sweep over topology.trust", key="training")
    curve, _, score = maker.curve([Asked({}, (), plan) for plan, _ in (now, *found.values())], "choice")
    if score != "accuracy":
        raise UserError(f"runs are judged by {score} here; expected classes", key="data")
    limit = np.inf if accuracy is None else curve.noise_of(accuracy)
    if accuracy is not None and (least := min(plan.noise for plan, _ in found.values())) > limit:
        most = f"{100 * float(curve(least)):.1f} % with all that is for sale"
        raise UserError(f"expected an accuracy within reach, {most}, found {100 * accuracy:g} %", "--accuracy")
    squares = np.column_stack([found[state][1] if state in found else now[1] for state in STATES])
    within = partial(_within, offer, now[0], squares, limit, price, joules)
    try:
        plan, states = within(offer.prices)
    except NoSum:
        if "secure-sum" not in priced:
            raise
        note("secure sums are left out: with them the noise is no sum over edge servers")
        trust_alone = offer.prices.copy()
        trust_alone[trust_alone[:, 1] > 0, 1] = np.inf
        plan, states = within(trust_alone)
    bought = {
        name: (state, float(cost[STATES.index(state)]), float(of[STATES.index(old)] - of[STATES.index(state)]))
        for name, old, state, cost, of in zip(
            (each.name for each in offer.start.subnets), offer.now, states or (), offer.prices, squares, strict=False
        )
        if state != old
    }
    prices = {name: cost for name, (_, cost, _) in bought.items()}
    without = (
        {name: float(curve(np.sqrt(plan.noise**2 + gain))) for name, (_, _, gain) in bought.items()} if plan else {}
    )
    chosen: dict[str, Trust] = {name: state for name, (state, _, _) in bought.items()}
    relay = found["relay"][0] if relays else None
    keeps = relay is not None and relay.noise <= limit and (joules is None or relay.joules <= joules)
    keeps &= relays and priced["relay"] <= (np.inf if price is None else price)
    if keeps and relay and plan:
        keeps = priced["relay"] < sum(prices.values()) if price is None else relay.noise < plan.noise
    if keeps and relay:
        plan, prices, without = relay, {"relay": priced["relay"]}, {}
        chosen = {each.name: "relay" for each in offer.start.subnets}
    if plan is None:
        what = "keeps" if accuracy is None else f"reaches {100 * accuracy:g} %"
        if joules is None:
            raise UserError(f"no trust that is for sale {what}; expected a smaller accuracy", "--accuracy")
        text = f"no trust that is for sale {what} within {joules:g} J"
        raise UserError(f"{text}; expected more joules, or a smaller accuracy", "--joules")
    read, before = (float(curve(each.noise)) for each in (plan, now[0]))
    asked, half = (accuracy, price, offer.config.privacy.epsilon, joules), float(curve.band(plan.noise))
    kept = tuple(each.name for each in offer.start.subnets if each.trust == "trusted")
    return TrustChoice(*asked, chosen, prices, plan, read, half, without, before, kept, curve, maker.directory)


def _within(
    offer: TrustOffer,
    now: NetworkPlan,
    squares: Floats,
    limit: float,
    price: float | None,
    joules: float | None,
    prices: Floats,
) -> tuple[NetworkPlan | None, tuple[Trust, ...] | None]:
    """The plan and the states of the best choice: the cheapest whose noise is at most the limit, or else the quietest
    that a price pays for, within the joules.

    Raises:
        NoSum: the noise of the choice is no sum over edge servers.
    """
    most = min(limit, 2 * now.noise) ** 2
    least, tried = 0.0, list[NDArray[np.int64]]()
    for _ in range(_TRIES):
        if price is None:
            choice = cheapest(prices, squares, most, least, tried)
        else:
            choice = quietest(prices, squares, price, least, tried)
        if choice is None:
            return None, None
        states = tuple(STATES[at] if now_ in STATES else now_ for at, now_ in zip(choice, offer.now, strict=True))
        plan, _ = offer.plan(states)
        summed = float(np.sqrt(squares[np.arange(len(choice)), choice].sum()))
        if abs(plan.noise - summed) > _ADDITIVE * plan.noise:
            text = f"the noise of this network is no sum over edge servers ({plan.noise:.4g} where it is {summed:.4g})"
            raise NoSum(f"{text}; expected a sweep over topology.trust", key="topology.trust")
        if joules is None or plan.joules <= joules:
            return plan, states
        if not least:  # less noise takes more intervals and features, so that joules are a bound from below
            least = _quietest_within(offer, now, min(limit, now.noise), joules) ** 2
            if not np.isfinite(least):
                return None, None
        else:
            tried.append(choice)
    return None, None


def _quietest_within(offer: TrustOffer, now: NetworkPlan, limit: float, joules: float) -> float:
    """The least noise at which the network as it is spends at most these joules; inf where it spends more at the limit.

    Between two networks of equal noise `auto` takes equal training, whatever their trust and epsilon.
    """
    privacy = offer.config.privacy
    whole = distance_of(privacy.epsilon, privacy.delta) * now.noise

    def spent(noise: float) -> float:
        other = privacy.model_copy(update={"epsilon": float(gaussian_epsilon(whole / noise, privacy.delta))})
        config = offer.config.model_copy(update={"privacy": other})
        return replace(offer, config=config).plan(offer.now)[0].joules

    if spent(limit) > joules:
        return np.inf
    low, high = limit / 100, limit
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if spent(middle) <= joules else (middle, high)
    return high
