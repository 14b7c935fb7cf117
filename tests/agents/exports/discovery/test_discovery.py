"""`handrail.agents.modules` and `declared`: what a module exports, and every reason why it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import Tool
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents.modules import exports
from handrail.agents.registry import Entry, Origin
from handrail.errors import DiscoveryError
from handrail.prompt.function_tools import FunctionTool
from tests.agents.folders import module_of
from tests.wording import Wording


def found(folder: Path, source: str) -> dict[str, Entry]:
    """What a module exports, by kind and name."""
    return {f"{entry.kind} {entry.name}": entry for entry in exports(module_of(folder, source), where="tools.py")}


def refused(folder: Path, source: str) -> DiscoveryError:
    """Why a module cannot be registered."""
    with pytest.raises(DiscoveryError) as caught:
        found(folder, source)
    assert caught.value.module == "tools.py"
    return caught.value


@pytest.mark.requirement("A-05")
def test_a_module_that_lists_nothing_exports_nothing(tmp_path: Path) -> None:
    """Functions and toolsets count only where `TOOLS`, `TOOLSETS` or `__all__` names them."""
    assert not found(tmp_path, "desk = FunctionToolset(id='desk')")


@pytest.mark.requirement("A-14")
def test_functions_that_an_agent_has_are_not_picked_up(tmp_path: Path) -> None:
    """What `@agent.tool` registers belongs to that agent."""
    source = """
    agent = Agent("test")

    @agent.tool_plain
    def theirs(text: str) -> str:
        return text

    TOOLS = [ping]
    """
    assert list(found(tmp_path, source)) == ["tool ping"]


@pytest.mark.requirement("A-06")
@pytest.mark.parametrize(
    "tools",
    [
        pytest.param("[ping, later, Tool(ping, name='again')]", id="list"),
        pytest.param("(ping, later, Tool(ping, name='again'))", id="tuple"),
        pytest.param("{'ping': ping, 'later': later, 'again': Tool(ping, name='again')}", id="dict"),
    ],
)
def test_tools_are_registered_under_their_names_with_where_they_come_from(tmp_path: Path, tools: str) -> None:
    """Functions, plain and async, become tools of Handrail; a tool of PydanticAI stays one."""
    entries = found(tmp_path, f"again = {tools}\nTOOLS = again")
    assert list(entries) == ["tool ping", "tool later", "tool again"]
    assert [type(entry.value) for entry in entries.values()] == [FunctionTool, FunctionTool, Tool]
    assert {entry.origin for entry in entries.values()} == {Origin("module", "tools.py")}


@pytest.mark.requirement("A-18")
def test_what_is_registered_is_the_very_object_and_is_not_changed(tmp_path: Path) -> None:
    """Nothing is written to a program's objects."""
    module = module_of(
        tmp_path,
        """
        tool = Tool(ping, requires_approval=True, metadata={"a": 1}, max_retries=7)
        desk = FunctionToolset([tool], id="desk")
        TOOLS = [tool]
        TOOLSETS = [desk]
        """,
    )
    objects: list[object] = [module.tool, module.desk]
    before = [dict(vars(found)) for found in objects]
    tool, desk = exports(module, where="tools.py")
    assert [tool.value, desk.value] == objects
    assert tool.value is objects[0]
    assert [dict(vars(found)) for found in objects] == before


@pytest.mark.requirement("A-07")
def test_tools_count_before_all_however_wrong_that_is(tmp_path: Path) -> None:
    """Where `TOOLS` is defined, `__all__` says nothing of tools."""
    wrong = "__all__ = ['nowhere', 'FunctionToolset', 7]"
    assert list(found(tmp_path, f"TOOLS = [ping]\n{wrong}")) == ["tool ping"]
    assert not found(tmp_path / "none", f"TOOLS = []\n{wrong}")


@pytest.mark.requirement("A-07")
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("TOOLS = None", id="none"),
        pytest.param("TOOLS = {ping}", id="set"),
        pytest.param("TOOLSETS = None", id="no toolsets"),
        pytest.param("__all__ = 'ping'", id="a name"),
    ],
)
def test_what_lists_exports_must_be_a_list(tmp_path: Path, source: str, wording: Wording) -> None:
    """Text, a set or `None` is no list of tools."""
    assert str(refused(tmp_path, source)) == wording


@pytest.mark.requirement("A-08")
@pytest.mark.parametrize("names", ["['ping', 'later']", "('ping', 'later')"])
def test_all_names_the_tools_where_nothing_else_does(tmp_path: Path, names: str) -> None:
    """Exactly those, be it a list or a tuple."""
    assert list(found(tmp_path, f"__all__ = {names}")) == ["tool ping", "tool later"]


def test_all_may_name_the_lists_themselves(tmp_path: Path) -> None:
    """`TOOLSETS` in `__all__` is the list of toolsets, and no tool."""
    entries = found(tmp_path, "TOOLSETS = [make]\n__all__ = ['TOOLSETS', 'ping']")
    assert list(entries) == ["tool ping", "toolset make"]


