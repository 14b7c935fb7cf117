"""Names in a registry, and functions that become tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import RunContext, Tool
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents import AgentFile, Entry, Origin, Project, Registry, load_agent
from handrail.agents.modules import exports
from handrail.agents.registry import (
    BUILT_IN,
    AgentReference,
    FactoryFunction,
    Kind,
    PackageExport,
    ToolsetFactory,
    resolve,
)
from handrail.errors import DiscoveryError, HandrailError, RegistryError, ResolutionError
from tests.agents.kit import module_of, refusal, write
from tests.wording import Wording


def ping(text: str) -> str:
    """Answer."""
    return text


def make(ctx: RunContext[Any]) -> FunctionToolset[Any]:
    """Make a toolset."""
    return FunctionToolset()


def entry(name: str, origin: Origin = BUILT_IN, kind: Kind = "toolset") -> Entry:
    """An entry with nothing much behind it."""
    return Entry(name, kind, AgentReference(name), origin)


@pytest.mark.requirement("A-12")
def test_a_name_that_is_taken_is_told_with_both_origins(wording: Wording) -> None:
    """All of them in one message, those of what is built in as well as those of files and agents."""
    with pytest.raises(RegistryError) as caught:
        Registry.of(
            [
                *(entry("files"), entry("files", Origin("module", "tools.py"))),
                *(entry("ping", Origin("module", f"tools/{name}.py"), "tool") for name in ("b", "a")),
                *(entry("desk", Origin("agent", "desk.agent")), entry("alone")),
                entry("desk", Origin("module", "tools.py")),
            ]
        )
    assert caught.value.names == ("desk", "files", "ping")
    assert str(caught.value) == wording


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "é", "a\n", "a" * 65])
def test_a_name_that_nobody_can_write_is_refused(name: str, wording: Wording) -> None:
    """Names of entries are those that an agent file can say and a model can call."""
    with pytest.raises(RegistryError) as caught:
        Registry.of([entry(name)])
    assert str(caught.value) == wording
    assert caught.value.names == (name,)


@pytest.mark.requirement("A-18")
def test_a_program_registers_what_it_has_at_hand(wording: Wording) -> None:
    """Functions become tools; tools and toolsets stay the objects that they are."""
    tool, desk = Tool(ping, name="again"), FunctionToolset[Any](id="desk")
    registry = Registry.of_python(tools=[ping, tool], toolsets={"front": desk, "made": make})
    assert list(registry.tools) == ["ping", "again"]
    assert registry.tools["again"].value is tool
    assert registry.toolsets["front"].value is desk
    assert registry.toolsets["made"].value == ToolsetFactory(make)
    assert registry.tools["ping"].label == wording
    assert Registry.of_python().entries == ()


def test_all_that_a_program_cannot_register_is_told_at_once(wording: Wording) -> None:
    """Tools and toolsets in one error."""
    with pytest.raises(DiscoveryError) as caught:
        Registry.of_python(tools={"pong": ping}, toolsets=7)
    assert caught.value.offenders == ("pong", "toolsets")
    assert str(caught.value) == wording


def search(text: str) -> str:
    """Find."""
    return text


def lookup(text: str) -> str:
    """Look up."""
    return text


REGISTRY = Registry.of_python(
    tools=[search, lookup], toolsets={"search": FunctionToolset(), "files": FunctionToolset()}
)


def agent(*, tools: tuple[str, ...] = (), toolsets: tuple[str, ...] = (), path: Path | None = None) -> AgentFile:
    """An agent that names these."""
    return AgentFile(name="desk", instructions="Work.", tools=tools, toolsets=toolsets, path=path)


def refused(file: AgentFile, registry: Registry = REGISTRY) -> ResolutionError:
    """Why an agent cannot be resolved."""
    with pytest.raises(ResolutionError) as caught:
        resolve(file, registry)
    assert caught.value.agent == "desk"
    return caught.value


@pytest.mark.requirement("A-16")
def test_a_name_of_both_kinds_is_looked_up_by_its_field() -> None:
    """One agent uses the tool, one the toolset, and one both; each gets the right one, in its order."""
    tool, toolset = REGISTRY.tools["search"], REGISTRY.toolsets["search"]
    assert resolve(agent(tools=("search",)), REGISTRY).tools == (tool,)
    assert resolve(agent(toolsets=("search",)), REGISTRY).toolsets == (toolset,)
    both = resolve(agent(tools=("lookup", "search"), toolsets=("files", "search")), REGISTRY)
    assert [entry.name for entry in both.tools] == ["lookup", "search"]
    assert both.tools[1] is tool
    assert [entry.name for entry in both.toolsets] == ["files", "search"]
    assert both.toolsets[1] is toolset
    assert resolve(agent(), REGISTRY).tools == ()


@pytest.mark.requirement("A-17")
def test_a_toolset_under_tools_is_told_to_move(wording: Wording) -> None:
    """The error names agent, file, field and name, the nearest, and all that there are."""
    error = refused(agent(tools=("files",), path=Path("agents/desk.agent")))
    assert error.names == ("files",)
    assert str(error) == wording


@pytest.mark.requirement("A-17")
def test_a_tool_under_toolsets_is_told_to_move(wording: Wording) -> None:
    """And the other way round."""
    error = refused(agent(toolsets=("lookup",)))
    assert str(error) == wording


@pytest.mark.requirement("A-17")
def test_all_names_are_told_at_once_with_the_nearest(wording: Wording) -> None:
    """Of both fields."""
    error = refused(agent(tools=("serch", "lookup", "zzz"), toolsets=("file",)))
    assert error.names == ("serch", "zzz", "file")
    assert str(error) == wording


@pytest.mark.requirement("A-23")
def test_a_factory_without_parameters_is_refused_before_any_run(wording: Wording) -> None:
    """However it came into the registry; the message shows how a factory is written."""

    def make() -> FunctionToolset[Any]:
        return FunctionToolset()

    factory = ToolsetFactory(cast("FactoryFunction", make))  # wrong on purpose
    registry = Registry.of([Entry("made", "toolset", factory, Origin("module", "tools.py"))])
    told = str(refused(agent(toolsets=("made",)), registry))
    assert told == wording


def test_a_package_that_cannot_be_loaded_is_told_along_with_the_others(wording: Wording) -> None:
    """Its own error is the cause."""

    def load() -> Entry:
        raise DiscoveryError("it is broken", module="shop")

    registry = Registry.of([], offers=[PackageExport("shop", "toolset", Origin("package", "shop"), load)])
    error = refused(agent(tools=("x",), toolsets=("shop",)), registry)
    assert error.names == ("x", "shop")
    assert str(error) == wording
    assert isinstance(error.__cause__, DiscoveryError)


TYPES = """
import enum
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from pydantic import BaseModel, Field, Json

