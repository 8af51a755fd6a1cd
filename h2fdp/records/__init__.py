"""The run directory: everything a run leaves behind, and how it is read again."""

from h2fdp.records.directory import RunDirectory
from h2fdp.records.ledger_file import LedgerFile, read_ledger
from h2fdp.records.metrics import DEVICE_SCHEMA, METRICS_SCHEMA, metrics_schema, write_table
from h2fdp.records.summary import SCHEMA_VERSION, read_summary, versions

__all__ = [
    "DEVICE_SCHEMA",
    "METRICS_SCHEMA",
    "SCHEMA_VERSION",
    "LedgerFile",
    "RunDirectory",
    "metrics_schema",
    "read_ledger",
    "read_summary",
    "versions",
    "write_table",
]
