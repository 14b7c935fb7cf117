"""Tools and toolsets that modules export."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import Tool
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents import Entry
from handrail.agents.modules import exports
from handrail.errors import DiscoveryError
from handrail.prompt.function_tools import FunctionTool
from tests.agents.kit import module_of
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
@pytest.mark.parametrize("tools", [
    pytest.param("[ping, later, Tool(ping, name='again')]", id="list"),
    pytest.param("(ping, later, Tool(ping, name='again'))", id="tuple"),
    pytest.param("{'ping': ping, 'later': later, 'again': Tool(ping, name='again')}", id="dict"),
])  # fmt: skip
def test_tools_are_registered_under_their_names_with_where_they_come_from(tmp_path: Path, tools: str) -> None:
    """Functions, plain and async, become tools of Handrail; a tool of PydanticAI stays one."""
    entries = found(tmp_path, f"again = {tools}\nTOOLS = again")
    assert list(entries) == ["tool ping", "tool later", "tool again"]
    assert [type(entry.value) for entry in entries.values()] == [FunctionTool, FunctionTool, Tool]
    assert {entry.origin for entry in entries.values()} == {"tools.py"}


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


@pytest.mark.requirement("A-08")
@pytest.mark.parametrize("names", ["['ping', 'later']", "('ping', 'later')"])
def test_all_names_the_tools_where_nothing_else_does(tmp_path: Path, names: str) -> None:
    """Exactly those, be it a list or a tuple."""
    assert list(found(tmp_path, f"__all__ = {names}")) == ["tool ping", "tool later"]


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


REFUSED = {
    "A-07 none": "TOOLS = None", "A-07 set": "TOOLS = {ping}", "A-07 no toolsets": "TOOLSETS = None",
    "A-07 a name": "__all__ = 'ping'",
    "A-10 id": "TOOLS = [FunctionToolset(id='desk')]", "A-10 section": "TOOLS = {'desk': Section(title='Desk')}",
    "A-10 factory": "TOOLS = [make]", "A-10 tool": "TOOLSETS = [Tool(ping)]",
    "A-11 list": "TOOLSETS = [FunctionToolset]", "A-11 dict": "TOOLSETS = {'desk': FunctionToolset}",
    "A-12 the same tool": "TOOLS = [ping, ping]", "A-12 one name": "TOOLS = [ping, Tool(later, name='ping')]",
    "A-13 key": "TOOLS = {'pong': ping}", "A-13 alias": "pong = ping\n__all__ = ['pong']",
    "A-13 lambda": "TOOLS = [lambda text: text]", "A-13 no name": "TOOLS = [functools.partial(ping)]",
    "A-13 agent": "TOOLS = [Agent('test')]", "A-13 class": "TOOLS = [HandrailTool]", "A-13 none": "TOOLS = [None]",
    "A-13 name": "def f(x: Unknown): ...\nTOOLS = [f]", "A-13 no schema": "def f(x: complex): ...\nTOOLS = [f]",
    "A-13 space": "TOOLS = [Tool(ping, name='a b')]", "A-13 long": "TOOLS = [Tool(ping, name='a' * 65)]",
    "A-13 long function": f"def {'f' * 65}(): ...\nTOOLS = [{'f' * 65}]", "A-13 number": "TOOLS = {7: ping}",
    "no id": "TOOLSETS = [FunctionToolset()]", "reserved id": "TOOLSETS = [FunctionToolset(id='<agent>')]",
    "lambda": "TOOLSETS = [lambda ctx: None]",
    "partial": "TOOLSETS = [functools.partial(make)]", "class": "TOOLSETS = [toolset_factory(dict)]",
    "endless key": f"TOOLSETS = {{'{'a' * 9000}': 7}}", "takes none": "def f(): ...\nTOOLSETS = [f]",
}  # fmt: skip
"""What lists exports and is none, stands in the wrong list, twice or under another name, or cannot be called."""


@pytest.mark.requirement("A-07")
@pytest.mark.requirement("A-10")
@pytest.mark.requirement("A-11")
@pytest.mark.requirement("A-12")
@pytest.mark.requirement("A-13")
@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_exported_is_refused_with_its_cure(tmp_path: Path, source: str, wording: Wording) -> None:
    """The message names the entry, what it is, and what would be right."""
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
