"""The run directory: everything a run leaves behind, and how it is read again."""

from h2fdp.records.directory import PACKAGE as PACKAGE
from h2fdp.records.directory import SCHEMA_VERSION as SCHEMA_VERSION
from h2fdp.records.directory import RunDirectory as RunDirectory
from h2fdp.records.directory import in_use as in_use
from h2fdp.records.directory import read_summary as read_summary
from h2fdp.records.directory import state_of as state_of
from h2fdp.records.directory import versions as versions
from h2fdp.records.json_lines import JsonLines as JsonLines
from h2fdp.records.json_lines import Mark as Mark
from h2fdp.records.json_lines import check_lines as check_lines
from h2fdp.records.json_lines import check_start as check_start
from h2fdp.records.json_lines import cut as cut
from h2fdp.records.json_lines import line_number as line_number
from h2fdp.records.json_lines import read_json_lines as read_json_lines
from h2fdp.records.log import about as about
from h2fdp.records.log import logged_to as logged_to
from h2fdp.records.tables import METRICS_SCHEMA as METRICS_SCHEMA
from h2fdp.records.tables import MetricsRows as MetricsRows
from h2fdp.records.tables import accountant_of_metrics as accountant_of_metrics
from h2fdp.records.tables import device_schema as device_schema
from h2fdp.records.tables import metrics_schema as metrics_schema
from h2fdp.records.tables import write_columns as write_columns
