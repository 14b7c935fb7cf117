"""`handrail.agents.modules`: what installed packages offer, found by their entry points."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents.modules import package_offers
from handrail.agents.project import Project
from handrail.agents.registry import BUILT_IN, Entry, PackageExport
from handrail.errors import DiscoveryError, ResolutionError
from tests.agents.folders import IMPORTS, agent, write
from tests.wording import Wording

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


MUTE = """
class Mute(Exception):
    def __str__(self):
        raise ValueError("mute")

raise Mute
"""


@pytest.mark.parametrize(
    "value, source",
    [
        pytest.param("handrail_shop:nothing", "", id="attribute"),
        pytest.param("handrail_nowhere:x", "", id="module"),
        pytest.param("handrail_shop:ping", "1 / 0", id="raises"),
        pytest.param("handrail_shop:ping", "import sys; sys.exit(3)", id="exits"),
        pytest.param("handrail_shop:ping", MUTE, id="mute"),
        pytest.param("not : valid :", "", id="no reference"),
    ],
)
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


def test_what_a_package_offers_is_checked_as_what_a_module_exports(install: Install, wording: Wording) -> None:
    """A wrong kind and a name that models would not see are offences."""
    points = "[handrail.tools]\npong = handrail_shop:ping\n[handrail.toolsets]\ndesk = handrail_shop:FunctionToolset\n"
    install("handrail-shop", points, "")
    with pytest.raises(DiscoveryError) as caught:
        offered("pong").load()
    assert str(caught.value) == wording
    with pytest.raises(DiscoveryError) as raised:
        offered("desk").load()
    assert str(raised.value) == wording


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
    with pytest.raises(ResolutionError) as caught:
        project.resolve("b")
    assert str(caught.value) == wording
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
