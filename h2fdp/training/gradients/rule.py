"""Gradient rules of the stacked engine: the gradients of a stack of devices, each over its own records.

Chains of known layers have theirs written out: one pass forward, one back to each layer's output, and batched products
from there, so nothing but sums over records, weighted by shares and clipping factors, is ever computed of the
parameters' gradients where layers allow it. Of any other module torch.func makes them.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from h2fdp.models.construct import ParameterLayout
from h2fdp.training.clipping import Clipping, clip_factors, of_records
from h2fdp.training.gradients.layers import chain_of
from h2fdp.training.gradients.per_example import Collected, InPlace, PerExampleGradients, Step, Target, variants_apart
from h2fdp.training.gradients.tapped import TappedGradients, tapped_layers
from h2fdp.training.local_steps import FeatureComparison
from h2fdp.training.losses import CROSS_ENTROPY, Loss, RecordLoss

Precision = Literal["float32", "bfloat16"]


class LayeredGradients:
    """Weighted sums of the gradients of records' losses, device by device, of a chain of known layers."""

    def __init__(
        self,
        module: nn.Module,
        chain: list[Step],
        clipping: Clipping | None,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        self._loss = loss
        self._flat = ParameterLayout(module)
        self._chain = chain
        self._clipping = clipping
        self._first = next(place for place, step in enumerate(chain) if step.names)  # nothing before it learns

    def padding(self, width: int) -> int:
        """None, see `FunctionalGradients.padding`."""
        return 0

    def sums(
        self,
        models: Tensor,
        x: Tensor,
        y: Tensor,
        shares: Tensor,
        others: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """sum_r shares_r g_r of each device, where g_r is the gradient of its r-th record.

        No device's sum depends on another device of the stack, to the bit, as long as there are two or more.

        Args:
            models: (n, M) where each device stands.
            x: (n, W, *shape) records as the model sees them; or (n, W times, *shape) the variants of each, over which
                its gradient is averaged.
            y: (n, W, ...) labels, of each variant.
            shares: (n, W) 1 / |xi_i| for a drawn record, 0 for padding.
            others: none: the loss is one of scores, which no other models enter.

        Returns:
            (n, M); where the rule has a clip norm G, each g_r is scaled down to it first.
        """
        if len(models) == 1:
            sums = torch.empty_like(models)
            self._add(models, x, y, shares, InPlace(self._flat.views(sums), kept=0.0, factor=1.0))
            return sums
        collected = Collected()
        self._add(models, x, y, shares, collected)
        return collected.vector(self._flat.names)

    def descend(self, model: Tensor, x: Tensor, y: Tensor, shares: Tensor, step_size: float) -> None:
        """model (1, M) - step_size `sums`, in the memory of the model: no gradient is ever stored."""
        self._add(model, x, y, shares, InPlace(self._flat.views(model), kept=1.0, factor=-step_size))

    def _add(self, models: Tensor, x: Tensor, y: Tensor, shares: Tensor, target: Target) -> None:
        """Add the sums to the target, which may be the models."""
        parameters, saved = self._flat.views(models), []
        for step in self._chain:
            x, kept = step.forward(parameters, x)
            saved.append(kept)
        clips, times = self._clipping is not None, x.shape[1] // shares.shape[1]
        delta: Tensor | None = self._loss.score_gradient(x, y, None if clips else _spread(shares, times))
        if clips and times > 1 and delta is not None:
            delta = delta / times
        names: list[str] = []
        records: list[PerExampleGradients] = []
        for place in range(len(self._chain) - 1, self._first - 1, -1):
            assert delta is not None, "it goes on"
            step = self._chain[place]
            delta, gradients = step.back(parameters, saved.pop(), delta, place > self._first, clips)
            if clips:  # nothing is added before all norms are known
                names, records = [*step.names, *names], [*cast("list[PerExampleGradients]", gradients), *records]
                continue
            for name, each in zip(step.names, gradients, strict=True):
                each.add(None, name, target)
        if self._clipping is not None:
            if times > 1:
                records = [each.merged(times) for each in records]
            add_clipped(names, records, shares, target, self._clipping)


def add_clipped(
    names: list[str],
    records: list[PerExampleGradients],
    shares: Tensor,
    target: Target,
    clipping: Clipping,
) -> None:
    """Add the sums of the records' gradients in these parameters, each clipped as a whole."""
    # Added one by one: torch sums the rows of one tensor in an order that depends on how many columns it has.
    total = torch.zeros_like(shares)
    for each in records:
        total += each.squared_norms()
    bad = total.isfinite().logical_not_()
    if bad.device.type != "cpu" or bad.any():  # a GPU would have to be waited for, to know
        records = [each.without(bad) for each in records]
    factors = clip_factors(total.sqrt_(), clipping.norm, clipping.gamma).mul_(shares)
    for name, each in zip(names, records, strict=True):
        each.add(factors, name, target)


# Numbers in the gradients of records that are written out at once, 20 MB: memory that glibc's malloc uses again. Larger
# blocks are fresh in each step: 1,200 records of a perceptron (50,890 parameters) took 0.47 s at once, 0.26 in parts.
_VALUES_AT_ONCE = 5_000_000
_LAST_NUMBERS = 64  # a loop over vectors of a processor leaves fewer than these over


class FunctionalGradients:
    """Gradients of any module. Clipped records' gradients are written out, some of one device at a time.

    Args:
        clipping: of records; None for none.
        last_numbers: of a tensor, which belong to no device; 0 where a device's bits may depend on the stack.
    """

    def __init__(
        self,
        module: nn.Module,
        clipping: Clipping | None,
        loss: Loss = CROSS_ENTROPY,
        comparison: FeatureComparison | None = None,
        last_numbers: int = _LAST_NUMBERS,
    ) -> None:
        self._last_numbers = last_numbers
        self._losses = RecordLoss(module, loss, comparison)
        self._clipping = clipping

    def padding(self, width: int) -> int:
        """Devices that are computed with a stack for nothing, behind it, at `width` records of each.

        Torch computes the last few numbers of a tensor by another routine than the rest. These devices' are the last
        ones of every tensor, also of the smallest parameter's.
        """
        numbers = min(width, *filter(None, self._losses.flat.sizes))
        return 0 if self._clipping is not None else -(-self._last_numbers // numbers)

    def sums(
        self,
        models: Tensor,
        x: Tensor,
        y: Tensor,
        shares: Tensor,
        others: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        times = x.shape[1] // shares.shape[1]
        given = (models, x, y, shares if self._clipping is not None else _spread(shares, times), *(others or ()))
        if self._clipping is None and len(models) == 1:
            leaf, *rest = (each[0].detach() for each in given)
            return torch.stack(torch.autograd.grad(self._sum(leaf.requires_grad_(), *rest), leaf))
        if self._clipping is None:
            padding = self.padding(shares.shape[1])
            padded = (torch.cat([each, each[-1:].expand(padding, *each.shape[1:])]) for each in given)
            sums: Tensor = vmap(grad(self._sum))(*padded)
            return sums[: len(models)]
        summed = torch.empty_like(models)
        alike = (None,) * len(others or ())
        x, y = (variants_apart(each, 1, times) for each in (x, y))
        one_by_one = vmap(grad(self._record_loss), in_dims=(None, 0, 0, *alike))
        at_once = max(1, _VALUES_AT_ONCE // models.shape[1])
        for device, total in enumerate(summed):
            fixed = () if others is None else (others[0][device], others[1][device])
            for first in range(0, shares.shape[1], at_once):
                part = slice(first, first + at_once)
                each = one_by_one(models[device], x[device, part], y[device, part], *fixed)
                clipped = self._clipping.apply(each)
                if first:
                    total.addmv_(clipped.T, shares[device, part])
                else:
                    torch.mv(clipped.T, shares[device, part], out=total)
        return summed

    def _sum(self, model: Tensor, x: Tensor, y: Tensor, shares: Tensor, *others: Tensor) -> Tensor:
        """Sum of the records' losses, weighted by their shares."""
        return (self._losses.each(model, x, y, *others) * shares).sum()

    def _record_loss(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        # A batch of one: the loss of a record without a batch copies numbers to a GPU for each device and step.
        # With variants it has a row for each.
        return self._sum(model, x, y, torch.full((len(x),), 1 / len(x), dtype=torch.float32, device=x.device), *others)


def _spread(shares: Tensor, times: int) -> Tensor:
    """(n, W times) shares of variants in the share of their record."""
    return shares if times == 1 else (shares / times).repeat_interleave(times, dim=1)


GradientRule = LayeredGradients | TappedGradients | FunctionalGradients


def gradient_rule(
    module: nn.Module,
    clipping: Clipping | None,
    loss: Loss = CROSS_ENTROPY,
    comparison: FeatureComparison | None = None,
    precision: Precision = "float32",
) -> GradientRule:
    """The fastest rule for a module.

    Args:
        clipping: of gradients; that of batches is none of its own.
        comparison: an objective that compares models, which rules out gradients that are written out.
        precision: of the factors of convolutions' products, which written out gradients alone can round.
    """
    chain, by_record = chain_of(module, getattr(torch, precision)), of_records(clipping)
    if chain is None or comparison is not None:
        assert precision == "float32", "torch.func rounds nothing"
        if by_record is not None and comparison is None and isinstance(layers := tapped_layers(module), dict):
            return TappedGradients(module, layers, loss, partial(add_clipped, clipping=by_record))
        return FunctionalGradients(module, by_record, loss, comparison)
    return LayeredGradients(module, chain, by_record, loss)


def is_layered(module: nn.Module) -> bool:
    """Whether the module is a chain of layers whose gradients are written out."""
    return chain_of(module) is not None
