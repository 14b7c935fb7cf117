"""`handrail.agents.exports.classify`: what an object is, before anybody calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail.agents.exports.classify import ExportKind, classify, factory_fault
from tests.agents.folders import module_of
from tests.wording import Wording


def defined(folder: Path, source: str) -> Any:
    """What the source defines as `it`."""
    return vars(module_of(folder, source))["it"]


@pytest.mark.parametrize(
    "source, what",
    [
        pytest.param("it = Tool(ping)", "tool", id="a tool of PydanticAI"),
        pytest.param("it = FunctionToolset()", "toolset", id="a toolset"),
        pytest.param("it = DynamicToolset(make)", "toolset", id="a dynamic toolset"),
        pytest.param("it = Section(title='Desk')", "toolset", id="a section"),
        pytest.param("it = toolset_factory(make)", "toolset", id="a factory with settings"),
        pytest.param("it = AgentReference('desk')", "toolset", id="an agent by name"),
        pytest.param("it = Agent('test')", "neither", id="an agent of PydanticAI"),
        pytest.param("it = FunctionToolset", "neither", id="a class of toolsets"),
        pytest.param("it = Section", "neither", id="a class of sections"),
        pytest.param("it = HandrailTool", "neither", id="a class of tools"),
        pytest.param("it = dict", "neither", id="another class"),
        pytest.param("it = functools", "neither", id="a module"),
        pytest.param("it = 7", "neither", id="a constant"),
        pytest.param("it = None", "neither", id="none"),
        pytest.param("it = ping", "tool", id="a function of text"),
        pytest.param("it = later", "tool", id="an async function"),
        pytest.param("it = make", "factory", id="a factory"),
        pytest.param("def it(ctx) -> FunctionToolset | None: ...", "factory", id="a factory of perhaps nothing"),
        pytest.param("async def it(ctx) -> Section: ...", "factory", id="an async factory of a section"),
        pytest.param("def it(ctx) -> Awaitable[AbstractToolset[Any]]: ...", "factory", id="awaitable"),
        pytest.param("def it(ctx) -> Coroutine[Any, Any, Section]: ...", "factory", id="a coroutine"),
        pytest.param("def it(ctx) -> FactoryProduct: ...", "factory", id="all that may be made"),
        pytest.param("def it(ctx) -> Annotated[FunctionToolset, 1]: ...", "factory", id="annotated"),
        pytest.param("it = functools.partial(make)", "factory", id="a partial of a factory"),
        pytest.param("def it() -> FunctionToolset: ...", "factory", id="a factory without parameters"),
        pytest.param("def it(ctx) -> str: ...", "tool", id="returns text"),
        pytest.param("def it(ctx) -> None: ...", "tool", id="returns nothing"),
        pytest.param("def it(ctx) -> type[FunctionToolset]: ...", "tool", id="returns a class"),
        pytest.param("def it(ctx) -> int | str | None: ...", "tool", id="returns no toolset in any case"),
        pytest.param("def it(a, b): ...", "tool", id="takes two"),
        pytest.param("def it(): ...", "tool", id="takes none"),
        pytest.param("def it(ctx, *, also): ...", "tool", id="takes a keyword"),
        pytest.param("def it(ctx):\n    yield", "tool", id="a generator"),
        pytest.param("def it(ctx): ...", "either", id="says nothing"),
        pytest.param("def it(ctx) -> Any: ...", "either", id="returns anything"),
        pytest.param("def it(ctx) -> object: ...", "either", id="returns an object"),
        pytest.param("def it(ctx) -> T: ...", "either", id="returns a type variable"),
        pytest.param("def it(ctx) -> Awaitable: ...", "either", id="returns something awaitable"),
        pytest.param("def it(ctx) -> FunctionToolset | str: ...", "either", id="a toolset or text"),
        pytest.param("def it(ctx) -> Unknown: ...", "either", id="unknown name"),
        pytest.param("def it(ctx) -> 1 / 0: ...", "either", id="a nonsensical annotation"),
        pytest.param("def it(ctx: 1 / 0): ...", "either", id="a nonsensical annotation of a parameter"),
        pytest.param("it = lambda ctx: None", "either", id="a lambda"),
        pytest.param("it = print", "either", id="built in"),
    ],
)
def test_what_is_certain_is_told_and_the_rest_is_either(tmp_path: Path, source: str, what: ExportKind) -> None:
    """Instances, annotations and parameters are evidence; without any, a function may be a tool or a factory."""
    assert classify(defined(tmp_path, source)).what == what


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("it = FunctionToolset()", id="a toolset"),
        pytest.param("it = 7", id="a constant"),
        pytest.param("it = FunctionToolset", id="class"),
        pytest.param("it = functools", id="a module"),
        pytest.param("it = Agent('test')", id="an agent"),
        pytest.param("it = functools.partial(ping)", id="a partial"),
    ],
)
def test_evidence_says_in_words_what_a_thing_is(tmp_path: Path, source: str, wording: Wording) -> None:
    """Messages say what was found, and what to export instead."""
    found = classify(defined(tmp_path, source))
    assert found.words == wording
    assert found.cure == wording


@pytest.mark.requirement("A-23")
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def it(): ...", id="takes none"),
        pytest.param("def it(a, b): ...", id="takes two"),
        pytest.param("def it(ctx: int): ...", id="takes a number"),
        pytest.param("def it(ctx) -> str: ...", id="returns text"),
        pytest.param("def it(ctx) -> int | str: ...", id="returns one of two"),
    ],
)
def test_what_cannot_be_called_as_a_factory_is_shown_how_to_write_one(
    tmp_path: Path, source: str, wording: Wording
) -> None:
    """The cure shows the one parameter that a factory has."""
    found = factory_fault(defined(tmp_path, source))
    assert found is not None
    assert found == wording


def test_a_factory_without_a_name_is_shown_as_one_with_a_name(tmp_path: Path, wording: Wording) -> None:
    """A lambda is no name to write."""
    assert (factory_fault(defined(tmp_path, "it = lambda: None")) or "") == wording


def test_a_factory_that_says_nothing_of_itself_has_no_fault(tmp_path: Path) -> None:
    """What it returns is known when it has been called."""
    assert factory_fault(defined(tmp_path, "def it(ctx): ...")) is None
