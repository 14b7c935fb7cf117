"""Modules of a project are imported once, unseen by others; names in a registry, and functions that become tools."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from pydantic_ai import RunContext, Tool
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import FunctionToolset

from handrail import store
from handrail.agents import AgentFile, Entry, Project, Registry, load_agent
from handrail.agents.modules import exports, forget_modules, import_modules, package_name
from handrail.agents.registry import (
    BUILT_IN,
    AgentReference,
    FactoryFunction,
    Kind,
    ToolsetFactory,
    resolve,
)
from handrail.errors import DiscoveryError, HandrailError, RegistryError, ResolutionError, UnknownTypeError
from handrail.session import Session
from tests.agents.kit import imported, module_of, refusal, write
from tests.wording import Wording


def loaded(folder: Path, *files: str) -> list[ModuleType]:
    """The modules of files that have no fault."""
    found = imported(folder, *files)
    assert not found[1]
    return list(found[0].values())


def problems(folder: Path, *files: str) -> list[str]:
    """What is wrong with files."""
    return [str(problem) for problem in imported(folder, *files)[1]]


def modules_of(folder: Path) -> set[str]:
    """What of a project Python has imported, by names in its folder."""
    package = f"{package_name(folder)}."
    return {name.removeprefix(package) for name in sys.modules if name.startswith(package)}


SIBLINGS = {
    "helpers.py": "x = object()",
    "lib/deep.py": "y = object()",
    "tools.py": """
        import json, lib.deep, lib.deep as deep
        from helpers import x
        from tools import money
        from . import helpers
        def lazy():
            import helpers as found
            from tools.money import rate
            return found, rate
        """,
    "tools/money.py": "from helpers import x\nfrom tools.rates import rate\nfrom . import rates",
    "tools/rates.py": "rate = object()",
}


@pytest.mark.requirement("A-15")
def test_modules_find_their_siblings_and_each_file_is_one_module(tmp_path: Path) -> None:
    """By absolute and relative imports, in `tools/` too, and in a function that is called when all is imported."""
    tools, money, rates, helpers, deep = loaded(
        write(tmp_path, SIBLINGS), "tools.py", "tools/money.py", "tools/rates.py", "helpers.py", "lib/deep.py"
    )
    assert tools.x is money.x is helpers.x
    assert tools.lib.deep is tools.deep is deep
    assert (tools.helpers, tools.money, money.rates) == (helpers, money, rates)
    assert (tools.lazy(), tools.json) == ((helpers, rates.rate), importlib.import_module("json"))


def test_nothing_is_imported_by_a_name_that_others_use(tmp_path: Path) -> None:
    """No `helpers` and no `tools` are left in `sys.modules`, and the folder holds no bytecode."""
    before = set(sys.modules)
    loaded(write(tmp_path, SIBLINGS), "tools.py")
    assert {name.partition(".")[0] for name in set(sys.modules) - before} == {package_name(tmp_path)}
    assert not list(tmp_path.rglob("__pycache__"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("helpers")


def test_two_projects_have_modules_of_the_same_names(tmp_path: Path) -> None:
    """Each sees its own, also when both have long been imported."""
    source = "from helpers import x\ndef lazy():\n    import helpers\n    return helpers.x"
    first = write(tmp_path / "a" / "desk", {"tools.py": source, "helpers.py": "x = 1"})
    second = write(tmp_path / "b" / "desk", {"tools.py": source, "helpers.py": "x = 2"})
    (one,), (two,) = loaded(first, "tools.py"), loaded(second, "tools.py")
    assert (one.x, two.x, one.lazy(), two.lazy()) == (1, 2, 1, 2)


def test_a_file_wins_over_an_installed_module_and_only_for_its_project(tmp_path: Path) -> None:
    """As for a script; what is compiled into Python cannot be replaced, and a folder stands back behind a module."""
    write(tmp_path, {"colorsys.py": "mine = 1", "sys.py": "mine = 1", "json/data.txt": "", "data/numbers.py": "n = 1"})
    write(tmp_path, {"tools.py": "import colorsys, sys, json\nfrom data.numbers import n"})
    (tools,) = loaded(tmp_path, "tools.py")
    assert tools.colorsys.mine == tools.n == 1
    assert tools.sys is sys
    assert tools.json is importlib.import_module("json")
    assert not hasattr(importlib.import_module("colorsys"), "mine")


def test_what_a_link_out_of_the_project_leads_to_is_not_executed(tmp_path: Path, wording: Wording) -> None:
    """Neither as a listed file, nor below a linked folder, nor by an import; a link within the project is a file."""
    left = tmp_path / "executed"
    text = f"from pathlib import Path\nPath({str(left)!r}).touch()\nx = 1\n"
    write(tmp_path, {"shared/tools.py": text, "desk/shop.py": "from helpers import x", "desk/own.py": "x = 1"})
    desk = tmp_path / "desk"
    for link in ("tools.py", "helpers.py"):
        (desk / link).symlink_to(tmp_path / "shared" / "tools.py")
    (desk / "lib").symlink_to(tmp_path / "shared", target_is_directory=True)
    (desk / "also.py").symlink_to("own.py")
    found = imported(desk, "tools.py", "lib/tools.py", "shop.py", "also.py")
    assert [str(problem) for problem in found[1]] == wording
    assert list(found[0]) == ["also.py"]
    assert not left.exists()


@pytest.mark.requirement("A-15")
@pytest.mark.parametrize("source", [
    pytest.param("x = (", id="syntax"), pytest.param("\n\n1 / 0", id="exception"),
    pytest.param("import broken", id="syntax of a sibling"), pytest.param("import tools.part", id="no package"),
])  # fmt: skip
def test_what_keeps_a_module_from_being_imported_is_told_with_its_line(
    tmp_path: Path, source: str, wording: Wording
) -> None:
    """The error names the module that was imported, and the line that raised; the exception is chained."""
    write(tmp_path, {"tools.py": source, "broken.py": "\nx = = 1"})
    (problem,) = imported(tmp_path, "tools.py")[1]
    assert problem.module == "tools.py"
    assert str(problem) == wording
    assert problem.__cause__ is not None


def test_an_interrupt_passes_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    """Whoever stops the program stops it."""
    write(tmp_path, {"tools.py": "import helpers\nraise KeyboardInterrupt", "helpers.py": ""})
    with pytest.raises(KeyboardInterrupt):
        imported(tmp_path, "tools.py")
    assert modules_of(tmp_path) == set()


def test_a_module_and_a_package_of_one_name_are_told_apart_or_refused(tmp_path: Path, wording: Wording) -> None:
    """`tools.py` beside a package `tools` would be a module that nothing can import."""
    write(tmp_path, {"tools.py": "", "tools/__init__.py": "", "tools/money.py": ""})
    (problem,) = problems(tmp_path, "tools.py", "tools/money.py")
    assert problem == wording


TOOLS = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Note:
    text: str
"""


