"""What is written around a type, and what text means."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any, Literal, NewType, get_type_hints

import pytest
from typing_extensions import TypeAliasType

from handrail.serde.annotations import known_type, strip_annotated

OUTER = {"Thing": int, "str": bytes, "Many": list[int], "nothing": None}
INNER = {"Thing": bool}


@pytest.mark.parametrize(
    "annotation",
    [
        float,
        "int",
        "str",
        "Thing",
        list[int] | None,
        dict[str, list[int]],
        Annotated[int, "text that is not evaluated"],
        list[Annotated[int, 5]],
    ],
)
def test_a_type_that_is_known_is_the_one_that_the_annotation_means(annotation: Any) -> None:
    """Names are looked up as text is evaluated: those inside hide those outside, and these hide builtins."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    assert known_type(annotation, INNER, OUTER) == get_type_hints(holder, OUTER, INNER, include_extras=True)["it"]


@pytest.mark.parametrize(
    "annotation",
    [None, "None", "int | str", "Many", "nothing", "unknown", list["SimpleNamespace"], "Any", Literal["Thing"], ...],
    ids=repr,
)
def test_other_annotations_have_to_be_evaluated(annotation: Any) -> None:
    """What holds text, or is no class by name, is left to the evaluation, which may fail."""
    assert known_type(annotation, INNER, OUTER) is None


# Untyped, because type checkers want to see aliases as statements.
_alias: Any = TypeAliasType
_new: Any = NewType


def test_an_alias_that_is_written_as_text_is_what_the_text_means() -> None:
    """Inside of what stands around it: other aliases, annotations and new types."""
    quoted = _alias("Quoted", "list[int]")
    assert strip_annotated(_new("Named", Annotated[_alias("Around", quoted), "a note"])) == list[int]
    assert strip_annotated(_alias("Plain", int)) is int
    assert strip_annotated(_alias("Unknown", "Nowhere")) == "Nowhere"
