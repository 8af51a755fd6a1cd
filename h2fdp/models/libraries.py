"""Modules of torchvision, timm and transformers: from keyword arguments, a configuration and weights on a disk.

Nothing is downloaded. A file names them as `torchvision:resnet18`, `timm:vit_tiny_patch16_224` or
`transformers:AutoModelForSequenceClassification`; they get the number of classes and channels of the data, and answer
scores alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from h2fdp.config.own_answers import FAILURES, failure
from h2fdp.config.own_parts import CONFIG, WEIGHTS, OwnPart
from h2fdp.errors import UserError
from h2fdp.models.weights import load_parameters

_LONGEST = 300  # characters of what a library says


def library_module(part: OwnPart, shape: tuple[int, ...] = (), classes: int | None = None) -> nn.Module:
    """A module as its library makes it, in eval mode: without dropout, and with the batch norm of its weights.

    Batch norm without weights stays in train mode, as it has no statistics (`fix` replaces it). A function of the
    user's own makes a module that keeps its modes.

    Args:
        part: the function or class of the library; next to its name the library's keyword arguments, `weights` (a file
            as `load_parameters` takes it, or a folder of `save_pretrained`) and `config` (of transformers: a folder, or
            the values of its configuration).
        shape: of a record.
        classes: scores of a record, or of a position; the last layer of weights with others begins at random numbers.
            None: the module stays as the library makes it, as an encoder.

    Raises:
        UserError: the library fails, makes no module, or the weights are not those of the module.
    """
    weights = part.given.get(WEIGHTS)
    try:
        made = (_of_transformers if part.library == "transformers" else _of_function)(part, shape, classes)
    except UserError:
        raise
    except FAILURES as error:
        if part.library and len(words := failure(error)) > _LONGEST:  # as a list of all models that there are
            raise part.origin.problem(f"cannot be made: {words[:_LONGEST]} ...") from error
        raise part.origin.failed("", error, "cannot be made") from error
    if not isinstance(made, nn.Module):
        raise part.origin.wrong("", "an nn.Module", made)
    if weights is not None and part.library != "transformers":
        key = f"{part.key or 'model'}.{WEIGHTS}"
        last = None if classes is None else last_linear(made)
        head = () if last is None else [name for name, _ in made.named_parameters() if name.startswith(f"{last}.")]
        load_parameters(made, Path(str(weights)), key, frozen=True, fresh=head)
    if not part.library:
        return made
    made.eval()
    for layer in made.modules() if weights is None else ():
        layer.training = isinstance(layer, _BatchNorm)
    return made


def last_linear(module: nn.Module) -> str | None:
    """The name of the last linear layer, which makes scores of features; None where there is none."""
    return next((name for name, layer in [*module.named_modules()][::-1] if isinstance(layer, nn.Linear)), None)


def _of_function(part: OwnPart, shape: tuple[int, ...], classes: int | None) -> Any:
    """A module of torchvision or timm."""
    if classes is None:
        return part.function()
    options: dict[str, Any] = {"num_classes": classes}
    if part.library == "timm" and len(shape) == 3:
        options["in_chans"] = shape[0]
    made = part.part(**options | part.options())
    if part.library == "torchvision" and shape[:1] == (1,):
        made.register_forward_pre_hook(_in_colour)
    return made


def _of_transformers(part: OwnPart, shape: tuple[int, ...], classes: int | None) -> Any:
    """A module of transformers; records of one dimension are numbers of words, of which those of padding are masked."""
    library: Any = sys.modules["transformers"]
    library.logging.set_verbosity_error()  # a run builds its model a dozen times
    library.logging.disable_progress_bar()
    options = {} if classes is None else {"num_labels": classes, "attn_implementation": "eager"}
    options |= part.options()
    config = part.given.get(CONFIG, {})
    for place in (part.given.get(WEIGHTS), config):
        if isinstance(place, str) and not Path(place).is_dir():
            raise part.origin.problem(f"expected a folder of save_pretrained, found no folder {place}")
    if (weights := part.given.get(WEIGHTS)) is not None:
        same = {} if classes is None else {"ignore_mismatched_sizes": True}
        made = part.part.from_pretrained(weights, local_files_only=True, **same, **options)
    else:
        if not isinstance(config, Mapping):
            values = library.AutoConfig.from_pretrained(config, local_files_only=True, **options)
        elif "model_type" in config:
            values = library.AutoConfig.for_model(**config, **options)
        elif (kind := getattr(part.part, "config_class", None)) is not None:
            values = kind(**config, **options)
        else:
            text = "expected weights: a folder of save_pretrained, or config: {model_type: distilbert, ...}"
            raise part.origin.problem(text)
        make = getattr(part.part, "from_config", None) or getattr(part.part, "_from_config", part.part)
        made = make(values)
    if classes is not None:
        if len(shape) == 1:
            made.register_forward_pre_hook(
                partial(_as_words, made.config.pad_token_id, _is_causal(made)), with_kwargs=True
            )
        made.register_forward_hook(_scores)
    return made


def _in_colour(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Grey images (n, 1, height, width) in three colours."""
    return tuple(each.expand(-1, 3, -1, -1) for each in inputs)


def _is_causal(module: nn.Module) -> bool:
    """Whether words see those before them alone."""
    return any(getattr(layer, "is_causal", False) for layer in module.modules())


def _as_words(
    padding: int | None, causal: bool, module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any]
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Numbers of words (n, length) as int64, with a mask of those that are no padding.

    Where words see all others the library asks whether any is masked, which a stack of models cannot answer; so it gets
    what is added to attention, (n, 1, 1, length).
    """
    words = inputs[0].long()
    if padding is None:
        return (words,), {}
    own = words != padding
    mask = own.long() if causal else (~own).float()[:, None, None] * torch.finfo(torch.float32).min
    return (words,), {"attention_mask": mask}


def _scores(module: nn.Module, inputs: tuple[Tensor, ...], answer: Any) -> Any:
    return getattr(answer, "logits", answer)
