"""Inputs that are no images, standardised by the test records, which are public: nothing private is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.records import Records, Scaling

NOTE = "model logistic: inputs are standardised by the test records, which count as public; no account covers these"
_FARTHEST = 5.0  # deviations; what lies beyond is cut off, as in the columns of tables


@dataclass(frozen=True, eq=False)
class Standardizing:
    """x -> (x - mean) / deviation, cut to -5 .. 5; inputs that do not differ become 0.

    Columns of large means or unlike deviations make gradient descent slow, and clipping cuts off what is small.

    Attributes:
        mean, deviation: of each value, the shape of one record.
    """

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of(cls, data: DeviceData) -> Standardizing | None:
        """By the test records' inputs; None where these belong to devices, or records are drawn.

        >>> Standardizing(np.array([2.0]), np.array([0.5]))(np.array([[1.0], [9.0]])).tolist()
        [[-2.0], [5.0]]
        """
        if data.test_owners is not None or not isinstance(data, FederatedData) or len(data.test) < 2:
            return None
        seen = data.test.x.astype(np.float64)
        return cls(seen.mean(axis=0).astype(np.float32), seen.std(axis=0).astype(np.float32))

    def written(self) -> dict[str, list[float]]:
        """Both, value after value, for a file."""
        return {"mean": self.mean.ravel().tolist(), "deviation": self.deviation.ravel().tolist()}

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Inputs (n, *shape), alike."""
        divisor = np.where(self.deviation > 0, self.deviation, np.inf)
        found: NDArray[np.float32] = np.clip((x - self.mean) / divisor, -_FARTHEST, _FARTHEST).astype(np.float32)
        return found

    def applied(self, data: DeviceData) -> DeviceData:
        """The same devices and records, with standardised inputs."""
        assert isinstance(data, FederatedData), "drawn records stay as they are"

        def of(records: Records | None) -> Records | None:
            return None if records is None else Records(self(records.x.astype(np.float32)), records.y)

        train, test = of(data.train), of(data.test)
        assert train is not None, "devices hold records"
        assert test is not None, "there are test records"
        return replace(
            data, train=train, test=test, validation=of(data.validation), public=of(data.public), scaling=Scaling()
        )
