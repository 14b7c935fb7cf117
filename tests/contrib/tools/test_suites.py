"""Suites: summaries, and the options that their sections share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib import tools
from handrail.filesystem import HostFilesystem, InMemoryFilesystem
from handrail.prompt import Section
from handrail.prompt.disclosure import OpenSections
from handrail.runtime import Session
from tests.contrib.suites import SuiteRun

SUMMARY = "What the suite is for."


MAKE: Mapping[str, Callable[[HostFilesystem], Section[Any]]] = {
    "files": lambda _: tools.VfsToolsSection(InMemoryFilesystem(), summary=SUMMARY),
    "planning": lambda _: tools.PlanningToolsSection(session=Session(), summary=SUMMARY),
    "shell": lambda folder: tools.ShellToolsSection(folder, allow=[("ls",)], summary=SUMMARY),
    "python": lambda _: tools.AstevalSection(summary=SUMMARY),
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
