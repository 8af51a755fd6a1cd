"""Methods: names for useful points on the six axes; any other point is a mapping of the axes."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from h2fdp.algorithms import (
    Aggregation,
    AggregationOptions,
    AggregationSection,
    Factor,
    ObjectiveSection,
    ServerSection,
    aggregation_of,
    own_objective,
    rules_in,
)
from h2fdp.algorithms.aggregation import AGGREGATIONS, Link, WeightedAverage
from h2fdp.algorithms.fedavg import AverageOptions, Plain
from h2fdp.config.check import quote
from h2fdp.config.fields import NamedSection, Section, descriptions_of_keys
from h2fdp.config.named_options import NAMED_METHODS
from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import hint
from h2fdp.privacy import NoisePlacementSection, NonPrivate
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.schedules.registry import ScheduleSection, chosen
from h2fdp.schedules.traits import ScheduleOptions, ScheduleTraits
from h2fdp.training.local_steps import LocalObjective

UPCYCLED = "upcycled-"  # before a name: the same method with a second server update
_FACTOR = 0.5  # of such a method
Shape = Literal["tree", "star"]


class Method(Section):
    """A choice on each axis.

    Attributes:
        objective: the local objective of devices.
        privacy: the noise placement.
        aggregation: how every aggregator combines its children's uploads.
        server: how the cloud updates the model with the average of the uploads.
        upcycle: length of a second update in the direction of each; null for none.
        schedule: how interval length, participation and step size are decided; `h2fdp` is `control.enabled`.
        topology: `tree`: the network as it is; `star`: all devices directly under the cloud, without local
            aggregations.
    """

    objective: ObjectiveSection = Plain()
    privacy: NoisePlacementSection = NonPrivate()
    aggregation: AggregationSection = WeightedAverage()
    server: ServerSection = AverageOptions()
    upcycle: Factor | None = None
    schedule: ScheduleSection = FixedOptions()
    topology: Shape = "tree"

    @property
    def local_objective(self) -> LocalObjective:
        """The objective that a device minimises; made anew where it is a user's own."""
        return own_objective(self.objective) if isinstance(self.objective, OwnPart) else self.objective

    @property
    def combination(self) -> Aggregation:
        """The rule by which every aggregator combines its uploads."""
        return aggregation_of(self.aggregation)

    @property
    def rules(self) -> dict[Link, AggregationOptions | OwnPart]:
        """The rule of each link."""
        return rules_in(self.aggregation)

    @property
    def traits(self) -> ScheduleTraits:
        """The traits of the schedule, which are known before a run."""
        return chosen(self.schedule)


def _point(objective: Any = "plain", privacy: Any = "none", server: Any = "average", **axes: Any) -> Method:
    choices = {"objective": objective, "privacy": privacy, "server": server}
    return Method.model_validate(choices | axes)


def _by_schedule(named: tuple[str, tuple[dict[str, Any], str]]) -> str:
    """The key of an order that does not hang on which package was imported first: what has a schedule comes later."""
    name, (axes, _) = named
    return name if "schedule" in axes else ""


_NAMED: dict[str, tuple[Method, str]] = {
    "hfl": (_point(), "hierarchical FedAvg without noise, the upper bound (Liu et al. 2020)"),
    "hfl-dp": (_point(privacy="local"), "hierarchical, with noise from every device (Shi et al. 2021)"),
    "h2fdp": (
        _point(privacy="hierarchical"),
        "noise at trusted edge servers, else at devices; fixed schedule (H2FDP, Algorithm 2)",
    ),
    "h2fdp-adaptive": (
        _point(privacy="hierarchical", schedule="h2fdp"),
        "as h2fdp, with tau, participation and step size from problem P (H2FDP, Algorithm 1)",
    ),
    "pedpfl": (
        _point("proximal", "local", topology="star"),
        "all devices under the cloud, local noise, a proximal term (Shen et al. 2022)",
    ),
    **{name: (_point(**axes), text) for name, (axes, text) in sorted(NAMED_METHODS.items(), key=_by_schedule)},
    "fedavg-dp": (
        _point(privacy="dp-sgd", topology="star"),
        "DP-SGD at every local step, a fixed tau (ALI-DPFL's baseline)",
    ),
    "pe-dpfl": (
        _point("proximal", "output", topology="star"),
        "a proximal term and noise on the clipped model (Shen et al. 2022, as ALI-DPFL compares with it)",
    ),
}
_BY_LINK = AGGREGATIONS.unnamed  # the aggregation whose options are links
_FIRST = ("h2fdp", "hfl", "fedavg")  # of methods that are equally near
METHODS: dict[str, Method] = {name: method for name, (method, _) in _NAMED.items()}


