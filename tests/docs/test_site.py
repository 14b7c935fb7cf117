"""The site has every page and every public name, and builds without a fault; its drawings are up to date."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from handrail.cli.application import application
from tests.architecture.sources import ROOT, listed, python_sources
from tests.architecture.test_names import FACES
from tests.docs.command_options import arguments, commands
from tests.docs.diagrams import DIAGRAMS, FOLDER, changes, drawn_changes
from tests.docs.site import (
    DOCS,
    OPTIONS,
    SECTIONS,
    build,
    module_page,
    modules,
    navigation,
    site_page,
    write_llms,
    write_sources,
)
from tests.extent import FULL

WITHOUT_LIST = {"handrail.adapters.tool_executor", "handrail.clock", "handrail.crash_points"}
"""Modules whose names are public, though they have no `__all__`."""


class Anchors(HTMLParser):
    """The anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an anchor, and what a browser would load."""
        values = dict(attrs)
        self.found.add(values.get("id") or "")
        if tag in {"script", "img", "iframe", "link"}:
            self.loaded.append(values.get("src") or values.get("href") or "")


def public_names(module: str) -> set[str]:
    """The names that a module exports, or defines where it has no list of them."""
    found = import_module(module)
    names = getattr(found, "__all__", None)
    if names is not None:
        return set(names)
    return {
        name for name, value in vars(found).items() if getattr(value, "__module__", "") == module and name[0] != "_"
    }


def separator() -> str:
    """What is between two words for the search of the site, as a regular expression."""
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    return str(settings["project"]["plugins"]["search"]["separator"])


def pages_in(entries: Any) -> Iterator[str]:
    """The pages of a navigation."""
    if isinstance(entries, str):
        yield entries
        return
    for entry in entries:
        for below in entry.values():
            yield from pages_in(below)


def assert_models_find_the_pages(site: Path) -> None:
    """`llms.txt` is of the form of llmstxt.org, a line for each page; `llms-full.txt` has their texts."""
    index = (site / "llms.txt").read_text(encoding="utf-8")
    assert index.startswith("# Handrail\n\n> ")
    assert re.findall(r"^## (.+)$", index, re.MULTILINE) == [*SECTIONS]
    lines = [line for line in index.splitlines() if line.startswith("- ")]
    rows = [re.fullmatch(r"- \[[^]]+\]\(([^()#]+\.md)\): .+", line) for line in lines]
    linked = [row[1] for row in rows if row]
    assert len(linked) == len(lines)
    own = {str(site_page(page)) for page in DOCS.rglob("*.md") if not page.match("decisions/0*.md")}
    assert {*linked} == own - {"pages.md"} | {"index.md"}
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert [page for page in linked if (site / page).read_text(encoding="utf-8") not in whole] == []


def test_every_module_with_public_names_is_in_the_reference() -> None:
    """A module that exports names has a row on the page, and with it a page on the site."""
    exporting = {source.module for source in python_sources("src") if "__all__ = [" in source.text}
    assert sorted(modules()) == sorted(exporting | WITHOUT_LIST)
    assert FACES.keys() <= exporting


def test_the_navigation_has_every_page() -> None:
    """Those of the docs, of the root, and of the modules."""
    entries = tomllib.loads(navigation())["nav"]
    files = [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "examples" / "README.md"]
    made = [OPTIONS, *map(module_page, modules())]
    wanted = sorted({*map(str, map(site_page, files)), *map(str, made)})
    assert sorted(pages_in(entries)) == wanted


@pytest.mark.timeout(300)  # the build takes 20 seconds on a quiet machine
def test_the_site_builds_without_a_fault(tmp_path: Path) -> None:
    """Every public name has an anchor, the search finds names and options, and nothing is loaded from elsewhere.

    The short form only writes the sources.
    """
    if not FULL:
        write_sources(tmp_path / "docs")
        write_llms(tmp_path / "docs", tmp_path / "site")
        pages = [tmp_path / "docs" / site_page(page) for page in DOCS.rglob("*.md")]
        assert [page for page in pages if not page.is_file()] == []
        assert_models_find_the_pages(tmp_path / "site")
        return
    assert build(tmp_path) == ""
    assert_models_find_the_pages(tmp_path / "site")
    faults: list[str] = []
    for page in (tmp_path / "site").rglob("*.html"):
        read = Anchors()
        read.feed(page.read_text(encoding="utf-8"))
        faults += [f"{page.name} loads {address}" for address in read.loaded if "//" in address]
        module = page.stem
        if module in modules():
            named = {f"{module}.{name}" for name in public_names(module)}
            faults += sorted(named.difference(read.found, modules()))  # a module has a page of its own
    assert not faults, listed(faults)
    index = json.loads((tmp_path / "site" / "search.json").read_text(encoding="utf-8"))
    assert index["config"]["separator"] == separator()
    assert not_found(index["items"]) == []


def not_found(items: list[dict[str, Any]]) -> list[str]:
    """The public names, and the options of commands, whose words stand together in no part of the search index."""
    split = re.compile(separator()).split
    parts = [{*split(re.sub("<[^>]+>", " ", f"{item['title']} {item['text']}"))} for item in items]
    sought = {name for module in modules() for name in public_names(module)}
    for _, command in commands(application(), ()):
        sought |= {name for argument in arguments(command) for name in argument.names}
    return sorted(name for name in sought if not any({*filter(None, split(name))} <= part for part in parts))


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_drawn_from_what_there_is_and_stands_in_a_page(name: str) -> None:
    """With a title, and a text for those who do not see it. If this fails, run `make diagrams` and look at them."""
    assert (FOLDER / name).read_text(encoding="utf-8") == DIAGRAMS[name]()
    image = ET.parse(FOLDER / name).getroot()  # noqa: S314 - drawn here
    assert [part.text for part in image if part.tag.endswith("title")] != [None]
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"]
    shown = [
        text for page in pages for text in re.findall(rf"!\[(.+?)\]\(\S*{name}\)", page.read_text(encoding="utf-8"))
    ]
    assert len(shown) == 1


def test_every_change_of_an_effect_is_drawn() -> None:
    """Those that remove a row are in the line below."""
    assert {change for change in changes() if change[1] != "removed"} == drawn_changes()