@dataclass
class Approve:
    why: str

@dataclass
class Reject:
    why: str

@dataclass
class Circle:
    radius: float

@dataclass
class Square:
    side: float

class One(BaseModel):
    why: str = ""

class Two(BaseModel):
    why: str = ""
"""


REFUSED = [
    *("complex", "list[complex] | None", "Approve | Reject", "One | Two", "dict[str, list[Approve] | list[Reject]]"),
    *("Json[int]", "Annotated[int, {'minimum': 5}]", "list[Annotated[str, Field(gt=2)]]"),
]


TAKEN = [
    *("One", "Circle | Square", "Approve | str", "Approve | None", "Path | str", "datetime | str"),
    *("dict[str, Any]", "Annotated[int, Field(gt=1, lt=5)]", "tuple[int, ...]"),
]


def module(kind: str, export: str = "TOOLS = [f]") -> str:
    """The source of a module with a function of a parameter of this type."""
    return f'{TYPES}\ndef f(x: {kind}) -> str:\n    "Does it."\n    return ""\n\n{export}\n'


def signature_faults(folder: Path, kind: str, export: str) -> DiscoveryError:
    """Why a module with a parameter of this type cannot be registered."""
    with pytest.raises(DiscoveryError) as caught:
        exports(module_of(folder, module(kind, export)), where="tools.py")
    return caught.value


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("export", [pytest.param("TOOLS = [f]", id="tools"), pytest.param("__all__ = ['f']", id="all")])
def test_a_function_with_such_a_parameter_is_refused(tmp_path: Path, kind: str, export: str, wording: Wording) -> None:
    """With its parameter, and the cure."""
    error = signature_faults(tmp_path, kind, export)
    assert error.offenders == ("f",)
    assert str(error) == wording


def test_all_faults_of_a_function_are_told_at_once(tmp_path: Path, wording: Wording) -> None:
    """With what to export instead, if PydanticAI can read the function."""
    source = (
        "def f(a, b: 'Unknown', c: complex) -> Agent: ...\ndef g(a, *rest: int) -> str: ...\n"
        "class Order(BaseModel):\n    number: str = Field(alias='orderNumber')\ndef h(order: Order) -> str: ...\n"
    )
    with refusal(DiscoveryError, wording):
        exports(module_of(tmp_path, f"{TYPES}{source}TOOLS = [f, g, h]"), where="tools.py")
    read = exports(module_of(tmp_path / "other", f"{TYPES}{source}TOOLS = [Tool(g), Tool(h)]"), where="tools.py")
    assert [type(entry.value) for entry in read] == [PydanticTool, PydanticTool]


@pytest.mark.parametrize("kind", TAKEN)
def test_a_parameter_that_a_model_can_say_is_taken(tmp_path: Path, kind: str) -> None:
    """Models of pydantic bring validators of their own, and are left to them."""
    (entry,) = exports(module_of(tmp_path, module(kind)), where="tools.py")
    assert entry.name == "f"


def test_loading_and_checking_refuse_it(tmp_path: Path, wording: Wording) -> None:
    """`Project.load`, `load_agent` and the survey of `handrail check`."""
    imports = "from __future__ import annotations\n"
    write(
        tmp_path, {"desk.agent": "---\nname: desk\ntools: [f]\n---\nJudge.\n", "tools.py": imports + module("complex")}
    )
    for load in (lambda: Project.load(tmp_path), lambda: load_agent(tmp_path / "desk.agent")):
        with refusal(HandrailError, wording):
            load()
    _, problems = Project.survey(tmp_path)
    assert list(problems) == wording


DECORATED = '''
from typing import Annotated
from pydantic import Field
from handrail import tool

@tool(effect="read")
def lookUp(order: Annotated[str, Field(min_length=1)]) -> str:
    """Look up.

    Args:
        order: number of the order.
    """
    return order

class Desk:
    def greet(self, name: str) -> str:
        return name

    def leave(self, name: str) -> str:
        return name

greet = tool(Desk().greet)
'''


@pytest.mark.parametrize("method", ["Desk.greet", "Desk.leave"])
def test_a_method_without_its_object_cannot_be_exported(tmp_path: Path, method: str, wording: Wording) -> None:
    """It has no object to be called on, decorated or not."""
    with refusal(DiscoveryError, wording):
        exports(module_of(tmp_path, f"{DECORATED}TOOLS = [{method}]"), where="tools.py")
