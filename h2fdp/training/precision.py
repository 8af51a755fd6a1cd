"""To how many digits the factors of convolutions' products are rounded in the local steps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]
NUMBERS: Mapping[Precision, torch.dtype] = MappingProxyType({"float32": torch.float32, "bfloat16": torch.bfloat16})