def _named(name: Any) -> Method | None:
    """The method of a name, or of a name after `upcycled-`."""
    plain = METHODS.get(name.removeprefix(UPCYCLED)) if isinstance(name, str) else None
    if plain is None or not name.startswith(UPCYCLED):
        return plain
    return plain.model_copy(update={"upcycle": _FACTOR})


class MethodSection(Method, NamedSection):
    """`method:` of an experiment: a name, or a mapping of axes that may extend a name.

    Attributes:
        extends: a method by name, whose choices hold on all axes that are not stated; keys of an axis without a
            `name` change single options of its choice, as `schedule: {buffer: {cloud: 5}}`.

    >>> MethodSection.model_validate("hfl-dp").privacy.name
    'local'
    >>> MethodSection.model_validate({"extends": "hfl", "topology": "star"}).topology
    'star'
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The axes, and `extends`, which is gone once the section is checked."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        text = descriptions_of_keys(cls)["extends"]
        upcycled = {"pattern": f"^{UPCYCLED}({'|'.join(METHODS)})$"}
        names = [{"enum": list(METHODS)}, upcycled]
        schema["anyOf"][1]["properties"]["extends"] = {"type": "string", "anyOf": names, "description": text}
        return schema

    @model_validator(mode="before")
    @classmethod
    def _extended(cls, value: Any) -> Any:
        stated = {"extends": value} if isinstance(value, str) else value
        if not isinstance(stated, dict) or "extends" not in stated:
            return stated
        base = stated["extends"]
        if (method := _named(base)) is None:
            names = f"expected one of {', '.join(METHODS)}, or {UPCYCLED} before a name"
            raise ValueError(f"{names}; found {quote(base)}{hint(base, METHODS)}")
        axes = method.model_dump()
        return axes | {axis: _changed(axes.get(axis), choice) for axis, choice in stated.items() if axis != "extends"}


def _changed(options: Any, stated: Any) -> Any:
    """A choice as stated; keys without a `name` change options of the method's own choice, but for links: another
    aggregation has them."""
    if not isinstance(options, dict) or not isinstance(stated, dict) or "name" in stated:
        return stated
    if stated and stated.keys() <= set(get_args(Link)) and options.get("name", _BY_LINK) != _BY_LINK:
        return stated
    return options | {key: _changed(options.get(key), value) for key, value in stated.items()}


def name_of(method: Method) -> str:
    """The method's name; of a mixture that of the nearest method, and what is otherwise: `hfl, privacy dp-sgd`."""
    if method.upcycle is not None:
        return UPCYCLED + name_of(method.model_copy(update={"upcycle": None}))
    point = _point_of(method)
    points = _named_points()
    others = {name: {axis for axis in point if named[axis] != point[axis]} for name, named in points.items()}
    alike = [name for name, axes in others.items() if not axes]
    if alike:
        exact = [name for name in alike if Method.model_validate(method.model_dump()) == METHODS[name]]
        return (exact + alike)[0]

    waits = "(" in point["schedule"]  # for buffers: nearest then is what has some, too
    unlike = {name: waits and "(" not in named["schedule"] for name, named in points.items()}
    nearest = min(others, key=lambda name: (len(others[name]), unlike[name], name not in _FIRST))
    shown = {axis: choice.rpartition("/")[2] for axis, choice in point.items()}  # of an own part without its folder
    return ", ".join([nearest, *(f"{axis} {shown[axis]}" for axis in point if axis in others[nearest])])


@cache  # each run is named several times
def _named_points() -> dict[str, dict[str, str]]:
    return {name: _point_of(named) for name, named in METHODS.items()}


def _point_of(method: Method) -> dict[str, str]:
    """The choice on each axis, and for how much aggregators wait: that does make another method."""
    point = axes_of(method)
    variant = method.schedule.variant if isinstance(method.schedule, ScheduleOptions) else ""
    return point | ({"schedule": f"{point['schedule']} ({variant})"} if variant else {})


def axes_of(method: Method) -> dict[str, str]:
    """The choice on each axis by name; parameters do not make another method."""
    axes = method.model_dump(exclude={"upcycle"})
    return {axis: choice["name"] if isinstance(choice, dict) else choice for axis, choice in axes.items()}


def describe_methods() -> list[dict[str, str]]:
    """A row for each named method, its axes and its source, and one for the prefix."""
    rows = [{"name": name, **axes_of(method), "description": text} for name, (method, text) in _NAMED.items()]
    axes = dict.fromkeys(axes_of(METHODS["hfl"]), "same")
    text = "any of these, with a second server update after each interval (Upcycled-FL)"
    return [*rows, {"name": f"{UPCYCLED}NAME", **axes, "server": "same, upcycled", "description": text}]
