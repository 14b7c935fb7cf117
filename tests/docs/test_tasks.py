"""Each of the ten tasks of `docs/README.md` is done with only what its page says."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.links import links_in
from tests.docs.tasks import TASKS
from tests.docs.typed_pages import DOCS, Command, File, Terminal

INDEX = DOCS / "README.md"


def pages() -> dict[str, Path]:
    """The first page that the table names, by the task."""
    table = INDEX.read_text(encoding="utf-8").partition("\n| task |")[2].partition("\n\n")[0]
    rows = [row.strip("|").partition("|") for row in table.splitlines()[2:]]
    return {task.strip(): next(links_in(cell, INDEX)).target for task, _, cell in rows}


def words_needed(steps: tuple[File | Command, ...]) -> set[str]:
    """What a reader has to know of Handrail: names that a program does not make itself, and words of commands."""
    needed: set[str] = set()
    for step in steps:
        if isinstance(step, File) and step.name.endswith(".py"):
            needed |= {*_names_in(ast.parse(step.text))}
        elif isinstance(step, Command) and step.line.startswith("handrail"):
            needed |= {*re.findall(r"(?<![\w-])--[a-z-]+", step.line)} | {
                " ".join(word for word in step.line.split()[:3] if "." not in word)
            }
    return needed


def _names_in(program: ast.Module) -> Iterator[str]:
    """The names that a program takes from Handrail: what it imports, its attributes, its keywords."""
    for node in ast.walk(program):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "handrail":
                yield from (module, *(alias.name for alias in names))
            case ast.Call(func=ast.Name(id=name), keywords=keywords) if name not in vars(builtins):
                yield from (keyword.arg for keyword in keywords if keyword.arg)
            case ast.Attribute(attr=name):
                yield name
            case _:
                pass


def test_the_table_has_ten_tasks() -> None:
    """Those that are done here."""
    assert [*pages()] == [*TASKS]
    assert len(TASKS) == 10


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.short(len(TASKS))
def test_a_page_says_all_that_its_task_needs(task: str) -> None:
    """Every name of Handrail in the programs, every command and option; what is of Python itself is known."""
    text = pages()[task].read_text(encoding="utf-8")
    known = set(dir(str)) | set(dir(Path)) | {*sys.stdlib_module_names} | {"kill", "getpid", "SIGKILL", "argv"}
    missing = {
        word for word in words_needed(TASKS[task]) - known if not re.search(rf"(?<!\w){re.escape(word)}\b", text)
    }
    assert not missing


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.short(2)
def test_a_task_is_done(task: str, at: Terminal, tmp_path: Path) -> None:
    """By its programs and commands, in an empty folder."""
    for step in TASKS[task]:
        match step:
            case File(name, text):
                (tmp_path / name).write_text(text, encoding="utf-8")
            case Command(line, shown):
                found = at.type(line, tmp_path)
                assert shown in found, line
