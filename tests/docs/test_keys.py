"""Every key of a user's file says what it means, in one place: the schema and the pages agree with it."""

import re
from pathlib import Path
from typing import Any

import pytest

from experiments.keys_page import PAGE, page
from h2fdp.experiment.sections import (
    ExperimentFile,
    FaultsSection,
    PrivacySection,
    TrackingSection,
    TrainingSection,
)
from h2fdp.network.schema import TopologyFile
from h2fdp.runtime.placement import RuntimeSection
from h2fdp.schedules import ControlSection

DOCS = Path(__file__).parents[2] / "docs"


def described(schema: Any, where: str = "") -> dict[str, str]:
    """All properties by where they are, with their descriptions."""
    found = {}
    if isinstance(schema, dict):
        known = schema.get("properties", {}) if isinstance(schema.get("properties"), dict) else {}
        found |= {f"{where}/{key}": values.get("description", "") for key, values in known.items()}
        for key, below in schema.items():
            found |= described(below, f"{where}/{key}")
    for place, below in enumerate(schema if isinstance(schema, list) else []):
        found |= described(below, f"{where}/{place}")
    return found


@pytest.mark.parametrize(("file", "least"), [(ExperimentFile, 230), (TopologyFile, 50)])
def test_every_property_of_the_schema_has_a_description(file, least):
    found = described(file.model_json_schema())
    assert len(found) > least
    assert [where for where, text in found.items() if len(text) < 8] == []
    assert [text for text in found.values() if "Attributes:" in text or ">>>" in text] == []


@pytest.mark.usefixtures("users_defaults")
def test_the_page_of_keys_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m experiments.keys_page"


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("experiment-file.md", TrainingSection),
        ("experiment-file.md", PrivacySection),
        ("experiment-file.md", RuntimeSection),
        ("experiment-file.md", TrackingSection),
        ("experiment-file.md", FaultsSection),
        ("control.md", ControlSection),
        ("topology-file.md", TopologyFile),
    ],
)
def test_a_page_that_explains_a_section_leaves_out_none_of_its_keys(name, section):
    text = (DOCS / name).read_text(encoding="utf-8")
    words: set[str] = set()
    for inline, block in re.findall(r"`([^`\n]+)`|```yaml(.*?)```", text, re.S):
        words |= set(re.findall(r"[A-Za-z_][\w-]*", inline + block))
    assert {field.alias or key for key, field in section.model_fields.items()} - words == set()
