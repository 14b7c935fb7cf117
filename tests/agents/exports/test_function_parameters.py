"""Functions of agent files are converted as by `tool`; those of PydanticAI's tools are left to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import Tool as PydanticTool

from handrail.agents import Project, load_agent
from handrail.agents.modules import exports
from handrail.errors import DiscoveryError, HandrailError
from handrail.prompt import Tool
from tests.agents.folders import module_of, write
from tests.wording import Wording

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


def refused(folder: Path, kind: str, export: str) -> DiscoveryError:
    """Why a module with a parameter of this type cannot be registered."""
    with pytest.raises(DiscoveryError) as caught:
        exports(module_of(folder, module(kind, export)), where="tools.py")
    return caught.value


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("export", [pytest.param("TOOLS = [f]", id="tools"), pytest.param("__all__ = ['f']", id="all")])
def test_a_function_with_such_a_parameter_is_refused(tmp_path: Path, kind: str, export: str, wording: Wording) -> None:
    """With its parameter, and the cure."""
    error = refused(tmp_path, kind, export)
    assert error.offenders == ("f",)
    assert str(error) == wording


def test_all_faults_of_a_function_are_told_at_once(tmp_path: Path, wording: Wording) -> None:
    """With what to export instead, if PydanticAI can read the function."""
    source = (
        "def f(a, b: 'Unknown', c: complex) -> Agent: ...\ndef g(a, *rest: int) -> str: ...\n"
        "class Order(BaseModel):\n    number: str = Field(alias='orderNumber')\ndef h(order: Order) -> str: ...\n"
    )
    with pytest.raises(DiscoveryError) as raised:
        exports(module_of(tmp_path, f"{TYPES}{source}TOOLS = [f, g, h]"), where="tools.py")
    assert str(raised.value) == wording
    read = exports(module_of(tmp_path / "other", f"{TYPES}{source}TOOLS = [Tool(g), Tool(h)]"), where="tools.py")
    assert [type(entry.value) for entry in read] == [PydanticTool, PydanticTool]


@pytest.mark.parametrize("kind", TAKEN)
def test_a_parameter_that_a_model_can_say_is_taken(tmp_path: Path, kind: str) -> None:
    """Models of pydantic bring validators of their own, and are left to them."""
    (entry,) = exports(module_of(tmp_path, module(kind)), where="tools.py")
    assert entry.name == "f"


def test_a_function_whose_types_are_unknown_here_is_left_to_pydantic_ai(tmp_path: Path) -> None:
    """As one of any arguments, or one that says its schema itself."""
    source = (
        "def f(*args: complex, **more: int): ...\nTOOLS = [Tool.from_schema(f, 'f', 'Does it.', {'type': 'object'})]"
    )
    (entry,) = exports(module_of(tmp_path, source), where="tools.py")
    assert entry.name == "f"


def test_loading_and_checking_refuse_it(tmp_path: Path, wording: Wording) -> None:
    """`Project.load`, `load_agent` and the survey of `handrail check`."""
    imports = "from __future__ import annotations\n"
    write(
        tmp_path, {"desk.agent": "---\nname: desk\ntools: [f]\n---\nJudge.\n", "tools.py": imports + module("complex")}
    )
    for load in (lambda: Project.load(tmp_path), lambda: load_agent(tmp_path / "desk.agent")):
        with pytest.raises(HandrailError) as raised:
            load()
        assert str(raised.value) == wording
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


@pytest.mark.parametrize("export", ["TOOLS = [lookUp, greet]", "__all__ = ['lookUp', 'greet']"])
def test_a_decorated_function_is_a_tool_of_handrail(tmp_path: Path, export: str) -> None:
    """It keeps its declaration; a method is bound to its object."""
    one, other = exports(module_of(tmp_path, DECORATED + export), where="tools.py")
    assert isinstance(one.value, Tool)
    assert (one.name, one.value.effect, other.name) == ("lookUp", "read", "greet")


@pytest.mark.parametrize("method", ["Desk.greet", "Desk.leave"])
def test_a_method_without_its_object_cannot_be_exported(tmp_path: Path, method: str, wording: Wording) -> None:
    """It has no object to be called on, decorated or not."""
    with pytest.raises(DiscoveryError) as caught:
        exports(module_of(tmp_path, f"{DECORATED}TOOLS = [{method}]"), where="tools.py")
    assert str(caught.value) == wording
