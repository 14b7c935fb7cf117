"""Tools and toolsets that modules and installed packages export."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest
from pydantic_ai import Tool
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents import Entry, Origin, Project
from handrail.agents.modules import exports, package_offers
from handrail.agents.registry import BUILT_IN, PackageExport
from handrail.errors import DiscoveryError, ResolutionError
from handrail.prompt.function_tools import FunctionTool
from tests.agents.kit import IMPORTS, agent, module_of, refusal, write
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


Install = Callable[[str, str, str], Path]


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Installs a package: its name, its entry points, and its one module, called after it."""
    modules: list[str] = []

    def installed(name: str, points: str, source: str) -> Path:
        module = name.replace("-", "_")
        modules.append(module)
        write(
            tmp_path,
            {
                f"{module}.py": f"{IMPORTS}\n{source}",
                f"{module}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
                f"{module}-1.0.dist-info/entry_points.txt": points,
            },
        )
        invalidate_caches()
        return tmp_path

    sys.path.insert(0, str(tmp_path))
    yield installed
    sys.path.remove(str(tmp_path))
    for module in modules:
        sys.modules.pop(module, None)


def label(offer: PackageExport) -> str:
    """An offer in words, as an entry is labelled."""
    return f"{offer.kind} {offer.name} ({offer.origin})"


def offered(name: str) -> PackageExport:
    """The offer of that name."""
    (found,) = [offer for offer in package_offers() if offer.name == name]
    return found


POINTS = """
[handrail.tools]
shop_ping = handrail_shop:PING
a name = handrail_shop:PING
[handrail.toolsets]
shop_desk = handrail_shop:make
shop_other = handrail_shop:make
"""


def test_packages_are_known_by_name_and_imported_when_they_are_looked_up(install: Install, wording: Wording) -> None:
    """A name that no agent file can say is passed over; the others are known, with where they come from."""
    install("handrail-shop", POINTS, "PING = Tool(ping, name='shop_ping')")
    labels = [label(offer) for offer in package_offers() if "handrail-shop" in label(offer)]
    assert labels == wording
    assert "handrail_shop" not in sys.modules
    entry = offered("shop_ping").load()
    assert (entry.name, entry.kind) == ("shop_ping", "tool")
    assert entry.value is sys.modules["handrail_shop"].PING


@pytest.mark.parametrize("value, source", [
    pytest.param("handrail_shop:nothing", "", id="attribute"), pytest.param("handrail_nowhere:x", "", id="module"),
    pytest.param("handrail_shop:ping", "1 / 0", id="raises"),
    pytest.param("handrail_shop:ping", "import sys; sys.exit(3)", id="exits"),
    pytest.param("not : valid :", "", id="no reference"),
])  # fmt: skip
def test_a_package_that_cannot_be_loaded_is_told_with_entry_point_and_cause(
    install: Install, value: str, source: str, wording: Wording
) -> None:
    """It hides no other package."""
    install("handrail-sound", "[handrail.tools]\nping = handrail_sound:ping\n", "")
    install("handrail-shop", f"[handrail.toolsets]\nbroken = {value}\n", source)
    with pytest.raises(DiscoveryError) as found:
        offered("broken").load()
    assert str(found.value) == wording
    assert found.value.offenders == ("broken",)
    assert found.value.__cause__ is not None
    assert offered("ping").load().name == "ping"


def test_a_person_who_interrupts_is_obeyed(install: Install) -> None:
    """It is no fault of the package."""
    install("handrail-shop", "[handrail.tools]\nping = handrail_shop:ping\n", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        offered("ping").load()


def test_a_package_that_takes_a_name_of_the_project_or_of_another_package_harms_nobody(
    install: Install, tmp_path: Path, wording: Wording
) -> None:
    """Those who do not name it do not see it; who does is told of both packages."""
    install("handrail-shop", "[handrail.toolsets]\nfiles = handrail_shop:make\ntwice = handrail_shop:make\n", "")
    install("handrail-other", "[handrail.toolsets]\ntwice = handrail_other:make\ndesk = handrail_other:make\n", "")
    folder = tmp_path / "project"
    write(folder, {"desk.agent": agent("desk", toolsets="[files, desk]"), "b.agent": agent("b", toolsets="[twice]")})
    files = Entry("files", "toolset", FunctionToolset(), BUILT_IN)
    project, _ = Project.survey(folder, built_ins=[files])
    assert project is not None
    assert [entry.label for entry in project.resolve("desk").toolsets] == wording
    with refusal(ResolutionError, wording):
        project.resolve("b")
    assert not {"handrail_shop", "handrail_other"} & set(sys.modules)


@pytest.mark.parametrize("points", [b"[handrail.tools]\nx = \xff:y\n", b"[handrail.tools]\nno equals sign\n", b"[[["])
def test_a_package_whose_metadata_cannot_be_read_is_passed_over(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: bytes, wording: Wording
) -> None:
    """It hides no other package, and none is there twice."""
    install("handrail-sound", "[handrail.tools]\nping = handrail_sound:ping\n", "")
    broken = install("handrail-shop", "", "") / "handrail_shop-1.0.dist-info" / "entry_points.txt"
    broken.write_bytes(points)
    again = tmp_path / "again"
    shutil.copytree(tmp_path / "handrail_sound-1.0.dist-info", again / "handrail_sound-0.9.dist-info")
    monkeypatch.setattr(sys, "path", [str(again), *sys.path])
    invalidate_caches()
    assert [label(offer) for offer in package_offers() if offer.name == "ping"] == wording
    assert offered("ping").load().name == "ping"
