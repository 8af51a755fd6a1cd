"""`training:` of an experiment file: how devices train and how often subnets aggregate."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import numpy as np
from pydantic import (
    AfterValidator,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from h2fdp.config import Section
from h2fdp.config.fields import BY_SHAPE, Count, Expect, Flag, Magnitude, Positive, Share, Whole
from h2fdp.costs.kinds import bounded
from h2fdp.protocol.subnet_facts import Weighting
from h2fdp.schedules.aggregation_times import AggregationTimes, StepDecay, share_of
from h2fdp.training.batches import Sampling, steps_per_epoch
from h2fdp.training.clipping import GAMMA, ClipScope
from h2fdp.training.gradients.rule import Precision
from h2fdp.training.local_steps import OPTIMIZERS, AdamW, Falling
from h2fdp.training.losses import CROSS_ENTROPY, LossSection
from h2fdp.wording import SCORES

# A number for the lowest edge servers, a list of one for each tier from them up, or numbers by trust and by name.
Slots = Annotated[Count | list[Count] | dict[str, Count] | None, BY_SHAPE, Expect("a whole number of at least 1")]
Times = Annotated[Whole | list[Whole] | None, BY_SHAPE, Expect("a whole number of at least 0")]
# Exactly one key of each pair is given; the first one's default holds where neither is. See `_unset_partners`, too.
PAIRS = {
    ("aggregate_every", "aggregations_per_interval"): 5,
    ("batch_size", "sampling_rate"): 32,
    ("local_steps", "local_epochs"): 20,
}

Recipe = Literal["auto", "paper"]


def default_recipe() -> Recipe:
    """The recipe that chooses the keys that a file does not state."""
    return "auto"


def _possible(until: dict[str, float]) -> dict[str, float]:
    for name in ("accuracy", "r2"):
        if until.get(name, 0.0) > 1:
            raise ValueError(f"expected an {name} of at most 1, found {until[name]:g}")
    return until


# Of measures, in the metrics.
END_COLUMNS = {"accuracy": "accuracy"} | {name: name for name in SCORES} | bounded()

if TYPE_CHECKING:
    Measure: TypeAlias = str
    BoundedCost: TypeAlias = str
else:
    Measure, BoundedCost = Literal[tuple(END_COLUMNS)], Literal[tuple(bounded())]
Measures = Annotated[
    dict[Measure, Positive], Expect("measures with values, as {accuracy: 0.8}"), AfterValidator(_possible)
]

UNTIL = (
    "training.until: when the run ends depends on the data, so the epsilon to rely on is that of all "
    "planned intervals (h2fdp privacy calibrate), or a budget; not that of the intervals that were run"
)


class SecretParticipation(Section):
    """Devices that take part by draws of their own, which no other node learns.

    Attributes:
        rate: q, with which each device takes part in an interval, by itself.
        secret: draws are independent, by the noise key, and sums are divided by expected numbers, so that accounts of
            whole devices are of a sample; false: a share of each subnet's devices, which all may know.
        cover: absent devices send noise, or zeros, in place of an update, and pay for these messages.
    """

    rate: Share
    secret: Flag = False
    cover: Flag = False

    def __format__(self, spec: str) -> str:
        return f"secret draws at a rate of {self.rate:{spec}}"


def _secret(stated: SecretParticipation) -> float | SecretParticipation:
    if stated.cover and not stated.secret:
        raise ValueError("cover hides who takes part, which is public here; expected secret: true, or no cover")
    return stated if stated.secret and stated.rate < 1 else stated.rate


Participation = Annotated[
    Share | Annotated[SecretParticipation, AfterValidator(_secret)],
    BY_SHAPE,
    Expect("a number above 0 and at most 1, or a mapping as {rate: 0.1, secret: true}"),
]

ClipNorm = Annotated[
    Magnitude | Literal["normalized"] | None,
    Expect("a number from 1e-9 to 1e9, normalized or null; or no clip_norm, which auto chooses"),
]


OptimizerSection = Annotated[AdamW, OPTIMIZERS]


class TrainingSection(Section):
    """Training of devices and aggregations of subnets (H2FDP, Sec. 3).

    A word stands for a recipe: `training: paper` is short for `training: {extends: paper}`. Until a recipe has chosen
    what a file leaves open (`run.recipe`), keys that `auto` chooses have the paper's values.

    Attributes:
        extends: what chooses the keys that are not stated: `auto`, by public facts before the run, see `run.recipe`; or
            the `paper`: 200 intervals of 20 local steps on batches of 32, aggregations every 5, batch clipping.
        intervals: K_g, the global aggregations of the run.
        local_steps: tau, the slots of an interval: steps of SGD on each device; 20 unless `local_epochs` is stated.
        local_epochs: instead of local_steps: how often a device goes through its records in an interval. Subnets then
            have no local aggregations.
        aggregate_every: slots from one local aggregation to the next, of the lowest edge servers; a list goes on with
            the tiers above. In a network of one tier it may be a mapping: `{trusted: 1, untrusted: 5}`, or names.
        aggregations_per_interval: instead of aggregate_every: local aggregations in each interval, of the lowest edge
            servers; a list goes on with the tiers above.
        batch_size: expected records of a batch: the sampling rate of a device is this by its number of records.
        sampling_rate: q, instead of batch_size: the probability that a record is in a batch.
        step_size: eta of the first interval.
        step_decay: how the step size falls: `sqrt`, by the root of the interval's number; `linear`, in equal parts
            towards 0; `cosine`, as half a wave; `none`.
        warm_up: intervals in which the step size rises to eta, in equal parts, before it falls.
        budget_decay: how the share of an interval in the privacy budget falls, in the same ways: the noise of its
            releases is divided by the root of it. `none` adds equal noise, in units of sensitivity.
        clip_norm: the bound on the norm of a gradient (`central`: of an update, `output`: of a model): a number;
            `normalized` brings all nearly to length 1; null clips nothing.
        clip_scope: whether the gradient of a `batch` or of each `record` is clipped.
        loss: loss of a record's scores; devices minimise its mean. By `data.task`, cross-entropy, `squared` or
            `sigmoid-cross-entropy` unless stated.
        momentum: momentum of the local steps, from zero with each received model.
        optimizer: null for SGD with this momentum; or `adamw` on devices, which states the step size (`lr`).
        sampling: how a batch is drawn: `poisson`, every record by itself; `fixed`, of one size. With `local_epochs`:
            `fixed`, parts of the shuffled records; `allocated`, every record chooses its batch of each epoch by itself,
            the default where that hides it: under noise on steps, or adjacency add-remove.
        participation: share of each subnet's devices that take part in an interval, at least one device, which is
            public; or `{rate: 0.1, secret: true}`.
        device_turns: b: devices take part in turns, each in one of b intervals; 1: in all; `battery`: each in as many
            as its battery pays for, spread evenly over the run.
        weights: shares in averages: `uniform`, or `by-size`, in proportion to the number of records.
        evaluate_every: intervals from one evaluation to the next; the last interval is always evaluated.
        evaluate_devices: at each evaluation also the accuracy (or RMSE) of each device, by its own test records or its
            own mix of labels: its deciles, and the mean of the worst tenth of devices.
        until: ends the run after the first interval that reaches one of these: a test `accuracy` or `r2`, an `rmse` or
            a `perplexity` as low as that, the `joules` of all messages, the `bytes` that were sent up or simulated
            `seconds` until then; null for none.
        precision: to what the factors of convolutions' products are rounded in local steps: `bfloat16` takes half the
            time on processors that have it; models, sums, clipping and noise keep 32 bits.
    """

    extends: Annotated[Recipe, Expect("auto or paper")] = "auto"
    intervals: Count = 200
    local_steps: Count | None = None
    local_epochs: Count | None = None
    aggregate_every: Slots = None
    aggregations_per_interval: Times = None
    batch_size: Count | None = None
    sampling_rate: Share | None = None
    step_size: Magnitude = 0.1
    step_decay: StepDecay = "sqrt"
    warm_up: Whole = 0
    budget_decay: StepDecay = "none"
    clip_norm: ClipNorm = 1.0
    clip_scope: ClipScope = "batch"
    loss: LossSection = CROSS_ENTROPY
    momentum: Falling = 0.0
    optimizer: OptimizerSection | None = None
    sampling: Sampling = "poisson"
    participation: Participation = 1.0
    device_turns: Annotated[Count | Literal["battery"], Expect("a whole number of at least 1, or battery")] = 1
    weights: Weighting = "uniform"
    evaluate_every: Count = 1
    evaluate_devices: Flag = False
    until: Measures | None = None
    precision: Precision = "float32"
    _open: frozenset[str] = PrivateAttr(default=frozenset())
    _stated: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Editors accept the word, too."""
        whole = super().__get_pydantic_json_schema__(core_schema, handler)
        return {"anyOf": [{"type": "string", "enum": list(get_args(Recipe))}, whole]}

    @property
    def left_open(self) -> frozenset[str]:
        """The keys that a recipe has yet to choose: those that the file does not state, under `auto`."""
        return self._open

    @property
    def stated(self) -> frozenset[str]:
        """The keys that the file has."""
        return self._stated

    @property
    def draw(self) -> SecretParticipation | None:
        """The secret draw of participation; None where participation is public."""
        return self.participation if isinstance(self.participation, SecretParticipation) else None

    @property
    def public_share(self) -> float:
        """The share of devices that is drawn for all to know; 1 where devices draw in secret."""
        return 1.0 if isinstance(self.participation, SecretParticipation) else self.participation

    def complete(self, values: dict[str, Any]) -> TrainingSection:
        """The section with these values for keys that are open; for the others the paper's. Nothing is open then."""
        found = self.model_copy(update=values)
        found._open = frozenset()
        return found

    @property
    def largest_norm(self) -> float | None:
        """The length that clipped vectors do not exceed; None where nothing is clipped."""
        return 1.0 if self.clip_norm == "normalized" else self.clip_norm

    @property
    def gamma(self) -> float | None:
        """The gamma of normalised vectors, see `Clipping`; None where the clip norm is a number."""
        return GAMMA if self.clip_norm == "normalized" else None

    @property
    def aggregation_times(self) -> AggregationTimes:
        """The times of local aggregations; those of a mapping by trust are of no edge server yet."""
        return AggregationTimes(self.aggregate_every, self.aggregations_per_interval)

    def taking(self, sizes: np.ndarray) -> np.ndarray:
        """(N,) the number of devices that take part, of subnets of these sizes (N,)."""
        if self.turns == 1:
            return share_of(sizes, self.public_share)
        return np.asarray(np.maximum(sizes // self.turns, 1))

    @property
    def turns(self) -> int:
        """Intervals from one turn of a device to its next one, where groups take turns."""
        return 1 if isinstance(self.device_turns, str) else self.device_turns

    def sampling_rates(self, sizes: np.ndarray) -> np.ndarray:
        """(I,) q_i = batch_size / D_i, set before the run: it does not change with a neighbouring data set.

        Args:
            sizes: (I,) D_i.
        """
        if self.sampling_rate is not None:
            rates = np.full(len(sizes), self.sampling_rate)
        else:
            assert self.batch_size is not None
            rates = np.minimum(1.0, self.batch_size / sizes)
        if self.sampling == "poisson":
            return rates
        if self.sampling == "allocated":
            return 1 / steps_per_epoch(rates)
        # A batch of fixed size holds whole records: the rate is the one that is really drawn.
        return np.asarray(np.clip(np.rint(rates * sizes), 1, sizes) / sizes)

    def interval_steps(self, sizes: np.ndarray, rates: np.ndarray) -> int:
        """tau_0; where devices train in epochs, the local steps of the device that takes most.

        Args:
            sizes, rates: (I,) D_i and q_i.
        """
        if self.local_epochs is None:
            assert self.local_steps is not None, "steps or epochs"
            return self.local_steps
        return self.local_epochs * int(steps_per_epoch(rates).max())

    def records_of_interval(self, sizes: np.ndarray, rates: np.ndarray) -> float:
        """Records that all participants together are expected to draw in the first interval.

        Args:
            sizes, rates: (I,) D_i and q_i.
        """
        each = sizes * (rates * self.local_steps if self.local_epochs is None else self.local_epochs)
        share = self.public_share if self.draw is None else self.draw.rate
        return share * float(each.sum())

    @model_validator(mode="wrap")
    @classmethod
    def _note_what_is_open(cls, value: Any, handler: ModelWrapValidatorHandler[TrainingSection]) -> TrainingSection:
        """A word is a recipe; a mapping states some keys and leaves the others to one."""
        if isinstance(value, str):
            value = {"extends": value}
        if not isinstance(value, dict):
            return handler(value)
        stated, value = set(value), {"extends": default_recipe(), **value}
        if value.get("local_epochs") is not None:  # epochs go through shuffled records, and know no local aggregations
            alone = (
                {} if {"aggregate_every", "aggregations_per_interval"} & stated else {"aggregations_per_interval": 0}
            )
            value = {"sampling": "allocated", **alone, **value}
        # If neither key of a pair is given, the first one has its default.
        value |= {pair[0]: default for pair, default in PAIRS.items() if not set(pair) & set(value)}
        if value.get("optimizer") is not None and "step_size" in stated:
            raise ValueError("optimizer.lr is the step size; expected one of training.optimizer and training.step_size")
        found = handler(value)
        if found.optimizer is not None:
            found, stated = found.model_copy(update={"step_size": found.optimizer.lr}), stated | {"step_size"}
        found._stated = frozenset(stated)
        if found.extends == "auto":
            stated |= {partner for pair in PAIRS if set(pair) & stated for partner in pair}
            found._open = frozenset(cls.model_fields) - stated - {"extends"}
        return found

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """All keys; of a section that a recipe has not completed, those that are stated."""
        written: dict[str, Any] = handler(self)
        if not self._open:
            written.pop("extends", None)
        if self.optimizer is not None:
            written.pop("step_size", None)
        return {key: value for key, value in written.items() if key not in self._open}

    @field_validator("aggregate_every")
    @classmethod
    def _multiples(cls, value: Slots) -> Slots:
        if value == {}:
            raise ValueError("expected a number for trusted and untrusted edge servers, or for each by name")
        if value == [] or (isinstance(value, list) and any(above % below for below, above in pairwise(value))):
            text = "expected slots for each tier from the lowest up, each a multiple of the one before"
            raise ValueError(f"{text}, found {value}")
        return value

    @field_validator("aggregations_per_interval")
    @classmethod
    def _divisors(cls, value: Times) -> Times:
        if value == [] or (isinstance(value, list) and not all(_divides(*pair) for pair in pairwise(value))):
            text = "expected a number for each tier from the lowest up, each a divisor of the one before, or 0"
            raise ValueError(f"{text}, found {value}")
        return value

    @model_validator(mode="after")
    def _epochs_and_pairs(self) -> TrainingSection:
        known = ("poisson", "fixed") if self.local_epochs is None else ("fixed", "allocated")
        if self.sampling not in known:
            why = "an epoch has each record once" if self.local_epochs else "only epochs allocate records to batches"
            raise ValueError(f"{why}; expected sampling: {' or '.join(known)}, found {self.sampling}")
        if self.local_epochs is not None and (self.aggregations_per_interval != 0):
            raise ValueError("devices end their epochs at different slots; expected aggregations_per_interval: 0")
        for pair in PAIRS:
            stated = [key for key in pair if getattr(self, key) is not None]
            if len(stated) != 1:
                found = "both" if stated else "neither"
                raise ValueError(f"expected exactly one of {' and '.join(pair)}, found {found}")
        return self


def _divides(below: int, above: int) -> bool:
    """Whether every n-th aggregation of one tier can be an aggregation of the tier above."""
    return above == 0 or (below > 0 and below % above == 0)
