"""Values as YAML text and back, by libyaml where PyYAML has it: six times as fast, with the same text.

For files that h2fdp itself writes; what users write is read by `config.parsing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def text_of(values: Mapping[str, Any]) -> str:
    """A mapping in the order of its keys.

    >>> text_of({"seed": 1, "data": {"name": "digits"}})
    'seed: 1\\ndata:\\n  name: digits\\n'
    """
    return str(yaml.dump(values, Dumper=_DUMPER, sort_keys=False, width=120))


def values_of(text: str) -> Any:
    """What a text says.

    Raises:
        yaml.YAMLError: it is no YAML, or has tags.

    >>> values_of("seed: 1\\ndata: {name: digits}\\n")
    {'seed': 1, 'data': {'name': 'digits'}}
    """
    return yaml.load(text, Loader=_LOADER)
