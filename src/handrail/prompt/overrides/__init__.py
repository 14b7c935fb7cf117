"""Overrides: texts of a prompt that are replaced from files, without a change of the code.

`Prompt(template, overrides=OverrideFiles("overrides"), tag="stable")` reads them. Only texts can be overridden; each
override has the hash of the text that it replaces, and is not applied once the code has another one.
"""

from __future__ import annotations

from handrail.errors import OverridesError
from handrail.prompt.overrides.apply import OverridesReport, apply_overrides
from handrail.prompt.overrides.override_file import Override, PromptOverrides, dump_overrides, parse_overrides
from handrail.prompt.overrides.store import OverrideFiles, OverridesStore
from handrail.prompt.overrides.texts import PromptText, TextKey, text_hash, texts_of

__all__ = [
    "Override",
    "OverrideFiles",
    "OverridesError",
    "OverridesReport",
    "OverridesStore",
    "PromptOverrides",
    "PromptText",
    "TextKey",
    "apply_overrides",
    "dump_overrides",
    "parse_overrides",
    "text_hash",
    "texts_of",
]
