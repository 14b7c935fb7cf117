"""The arguments of a function that became a tool: a class with a field for each parameter that the model fills.

Their descriptions are those of the docstring, in the style of Google, NumPy or Sphinx. griffe reads it. Importing
griffe takes as long as importing pydantic, so it is imported when the first docstring with sections is read: see
decision 39. No other module imports it. A docstring is never an error. One that cannot be read, or that describes none
of the parameters, is the description as it stands.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import cleandoc
from textwrap import indent
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from handrail.prompt.signature import AnyCallable
from handrail.prompt.tool_declaration import Arguments
from handrail.serde.annotations import is_mutable, options_around

Style = Literal["google", "numpy", "sphinx"]
"""The styles that are read."""

_TITLE: Final = (
    r"(?:args|arguments|params|parameters|keyword args|keyword arguments|other parameters|returns|yields|raises|"
    r"examples?):[ \t]*\n"
)
_GOOGLE: Final = rf"(?im)^[ \t]*{_TITLE}(?:[ \t]*\n)?[ \t]+\S"
_NUMPY: Final = r"(?im)^[ \t]*(?:parameters|other parameters|returns|yields|raises|examples)[ \t]*\n[ \t]*-{3,}[ \t]*$"
_SPHINX: Final = r"(?im)^[ \t]*:(?:param|parameter|arg|argument|key|keyword|returns?|raises?|type|rtype)\b[^:\n]*:"

_STYLES: Final[Mapping[Style, str]] = {"sphinx": _SPHINX, "numpy": _NUMPY, "google": _GOOGLE}
"""By what a style is recognized."""

_CLOSE_TITLE: Final = rf"(?im)^({_TITLE})(?:[ \t]*\n)?(?=[ \t]+\S)"
_FLAT_SECTION: Final = rf"(?i){_TITLE}(?=\S)"


class Description(NamedTuple):
    """What a docstring says.

    Attributes:
        text: the description of the function, without the sections that describe its parameters and results.
        parameters: the descriptions of parameters, by name.
    """

    text: str
    parameters: Mapping[str, str] = MappingProxyType({})


def description_in(docstring: object, parameters: Collection[str]) -> Description:
    """What a docstring says of a function.

    Args:
        docstring: the docstring, as Python has it; `None`, or anything else that is not text, for none.
        parameters: the names of all parameters of the function.
    """
    text = cleandoc(docstring) if isinstance(docstring, str) else ""
    # A section in the first line, from which all others are indented: `cleandoc` has removed that.
    if flat := re.match(_FLAT_SECTION, text):
        text = flat[0] + indent(text[flat.end() :], "    ")
    style = _style_of(text)
    if style is None:
        return Description(text)
    try:
        # griffe wants a blank line before a title, and none behind it.
        description = _read(re.sub(_CLOSE_TITLE, r"\n\1", text) if style == "google" else text, style)
    except Exception:  # noqa: BLE001  # pragma: no cover - a docstring is prose; no text is known on which griffe fails
        return Description(text)
    own = {name: words for name, words in description.parameters.items() if name in parameters}
    # The section was not one of parameters, or is of another function: nothing of it is lost then.
    if not description.text or (description.parameters and not own):
        return Description(text, own)
    return Description(description.text, own)


def _style_of(text: str) -> Style | None:
    return next((style for style, pattern in _STYLES.items() if re.search(pattern, text)), None)


def _read(text: str, style: Style) -> Description:
    sections = list(_sections(text, style))
    described = {
        item.name.lstrip("*"): " ".join(item.description.split())
        for section in sections
        if section.kind.value in {"parameters", "other parameters"}
        for item in section.value
    }
    return Description("\n\n".join([text for section in sections if (text := _prose_of(section))]), described)


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


class ArgumentField(NamedTuple):
    """A parameter that the model fills.

    Attributes:
        name: its name.
        kind: its type, with what is annotated.
        default: its default; `inspect.Parameter.empty` if it must be given.
    """

    name: str
    kind: Any
    default: object


def arguments_class(function: AnyCallable, given: Sequence[ArgumentField], described: Description) -> type[Any]:
    """The class of the arguments of a function.

    Args:
        function: the function, by which the class is named.
        given: the parameters that the model fills.
        described: what the docstring says of them.
    """
    declared: dict[str, Any] = {}
    for each in given:
        # What is annotated counts: it is nearer to the parameter than the docstring.
        options = options_around(each.kind)[0]
        text = _text_among(options) or described.parameters.get(each.name)
        own = any(getattr(option, "description", None) for option in options)
        metadata = {"description": text} if text and not own else {}
        declared[each.name] = _field(each.default, metadata)
    name: str = getattr(function, "__name__", "function")
    made = arguments_dataclass(f"{name}_arguments", {each.name: each.kind for each in given}, declared)
    # The name by which it is found from its module, if the function there is the tool. Old records of calls have it.
    made.__module__ = getattr(function, "__module__", __name__)
    made.__qualname__ = f"{getattr(function, '__qualname__', name)}.params_type"
    return made


def _text_among(options: Sequence[object]) -> str:
    """The text beside a type in `Annotated`, plain or in a `Doc`; empty if there is none."""
    texts = (option if isinstance(option, str) else getattr(option, "documentation", None) for option in options)
    return next((text.strip() for text in texts if isinstance(text, str)), "")


def _field(default: Any, metadata: Mapping[str, str]) -> Any:  # noqa: ANN401 - a default, and what `field` returns
    if default is inspect.Parameter.empty:
        return field(metadata=metadata)
    if is_mutable(default):  # each call gets a copy
        return field(default_factory=partial(copy.deepcopy, default), metadata=metadata)
    return field(default=default, metadata=metadata)


def arguments_dataclass(name: str, kinds: Mapping[str, Any], declared: Mapping[str, Any]) -> type[Any]:
    """A subclass of `Arguments` with these fields.

    Args:
        name: its name.
        kinds: the types of the fields.
        declared: their defaults, as a dataclass declares them.
    """
    # Without a docstring `dataclass` would inspect the signature to write one, which takes long.
    made = type(name, (Arguments,), {"__annotations__": dict(kinds), "__doc__": name, **declared})
    # `Arguments` has the methods: making them for each class takes half a millisecond.
    made = dataclass(init=False, repr=False, eq=False, kw_only=True)(made)
    made.__doc__ = None  # the model would read it
    return made
