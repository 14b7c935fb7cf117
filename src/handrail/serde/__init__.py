"""Dataclasses to and from JSON, and their JSON Schema, on pydantic.

One codec a type: strict, closed to unknown fields, and with every fault of an input reported at once in words that a
model can act on. Types are plain dataclasses from the standard library; nothing about them is changed.
"""

from __future__ import annotations

from handrail.redaction import MASK
from handrail.serde.canonical import canonical_json, digest
from handrail.serde.secrets import Masking, result_masking, schema_masking, type_masking
from handrail.serde.typed import Codec, codec, dump, parse, result_codec, schema, stored_codec

__all__ = [
    "MASK",
    "Codec",
    "Masking",
    "canonical_json",
    "codec",
    "digest",
    "dump",
    "parse",
    "result_codec",
    "result_masking",
    "schema",
    "schema_masking",
    "stored_codec",
    "type_masking",
]
