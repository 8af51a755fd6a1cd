"""What models say of records, by compiled kernels as by their modules; evaluation by either."""

import numpy as np
import pytest
import torch

from h2fdp.training.device_records import DeviceRecords, Evaluator, ModuleScores
from h2fdp.training.engine import build_scores
from h2fdp.training.losses import CROSS_ENTROPY
from tests.training.groups import records
from tests.training.test_compiled_engine import CLASSES, MODELS, SHAPE, SIZES, model_and_starts


def both(name, held, part=slice(None)):
    module, starts = model_and_starts(name, 1)
    model = starts[0]
    return build_scores("compiled", module)(model, held, part), ModuleScores(module)(model, held, part)


@pytest.mark.parametrize("stored", ["bytes", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_compiled_scores_are_the_modules(name, stored):
    held = records(SHAPE, SIZES)
    if stored == "float32":
        held = DeviceRecords(held.x.float() * 0.37, held.y, held.offsets, held.scale, held.shift)
    found, expected = both(name, held)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_records_scores_do_not_depend_on_its_batch():
    held = records(SHAPE, SIZES)
    whole, _ = both("deep", held)
    for first, stop in [(0, 1), (3, 20), (140, 146), (20, 20)]:
        part, _ = both("deep", held, slice(first, stop))
        assert part.numpy().tobytes() == whole[first:stop].numpy().tobytes()


def test_evaluation_by_compiled_scores():
    held = records(SHAPE, SIZES)
    held = DeviceRecords(held.x, held.y % CLASSES, held.offsets, held.scale, held.shift)
    module, starts = model_and_starts("mlp", 1)
    found, expected = (
        Evaluator([build_scores(name, module)], CROSS_ENTROPY).evaluate(starts[0], held)
        for name in ("compiled", "loop")
    )
    np.testing.assert_array_equal(found.accuracy, expected.accuracy)
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-5)
