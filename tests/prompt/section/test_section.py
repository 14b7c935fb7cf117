"""What a section is, and what it must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handrail.errors import PromptValidationError, ResourceError
from handrail.prompt import ReadBeforeWritePolicy, Section
from handrail.resources import ResourceRegistry
from handrail.session import Session
from tests.prompt.samples import Guidance, lookup_tool
from tests.wording import Wording

OF_GUIDANCE: Any = Section[Guidance]
OPEN: Any = Section


def refused(kind: Callable[..., object] = OPEN, **changes: object) -> PromptValidationError:
    """The error that a section with these changes is refused with."""
    declared: dict[str, object] = {"title": "Guidance"}
    with pytest.raises(PromptValidationError) as caught:
        kind(**(declared | changes))
    return caught.value


def test_a_section_keeps_what_it_was_declared_with() -> None:
    """Sequences become tuples, and resources one registry."""
    tool, child, policy = lookup_tool(), Section(title="Child"), ReadBeforeWritePolicy()
    section = Section(title=" Guidance ", tools=[tool], children=[child], policies=[policy], resources={int: 5})
    assert (section.title, section.key, section.enabled) == ("Guidance", "guidance", True)
    assert (section.tools, section.children, section.policies) == ((tool,), (child,), (policy,))
    assert section.registry.get(int) == 5
    assert Section(title="A", resources=section.registry).registry is section.registry
    assert Section(title="A").registry == ResourceRegistry()


@pytest.mark.parametrize(
    "title, key",
    [("Available Tools", "available-tools"), ("1. First -- steps!", "1-first-steps"), ("x" * 100, "x" * 64)],
)
def test_a_key_is_made_from_the_title(title: str, key: str) -> None:
    """Who gives no key gets one that can be read."""
    assert Section(title=title).key == key


@pytest.mark.parametrize("key", ["a", "0", "a_b-c", "a" * 64])
def test_keys_of_the_rule_are_taken(key: str) -> None:
    """1 to 64 lower-case letters, digits, `_` and `-`."""
    assert Section(title="Guidance", key=key).key == key


@pytest.mark.parametrize("key", ["A", "-a", "a.b", "a b", "a" * 65, "ä", 5])
def test_other_keys_are_refused(key: object, wording: Wording) -> None:
    """A dot would be taken for a step in a path."""
    assert str(refused(key=key)) == wording


def test_titles_without_letters_need_a_key(wording: Wording) -> None:
    """Where no key can be made of the title, the error asks for one."""
    assert str(refused(title="概要")) == wording
    assert Section(title="概要", key="overview").key == "overview"


@pytest.mark.parametrize("title", ["", " ", "a\nb", None, 5])
def test_a_title_is_one_line(title: object, wording: Wording) -> None:
    """Anything else is no heading."""
    assert str(refused(title=title)) == wording


def test_what_a_section_holds_is_looked_at(wording: Wording) -> None:
    """Tools, children and policies are what they should be; the error names the section."""
    assert str(refused(tools=lookup_tool())) == wording
    assert str(refused(tools=["lookup"])) == wording
    assert str(refused(children=["child"])) == wording
    assert str(refused(policies=ReadBeforeWritePolicy())) == wording
    assert str(refused(policies=["read first"])) == wording
    assert refused(tools="lookup").section_path == ("guidance",)


def test_parameters_are_a_dataclass(wording: Wording) -> None:
    """Anything else in the brackets is refused."""
    assert str(refused(OPEN[int])) == wording
    assert str(refused(OPEN["Guidance"])) == wording


async def later(params: Guidance) -> bool:
    """A condition that must be awaited."""
    return True


def of_session(session: Session) -> bool:
    """A condition on something else."""
    return True


def test_other_conditions_are_refused(wording: Wording) -> None:
    """What is neither, takes something else, or must be awaited is refused, with what would be right."""
    told = [str(refused(OF_GUIDANCE, enabled=given)) for given in ("yes", lambda: True, of_session, later)]
    assert told == wording
    assert refused(OF_GUIDANCE, enabled=1).dataclass is Guidance


def test_resources_are_held_to_their_types() -> None:
    """What the registry finds wrong is not hidden."""
    with pytest.raises(ResourceError):
        Section(title="A", resources={int: "five"})
