"""Docstrings: the description of a function and of its parameters, in the styles of Google, NumPy and Sphinx.

griffe reads them. Importing it takes as long as importing pydantic, so it is imported when the first docstring with
sections is read: see decision 39. No other module imports it.

A docstring is never an error. One that cannot be read, or that describes none of the parameters, is the description as
it stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Any, Final, Literal

Style = Literal["google", "numpy", "sphinx"]
"""The styles that are read."""

_GOOGLE: Final = (
    r"^[ \t]*(?:args|arguments|params|parameters|keyword args|keyword arguments|other parameters|returns|yields|raises|"
    r"examples?):[ \t]*\n[ \t]+\S"
)
_NUMPY: Final = r"^[ \t]*(?:parameters|other parameters|returns|yields|raises|examples)[ \t]*\n[ \t]*-{3,}[ \t]*$"
_SPHINX: Final = r"^[ \t]*:(?:param|parameter|arg|argument|key|keyword|returns?|raises?|type|rtype)\b[^:\n]*:"

_STYLES: Final[tuple[tuple[Style, re.Pattern[str]], ...]] = (
    ("sphinx", re.compile(_SPHINX, re.IGNORECASE | re.MULTILINE)),
    ("numpy", re.compile(_NUMPY, re.IGNORECASE | re.MULTILINE)),
    ("google", re.compile(_GOOGLE, re.IGNORECASE | re.MULTILINE)),
)
"""By what a style is recognized."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a docstring says.

    Attributes:
        text: the description of the function, without the sections that describe its parameters and results.
        parameters: the descriptions of parameters, by name.
    """

    text: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def description_in(docstring: object, parameters: Collection[str]) -> Description:
    """What a docstring says of a function.

    Args:
        docstring: the docstring, as Python has it; `None`, or anything else that is not text, for none.
        parameters: the names of all parameters of the function.
    """
    text = cleandoc(docstring) if isinstance(docstring, str) else ""
    style = _style_of(text)
    if style is None:
        return Description(text)
    try:
        found = _read(text, style)
    except Exception:  # noqa: BLE001  # pragma: no cover - a docstring is prose; no text is known on which griffe fails
        return Description(text)
    known = {name: words for name, words in found.parameters.items() if name in parameters}
    # The section was not one of parameters, or is of another function: nothing of it is lost then.
    if not found.text or (found.parameters and not known):
        return Description(text, known)
    return Description(found.text, known)


def _style_of(text: str) -> Style | None:
    return next((style for style, pattern in _STYLES if pattern.search(text)), None)


def _read(text: str, style: Style) -> Description:
    sections = list(_sections(text, style))
    described = {
        item.name.lstrip("*"): " ".join(item.description.split())
        for section in sections
        if section.kind.value in {"parameters", "other parameters"}
        for item in section.value
    }
    prose = [text for section in sections if (text := _prose_of(section))]
    return Description("\n\n".join(prose), described)


def _prose_of(section: Any) -> str:  # noqa: ANN401 - a section of griffe
    if section.kind.value == "text":
        return str(section.value).strip()
    # A section such as `Note:`, which belongs to the description.
    if section.kind.value == "admonition":
        return f"{section.title}: {section.value.description}".strip()
    return ""


def _sections(text: str, style: Style) -> Iterator[Any]:
    """The sections of a docstring, as griffe reads them."""
    # The one import that is not at the head of its module.
    from griffe import Docstring, GoogleOptions, NumpyOptions, SphinxOptions  # noqa: PLC0415

    options: Mapping[Style, Any] = {
        # Without warnings: griffe logs each docstring that it cannot read completely.
        "google": GoogleOptions(warnings=False),
        "numpy": NumpyOptions(warnings=False),
        "sphinx": SphinxOptions(warnings=False),
    }
    return iter(Docstring(text, lineno=1, parser=style, parser_options=options[style]).parse())
