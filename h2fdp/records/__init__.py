"""The run directory: everything a run leaves behind, and how it is read again."""

from h2fdp.records.directory import RunDirectory
from h2fdp.records.json_lines import JsonLines, read_json_lines
from h2fdp.records.metrics import DEVICE_SCHEMA, METRICS_SCHEMA, metrics_schema, write_columns, write_table
from h2fdp.records.summary import SCHEMA_VERSION, read_summary, versions

__all__ = [
    "DEVICE_SCHEMA",
    "METRICS_SCHEMA",
    "SCHEMA_VERSION",
    "JsonLines",
    "RunDirectory",
    "metrics_schema",
    "read_json_lines",
    "read_summary",
    "versions",
    "write_columns",
    "write_table",
]
