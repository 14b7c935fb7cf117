"""Text with `${name}` in it: checked against a dataclass once, filled in often."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from textwrap import dedent
from typing import cast

from handrail.errors import PromptValidationError
from handrail.prompt.type_parameters import name_of
from handrail.serde import dump

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")


@dataclass(frozen=True, slots=True)
class PlaceholderText:
    """A text whose placeholders are known.

    `${name}` stands for a field of the parameters; `$${` is a plain `${`; any other dollar sign is itself.

    Attributes:
        parts: the text in pieces, plain ones and names of fields in turn, beginning and ending with a plain one.
    """

    parts: tuple[str, ...]

    @staticmethod
    def parse(template: str, params_type: type[object] | None, *, section: str) -> PlaceholderText:
        """Read a template, and hold its placeholders to the fields of the parameters.

        Common indentation and blank lines around the text are taken away.

        Raises:
            PromptValidationError: a placeholder names no field, or is not closed. The message lists the fields.
        """
        text = dedent(template).strip()
        parts: list[str] = [""]
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            parts[-1] += text[end : match.start()]
            end = match.end()
            if match[0] == "$${":
                parts[-1] += "${"
                continue
            if not match[2]:
                raise PromptValidationError(
                    f"{match[0][:40]!r} is not closed; write ${{name}}, or $${{ for a plain ${{.",
                    section_path=(section,),
                )
            _check_name(match[1], params_type, section=section)
            parts += (match[1], "")
        parts[-1] += text[end:]
        return PlaceholderText(tuple(parts))

    def fill(self, params: object) -> str:
        """The text with the values of the parameters in place of the placeholders; values are not read for more."""
        filled = list(self.parts)
        filled[1::2] = [_shown(getattr(params, name)) for name in self.parts[1::2]]
        return "".join(filled)


def _check_name(name: str, params_type: type[object] | None, *, section: str) -> None:
    if params_type is None:
        raise PromptValidationError(
            f"the template has the placeholder ${{{name}}}, but the section has no parameters. Write "
            f"MarkdownSection[Params](...) with a dataclass that has a field {name or '...'}, or $${{ for a plain ${{.",
            section_path=(section,),
        )
    fields = [field.name for field in dataclasses.fields(params_type)] if dataclasses.is_dataclass(params_type) else []
    if name not in fields:
        near = get_close_matches(name, fields, n=1)
        hint = f" Did you mean ${{{near[0]}}}?" if near else ""
        raise PromptValidationError(
            f"the template has the placeholder ${{{name}}}, but {name_of(params_type)} has no such field, only "
            f"{', '.join(fields) or 'none at all'}.{hint}",
            section_path=(section,),
            dataclass=params_type,
        )


def _shown(value: object) -> str:
    """A value as it stands in a text: words and numbers as they are, what has a structure as JSON."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping | Sequence | frozenset | set) or dataclasses.is_dataclass(value):
        return json.dumps(dump(cast("object", value)), ensure_ascii=False)
    return str(value)
