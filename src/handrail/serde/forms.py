"""How what is not a string is written in a string of JSON: as a value, and as a key of an object.

These are regular expressions of the dialect that JSON Schema recommends. Those of decimals, fractions and keys are
published as `pattern`; those of the others are what their `format` stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DECIMAL: Final = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"
"""A `Decimal`."""

FRACTION: Final = r"^[-+]?[0-9]+(/0*[1-9][0-9]*|\.[0-9]+)?$"
"""A `Fraction`."""

KEYS: Final[Mapping[str, str]] = {
    "integer": r"^-?(0|[1-9][0-9]*)$",
    "number": r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$",
    "boolean": r"^(true|false)$",
}
"""A key that is not a string, by the type that it has in JSON Schema."""

FORMATS: Final[Mapping[str, str]] = {
    "date-time": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "time": r"^[0-9]{2}:[0-9]{2}",
    "duration": r"^[-+]?P",
    "uuid": r"^(urn:uuid:|\{)?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?",
    "base64url": r"^[A-Za-z0-9_+/-]*=*$",
}
"""How the texts of a format begin."""

MASK: Final = "**********"
"""What stands in the place of a secret, whatever its length; it is written as pydantic writes it."""