def import_desk(folder: Path, text: str = TOOLS) -> Any:
    """The module of the tools of a project in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "moved_notes.py").write_text(text)
    return import_modules(folder, [Path("moved_notes.py")])[0]["moved_notes.py"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a session of a project that lay in the folder `old`, and has left it."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    note = import_desk(tmp_path / "old").Note
    with store.open(url) as kept, Session.open(kept, "desk", checkpoint_every=2) as session:
        session[note].append(note("milk"))
    forget_modules(tmp_path / "old")
    return url


def test_a_session_is_read_and_continued_from_another_folder(url: str, tmp_path: Path) -> None:
    """Its items keep the name under which the session has them, also across checkpoints, and in a fork."""
    note = import_desk(tmp_path / "new").Note
    with store.open(url) as kept:
        for texts in (["milk"], ["milk", "bread", "milk"]):
            with Session.open(kept, "desk", checkpoint_every=2) as session:
                assert [item.text for item in session[note].all()] == texts
                for text in ("bread", "milk"):
                    session[note].append(note(text))
        with Session.open(kept, "desk") as session:
            fork = session.fork(session_id="fork")
            fork[note].append(note("salt"))
            fork.close()
        with Session.open(kept, "fork") as session:
            assert [item.text for item in session[note].all()][-1:] == ["salt"]
        assert len({entry.type_name for entry in kept.entries("desk")}) == 1
    forget_modules(tmp_path / "new")


def test_two_folders_that_could_be_meant_are_refused(url: str, tmp_path: Path) -> None:
    """The error names the stored name; `types=` tells which is meant."""
    folders = [tmp_path / "new", tmp_path / "other"]
    modules = [import_desk(folder) for folder in folders]
    with store.open(url) as kept:
        with pytest.raises(UnknownTypeError) as caught:
            Session.open(kept, "desk")
        assert caught.value.type_name is not None
        assert caught.value.type_name.endswith(".moved_notes:Note")
        for module in modules:
            with Session.open(kept, "desk", types=[module.Note]) as session:
                assert [item.text for item in session[module.Note].all()] == ["milk"]
        forget_modules(folders[1])
        with Session.open(kept, "desk") as session:
            assert len(session[modules[0].Note].all()) == 1
    forget_modules(folders[0])


def ping(text: str) -> str:
    """Answer."""
    return text


def make(ctx: RunContext[Any]) -> FunctionToolset[Any]:
    """Make a toolset."""
    return FunctionToolset()


def entry(name: str, origin: str = BUILT_IN, kind: Kind = "toolset") -> Entry:
    """An entry with nothing much behind it."""
    return Entry(name, kind, AgentReference(name), origin)


@pytest.mark.requirement("A-12")
def test_a_name_that_is_taken_is_told_with_both_origins(wording: Wording) -> None:
    """All of them in one message, those of what is built in as well as those of files and agents."""
    entries = [
        entry("files"),
        entry("files", "tools.py"),
        entry("desk", "desk.agent"),
    ]
    entries += [entry("ping", f"tools/{name}.py", "tool") for name in ("b", "a")]
    with pytest.raises(RegistryError) as caught:
        Registry((*entries, entry("alone"), entry("desk", "tools.py")))
    assert caught.value.names == ("desk", "files", "ping")
    assert str(caught.value) == wording


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


REGISTRY = Registry.of_python(
    tools=[Tool(ping, name="search"), Tool(ping, name="lookup")],
    toolsets={"search": FunctionToolset(), "files": FunctionToolset()},
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
    assert both.tools == (REGISTRY.tools["lookup"], tool)
    assert both.toolsets == (REGISTRY.toolsets["files"], toolset)


@pytest.mark.requirement("A-17")
@pytest.mark.parametrize(
    "file, names",
    [(agent(tools=("files",), path=Path("agents/desk.agent")), ("files",)), (agent(toolsets=("lookup",)), ("lookup",)),
        (agent(tools=("serch", "lookup", "zzz"), toolsets=("file",)), ("serch", "zzz", "file"))],
    ids=["toolset under tools", "tool under toolsets", "several"],
)  # fmt: skip
def test_names_in_the_wrong_field_are_told_to_move(file: AgentFile, names: tuple[str, ...], wording: Wording) -> None:
    """The error names agent, file, field and all names, the nearest, and all that there are."""
    error = refused(file)
    assert error.names == names
    assert str(error) == wording


@pytest.mark.requirement("A-23")
def test_a_factory_without_parameters_is_refused_before_any_run(wording: Wording) -> None:
    """However it came into the registry; the message shows how a factory is written."""

    def make() -> FunctionToolset[Any]:
        return FunctionToolset()

    factory = ToolsetFactory(cast("FactoryFunction", make))  # wrong on purpose
    registry = Registry((Entry("made", "toolset", factory, "tools.py"),))
    told = str(refused(agent(toolsets=("made",)), registry))
    assert told == wording


SOURCE = """
from pydantic import BaseModel, Field
def f(x: complex) -> str:
    "Does it."
    return ""

