"""Suites: summaries, and the options that their sections share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib import also_bound, limit_faults, timeout_faults, tools
from handrail.errors import DuplicateBindingError
from handrail.filesystem import HostFilesystem, InMemoryFilesystem
from handrail.prompt import Section
from handrail.prompt.disclosure import OpenSections
from handrail.resources import ResourceRegistry
from handrail.runtime import Session
from tests.contrib.suites import SuiteRun
from tests.wording import Wording

SUMMARY = "What the suite is for."


MAKE: Mapping[str, Callable[[HostFilesystem], Section[Any]]] = {
    "files": lambda _: tools.VfsToolsSection(InMemoryFilesystem(), summary=SUMMARY),
    "planning": lambda _: tools.PlanningToolsSection(session=Session(), summary=SUMMARY),
    "shell": lambda folder: tools.ShellToolsSection(folder, allow=[("ls",)], summary=SUMMARY),
    "python": lambda _: tools.AstevalSection(InMemoryFilesystem(), summary=SUMMARY),
    "sandbox": lambda folder: tools.SandboxSection(folder, engine=tools.Bubblewrap(), summary=SUMMARY),
}


@pytest.mark.parametrize("suite", MAKE)
def test_a_suite_with_a_summary_is_closed(suite: str, tmp_path: Path) -> None:
    """The model reads the summary, and has the tools and the text once it has opened the suite."""
    with HostFilesystem(tmp_path) as folder:
        section = MAKE[suite](folder)
        run = SuiteRun(section)
        assert SUMMARY in run.executor.text
        assert {tool.name for tool in run.executor.tools}.isdisjoint(tool.name for tool in section.tools)
        before = len(run.executor.text)
        opening = run.executor.environment.rendering.all_open()
        assert opening is not None
        assert opening.opened == (section.key,)
        run.session[OpenSections].append(opening)
        assert {tool.name for tool in run.executor.tools}.issuperset(tool.name for tool in section.tools)
        assert (SUMMARY in run.executor.text, len(run.executor.text) > before) == (False, True)


@pytest.mark.parametrize("given", [timedelta(0), 5], ids=["nothing", "a number"])
def test_a_timeout_is_a_positive_span(given: object, wording: Wording) -> None:
    """The fault shows what was given."""
    assert timeout_faults(timedelta(1), usual=10) == []
    assert timeout_faults(given, usual=10) == [wording]


@pytest.mark.parametrize("given", [999, True, 1e6], ids=["too small", "a boolean", "a fraction"])
def test_a_limit_is_a_whole_number(given: object, wording: Wording) -> None:
    """Of its unit, and from the least on."""
    assert limit_faults("most", 1_000, unit="bytes", least=1_000) == []
    assert limit_faults("most", given, unit="bytes", least=1_000) == [wording]


def test_a_section_binds_its_own_resources_beside_those_that_are_given() -> None:
    """One type has one binding."""
    for given in ({int: 1}, ResourceRegistry.build({int: 1}), None):
        bound = also_bound(given, {str: "a"})
        assert {binding.kind for binding in bound} == ({int, str} if given is not None else {str})
    with pytest.raises(DuplicateBindingError):
        also_bound({str: "b"}, {str: "a"})