@pytest.mark.requirement("A-09")
def test_one_error_lists_all_that_is_wrong_in_all(tmp_path: Path, wording: Wording) -> None:
    """A missing name, a constant, a toolset, a class, a module, an agent, a doubled name, and what is no name."""
    source = """
    LIMIT = 7
    desk = FunctionToolset(id="desk")
    agent = Agent("test")
    __all__ = ["ping", "nowhere", "LIMIT", "desk", "FunctionToolset", "functools", "agent", "later", "later", 7, "make"]
    """
    error = refused(tmp_path, source)
    assert set(error.offenders) == {
        *("nowhere", "LIMIT", "desk", "FunctionToolset", "functools", "agent", "later", "7", "make")
    }
    assert str(error) == wording


@pytest.mark.requirement("A-10")
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("TOOLS = [FunctionToolset(id='desk')]", id="id"),
        pytest.param("TOOLS = {'desk': Section(title='Desk')}", id="section"),
        pytest.param("TOOLS = [make]", id="factory"),
        pytest.param("TOOLSETS = [Tool(ping)]", id="tool"),
    ],
)
def test_what_stands_in_the_wrong_list_is_told_where_it_belongs(tmp_path: Path, source: str, wording: Wording) -> None:
    """The message names the entry, what it is, and the list that it belongs to."""
    assert str(refused(tmp_path, source)) == wording


@pytest.mark.requirement("A-11")
@pytest.mark.parametrize("toolsets", ["[FunctionToolset]", "{'desk': FunctionToolset}"])
def test_a_class_of_toolsets_is_no_toolset(tmp_path: Path, toolsets: str, wording: Wording) -> None:
    """An instance is, or a factory."""
    told = str(refused(tmp_path, f"TOOLSETS = {toolsets}"))
    assert told == wording


@pytest.mark.requirement("A-12")
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("TOOLS = [ping, ping]", id="the same tool"),
        pytest.param("TOOLS = [ping, Tool(later, name='ping')]", id="one name"),
    ],
)
def test_a_name_stands_in_a_list_once(tmp_path: Path, source: str, wording: Wording) -> None:
    """A second tool of a name is an offence, be it the same object."""
    assert str(refused(tmp_path, source)) == wording


@pytest.mark.requirement("A-13")
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("TOOLS = {'pong': ping}", id="key"),
        pytest.param("pong = ping\n__all__ = ['pong']", id="alias"),
        pytest.param("TOOLS = [lambda text: text]", id="lambda"),
        pytest.param("TOOLS = [functools.partial(ping)]", id="no name"),
        pytest.param("TOOLS = [Agent('test')]", id="agent"),
        pytest.param("TOOLS = [HandrailTool]", id="class"),
        pytest.param("TOOLS = [None]", id="none"),
        pytest.param("def f(x: Unknown): ...\nTOOLS = [f]", id="name"),
        pytest.param("def f(x: complex): ...\nTOOLS = [f]", id="no schema"),
        pytest.param("TOOLS = [Tool(ping, name='a b')]", id="space"),
        pytest.param("TOOLS = [Tool(ping, name='a' * 65)]", id="long"),
    ],
)
def test_what_no_model_could_call_is_refused_with_its_cure(tmp_path: Path, source: str, wording: Wording) -> None:
    """An alias would mislead, and what has no name or no schema cannot be shown to a model."""
    assert str(refused(tmp_path, source)) == wording


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("TOOLSETS = [7]", id="constant"),
        pytest.param("TOOLSETS = [FunctionToolset()]", id="no id"),
        pytest.param("TOOLSETS = [FunctionToolset(id='<agent>')]", id="reserved id"),
        pytest.param("TOOLSETS = [lambda ctx: None]", id="lambda"),
        pytest.param("TOOLSETS = [functools.partial(make)]", id="partial"),
        pytest.param("TOOLSETS = [toolset_factory(dict)]", id="class"),
        pytest.param(
            "class Broken(FunctionToolset):\n    def __init__(self): ...\nTOOLSETS = [Broken()]\nTOOLS = TOOLSETS",
            id="broken",
        ),
        pytest.param(
            "class Proxy:\n    def __getattr__(self, name):\n        raise RuntimeError('too early')\n"
            "    def __call__(self, ctx): ...\nTOOLSETS = [Proxy()]",
            id="proxy",
        ),
        pytest.param(f"TOOLSETS = {{'{'a' * 9000}': 7}}", id="endless key"),
        pytest.param("def f(): ...\nTOOLSETS = [f]", id="takes none"),
    ],
)
def test_what_makes_no_toolset_is_refused_with_its_cure(tmp_path: Path, source: str, wording: Wording) -> None:
    """What cannot be called with the run context, or has no name in a list, is no toolset."""
    assert str(refused(tmp_path, source)) == wording


def test_toolsets_are_named_by_key_or_by_what_they_call_themselves(tmp_path: Path) -> None:
    """A key is free: models never see the name of a toolset."""
    listed = """
    TOOLSETS = (FunctionToolset(id="desk"), Section(title="Front desk"), toolset_factory(make, per_run_step=True),
                AgentReference("other"), DynamicToolset(make, id="dynamic"))
    """
    entries = found(tmp_path, listed)
    assert list(entries) == [f"toolset {name}" for name in ("desk", "front-desk", "make", "other", "dynamic")]
    keyed = found(
        tmp_path / "keyed", "TOOLSETS = {'a': FunctionToolset(), 'b': lambda ctx: None, 'c': functools.partial(make)}"
    )
    assert list(keyed) == ["toolset a", "toolset b", "toolset c"]
    assert isinstance(keyed["toolset a"].value, FunctionToolset)
