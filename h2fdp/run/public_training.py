"""Training of the first model on records that count as public, before anything is sent to a device."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.data import DeviceData
from h2fdp.experiment.training_section import PublicSection
from h2fdp.runtime.local_hosts import run_arithmetic
from h2fdp.streams import Streams
from h2fdp.training import BatchSampler, build_engine
from h2fdp.training.batches import row_length
from h2fdp.training.device_records import device_records
from h2fdp.training.losses import Loss


def trained_on_public(
    model: Tensor, module: nn.Module, data: DeviceData, section: PublicSection, loss: Loss, streams: Streams
) -> Tensor:
    """(M,) the model after plain steps of SGD on the public records, in batches drawn without replacement.

    Nothing of it depends on the noise key or on a device: the same seed gives the same model.

    Args:
        model: (M,) that it begins with.
        module: of the model's architecture.
    """
    assert data.public is not None, "there are records to train on"
    records = device_records(data, data.public)
    batch = min(section.batch_size, len(data.public))
    rates = np.array([batch / len(data.public)])
    sampler = BatchSampler(streams.public, "cloud", "fixed", records.sizes, rates, row_length("fixed", float(batch)))
    engine, row = build_engine("loop", module, None, Plain(), loss=loss), np.array([0])
    with run_arithmetic():
        batches = sampler.draw(0, range(section.steps), row, "public batch")
        trained = engine.train(model[None], records, row, batches, section.step_size)
    return model - trained.updates[0]
