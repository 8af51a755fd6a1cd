"""Files that users write: read with line numbers and checked strictly; all errors are reported at once."""

from h2fdp.config.check import check
from h2fdp.config.fields import NamedSection, Section
from h2fdp.config.parsing import Document, empty_document, parse, read_document

__all__ = ["Document", "NamedSection", "Section", "check", "empty_document", "parse", "read_document"]
