"""The run directory: everything a run leaves behind, and how it is read again."""

from h2fdp.records.directory import PACKAGE, SCHEMA_VERSION, RunDirectory, in_use, read_summary, state_of, versions
from h2fdp.records.json_lines import JsonLines, Mark, check_lines, check_start, cut, line_number, read_json_lines
from h2fdp.records.log import about, logged_to
from h2fdp.records.tables import (
    DEVICE_SCHEMA,
    METRICS_SCHEMA,
    MetricsRows,
    accountant_of_metrics,
    device_schema,
    metrics_schema,
    write_columns,
)

__all__ = [
    "DEVICE_SCHEMA",
    "METRICS_SCHEMA",
    "PACKAGE",
    "SCHEMA_VERSION",
    "JsonLines",
    "Mark",
    "MetricsRows",
    "RunDirectory",
    "about",
    "accountant_of_metrics",
    "check_lines",
    "check_start",
    "cut",
    "device_schema",
    "in_use",
    "line_number",
    "logged_to",
    "metrics_schema",
    "read_json_lines",
    "read_summary",
    "state_of",
    "versions",
    "write_columns",
]