"""


@pytest.mark.parametrize("export", ["TOOLS = [f]", "__all__ = ['f']"], ids=["tools", "all"])
def test_a_function_that_cannot_be_a_tool_is_refused(tmp_path: Path, export: str, wording: Wording) -> None:
    """With its parameter, and the cure; by `Project.load`, `load_agent` and the survey of `handrail check`, too."""
    with pytest.raises(DiscoveryError) as caught:
        exports(module_of(tmp_path / "module", f"{SOURCE}{export}"), where="tools.py")
    assert caught.value.offenders == ("f",)
    assert str(caught.value) == wording
    write(tmp_path, {"desk.agent": "---\nname: desk\ntools: [f]\n---\nJudge.\n", "tools.py": f"{SOURCE}{export}"})
    for load in (lambda: Project.load(tmp_path), lambda: load_agent(tmp_path / "desk.agent")):
        with refusal(HandrailError, wording):
            load()


def test_all_faults_of_a_function_are_told_at_once(tmp_path: Path, wording: Wording) -> None:
    """With what to export instead, if PydanticAI can read the function."""
    source = "def f(a, b: 'Unknown', c: complex) -> Agent: ...\ndef g(a, *rest: int) -> str: ...\n"
    source += "class Order(BaseModel):\n    number: str = Field(alias='orderNumber')\ndef h(order: Order) -> str: ...\n"
    with refusal(DiscoveryError, wording):
        exports(module_of(tmp_path, f"{SOURCE}{source}TOOLS = [f, g, h]"), where="tools.py")
    read = exports(module_of(tmp_path / "other", f"{SOURCE}{source}TOOLS = [Tool(g), Tool(h)]"), where="tools.py")
    assert [type(entry.value) for entry in read] == [PydanticTool, PydanticTool]


DECORATED = """
from handrail import tool

class Desk:
    def greet(self, name: str) -> str:
        return name
    def leave(self, name: str) -> str:
        return name

greet = tool(Desk().greet)
"""


@pytest.mark.parametrize("method", ["Desk.greet", "Desk.leave"])
def test_a_method_without_its_object_cannot_be_exported(tmp_path: Path, method: str, wording: Wording) -> None:
    """It has no object to be called on, decorated or not."""
    with refusal(DiscoveryError, wording):
        exports(module_of(tmp_path, f"{DECORATED}TOOLS = [{method}]"), where="tools.py")
