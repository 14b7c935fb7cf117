"""The walk of `docs/explanation/a-call.md` names the functions that a call enters, in their order."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest
from pytest_examples import find_examples

from tests.architecture.sources import ROOT
from tests.docs.links import Link, links_of

PAGE = ROOT / "docs" / "explanation" / "a-call.md"
WALK = 2
"""How many blocks of code the walk has: the imports, and the call."""

ONLY_IF_IT_WAITS = "CallTurn.acquire"


def functions() -> list[tuple[int, str, CodeType]]:
    """The functions that the table links: step, name and code, in the order of the table."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found: list[tuple[int, str, CodeType]] = []
    links = {(name, link.target): link for link in links_of(PAGE) for name in link.names}
    for row in rows:
        step, *cells = (cell.strip() for cell in row.strip("|").split(" | "))
        if step.isdecimal():
            named = [(name, link) for (name, _), link in links.items() if f"[`{name}`](" in cells[1]]
            named.sort(key=lambda pair: cells[1].index(f"[`{pair[0]}`]("))
            found += [(int(step), name, code_of(name, link)) for name, link in named]
    return found


def code_of(name: str, link: Link) -> CodeType:
    """The code of a function or method; of a class that is a context manager, that of its beginning."""
    module = ".".join(Path(link.target).relative_to(ROOT / "src").with_suffix("").parts)
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    function = vars(value)["__enter__"] if isinstance(value, type) else value
    code: CodeType = function.__code__
    return code


@contextmanager
def entered() -> Generator[list[CodeType]]:
    """The code of the functions that are entered in the block, in their order."""
    found: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.append(frame.f_code)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.fixture
def seen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[CodeType]:
    """What the call of the page enters."""
    walk = ModuleType("walk")
    monkeypatch.setitem(sys.modules, "walk", walk)  # where its dataclasses are found
    monkeypatch.setattr(logging, "disable", lambda: None)
    names = vars(walk)
    imports, call = list(find_examples(PAGE))[:WALK]
    exec(compile(imports.source, str(PAGE), "exec"), names)  # noqa: S102 - the code of the page
    with entered() as found:
        exec(compile(call.source, str(PAGE), "exec"), names)  # noqa: S102
    assert "replayed: False" in capsys.readouterr().out
    return found


def test_the_call_enters_the_functions_in_the_order_of_the_page(seen: list[CodeType]) -> None:
    """Each is entered first after those before it; only a call that waits enters the one of step 3."""
    steps = functions()
    assert sorted({step for step, _, _ in steps}) == list(range(1, 14))
    firsts = [(seen.index(code), name) for _, name, code in steps if name != ONLY_IF_IT_WAITS]
    assert [name for _, name in sorted(firsts)] == [name for _, name in firsts]


def test_twelve_questions_are_answered_by_four_modules() -> None:
    """Who reads them knows what a call does; together they have at most 1,200 lines."""
    section = PAGE.read_text(encoding="utf-8").rpartition("\n## ")[2]
    questions = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    answers = {name for _, answer in questions for name in re.findall(r"runtime/(\w+\.py)\)", answer)}
    modules = ROOT / "src" / "handrail" / "runtime"
    assert (len(questions), answers) == (12, {"plan.py", "call.py", "invoke.py", "failures.py"})
    assert sum(len((modules / name).read_text(encoding="utf-8").splitlines()) for name in answers) <= 1_200
