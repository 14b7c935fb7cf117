"""What the file tools make of paths that are excluded, and of those that ignore files hide."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import VfsToolsSection
from handrail.contrib.tools.vfs.text import VfsLimits
from handrail.errors import PathEscapeError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from tests.contrib.suites import SuiteRun
from tests.filesystem.kit import tree_of
from tests.kit import raises
from tests.wording import Wording

PLAIN = {"plan.md": "buy milk\n", "src/a.py": "x = 1\n", "deep/er/b.md": "b\n"}
SECRET = {
    ".env": "KEY=hunter2\n", ".git/config": "token=hunter2\n", "src/site.key": "hunter2\n", "deep/er/.env": "hunter2\n",
    "secrets/a/b.txt": "hunter2\n",
}  # fmt: skip
EXCLUDE = (".env", "*.key", "secrets/**")
LINKS = {
    "to env": ".env", "to secrets": "secrets", "to deep": "deep", "src/up": "../secrets/a", "to new": "src/new.key",
}  # fmt: skip


@contextmanager
def in_memory(files: Mapping[str, str], _folder: Path) -> Generator[Filesystem]:
    """A filesystem in memory."""
    yield InMemoryFilesystem(files)


@contextmanager
def on_disk(files: Mapping[str, str], folder: Path) -> Generator[Filesystem]:
    """A folder with links."""
    root = folder / "root"
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for link, target in LINKS.items():
        (root / link).symlink_to(target)
    with HostFilesystem(root, journal=folder / "journal") as filesystem:
        yield filesystem


Where = Callable[[Mapping[str, str], Path], AbstractContextManager[Filesystem]]

PLACES: dict[str, Where] = {"memory": in_memory, "disk": on_disk}

LOOKS: list[tuple[str, dict[str, Any]]] = [
    *(("read_file", {"path": path}) for path in (".env", "./src/../.env", ".ENV", "src/site.key", "SRC/SITE.KEY")),
    *(("read_file", {"path": path}) for path in (".git/config", ".GIT/config", ".g\u200cit/config", "secrets/a/b.txt")),
    *(("read_file", {"path": path}) for path in ("to env", "to secrets/a/b.txt", "to deep/er/.env", "src/up/b.txt")),
    *(("read_file", {"path": path}) for path in ("to deep/../.env", "secrets", "deep/er/.env/", "SECRETS/a/b.txt")),
    *(("list_files", {"path": path}) for path in ("secrets", "to secrets", "src/up", ".git", "deep/er", ".", "src")),
    ("list_files", {"path": ".", "include_ignored": True}),
    *(("glob_files", {"pattern": pattern}) for pattern in ("**/.env", "**/*.key", "secrets/**", ".git/**", "**", "*")),
    *(("glob_files", {"pattern": "**", "path": path}) for path in ("secrets", "secrets/a", ".git", "deep")),
    ("glob_files", {"pattern": "**", "include_ignored": True}),
    *(("grep_files", {"pattern": "hunter"}) for _ in range(1)),
    *(("grep_files", {"pattern": "hunter", "path": path}) for path in (".env", "to env", "secrets", "deep", ".git")),
    ("grep_files", {"pattern": "hunter", "files": "**/.env"}),
    ("grep_files", {"pattern": "hunter", "include_ignored": True, "context": 3}),
    ("grep_files", {"pattern": ".", "files": "**/*.key"}),
]
"""Calls that look, and would find something of what is excluded."""

CHANGES: list[tuple[str, dict[str, Any]]] = [
    *(("write_file", {"path": path, "content": "x"}) for path in (".env", ".ENV", "secrets/a/b.txt", "secrets/new")),
    *(("write_file", {"path": path, "content": "x"}) for path in (".git/hooks/pre-commit", ".Git/config", "a/.git/x")),
    *(("write_file", {"path": path, "content": "x"}) for path in ("to env", "to secrets/x", "to new", "src/new.key/x")),
    *(("edit_file", {"path": path, "old": "hunter2", "new": "x"}) for path in (".env", "to env", "src/up/b.txt")),
    *(("remove_file", {"path": path}) for path in (".env", "src/site.key", "secrets/a/b.txt", "to deep/er/.env")),
    *(("remove_file", {"path": path, "recursive": True}) for path in ("secrets", ".git", "deep", "deep/er", "src")),
    *(
        ("move_file", {"path": path, "new_path": "out.md"})
        for path in (".env", ".git/config", "secrets", "deep", "src")
    ),
    *(
        ("move_file", {"path": "plan.md", "new_path": path})
        for path in (".env", "a.key", ".git/hooks/x", "to secrets/x")
    ),
]
"""Calls that change something, and would change what is excluded."""


def answers(files: Mapping[str, str], calls: list[tuple[str, dict[str, Any]]], where: Where, folder: Path) -> list[str]:
    """What the model reads after each call."""
    with where(files, folder) as filesystem:
        run = SuiteRun(VfsToolsSection(filesystem, exclude=EXCLUDE))
        return [run.call(tool, **given).content for tool, given in calls]


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_every_look_reads_as_if_what_is_excluded_were_not_there(where: Where, tmp_path: Path) -> None:
    """Each of the calls is answered as in a tree that never had those files."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with_secrets = answers({**PLAIN, **SECRET}, LOOKS, where, tmp_path / "a")
    without = answers(PLAIN, LOOKS, where, tmp_path / "b")
    assert with_secrets == without
    assert not [answer for answer in with_secrets if "hunter2" in answer]
    assert len(LOOKS) >= 40


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_no_call_changes_what_is_excluded(where: Where, tmp_path: Path) -> None:
    """Each fails, nothing is said of contents, and what is excluded stays byte for byte."""
    with where({**PLAIN, **SECRET}, tmp_path) as whole:
        before = tree_of(whole)
        run = SuiteRun(VfsToolsSection(whole, exclude=EXCLUDE, policies=()))
        for tool, given in CHANGES:
            assert "hunter2" not in run.call(tool, **given).content
        after = tree_of(whole)
        assert {path: after.get(path) for path in SECRET} == {path: before[path] for path in SECRET}
        made = after.keys() - before.keys()
        assert not [path for path in made if {".git", ".env", "new.key", "a.key"} & {*path.lower().split("/")}]
        assert not [path for path in made if path.startswith("secrets/")]


@pytest.mark.parametrize("path", [".env", "src/new.key", "secrets/x"])
def test_a_write_is_refused_alike_whether_the_file_is_there_or_not(path: str, wording: Wording) -> None:
    """The policy that has files read first does not tell either."""
    told = set[str]()
    for files in ({**PLAIN, **SECRET, "src/new.key": "hunter2"}, PLAIN):
        run = SuiteRun(VfsToolsSection(InMemoryFilesystem(files), exclude=EXCLUDE))
        told.add(run.refused("write_file", path=path, content="x"))
        bound = SuiteRun(VfsToolsSection(exclude=EXCLUDE), resources={Filesystem: InMemoryFilesystem(files)})
        told.add(bound.refused("write_file", path=path, content="x"))
    assert len(told) == 1
    assert told.pop() == wording


def test_git_is_shown_when_it_is_asked_for() -> None:
    """What else is excluded stays so."""
    run = SuiteRun(VfsToolsSection(InMemoryFilesystem(SECRET), exclude=EXCLUDE, show_git=True))
    assert "hunter2" in run.told("read_file", path=".git/config")
    run.refused("read_file", path=".env")


def test_slip_in_the_patterns_is_told_when_the_section_is_made(wording: Wording) -> None:
    """Not when a secret has been read."""
    with pytest.raises(PathEscapeError):
        VfsToolsSection(InMemoryFilesystem(), exclude=("../x",))
    with raises(TypeError, wording):
        VfsToolsSection(InMemoryFilesystem(), exclude=".env")


IGNORING = {
    ".gitignore": "out/\n*.log\n", "out/made.py": "x = 1\n", "a.py": "x = 1\n", "run.log": "x = 2\n",
    "src/.gitignore": "!keep.log\n", "src/keep.log": "x = 3\n",
}  # fmt: skip


def test_lists_and_searches_leave_out_what_ignore_files_hide(wording: Wording) -> None:
    """They say how much, and how to see it."""
    run = SuiteRun(VfsToolsSection(InMemoryFilesystem(IGNORING)))
    assert run.told("list_files") == wording
    assert run.told("glob_files", pattern="**/*.py") == wording
    found = run.told("grep_files", pattern="x =")
    assert found == wording


def test_what_ignore_files_hide_is_shown_when_it_is_asked_for() -> None:
    """In each of the three."""
    run = SuiteRun(VfsToolsSection(InMemoryFilesystem(IGNORING)))
    assert "run.log" in run.told("list_files", include_ignored=True)
    assert "out/made.py" in run.told("glob_files", pattern="**/*.py", include_ignored=True)
    assert "out/made.py:1" in run.told("grep_files", pattern="x =", include_ignored=True)
    assert "out/made.py" in run.told("list_files", path="out", include_ignored=True)
    assert "run.log:1" in run.told("grep_files", pattern="x", path="run.log")


def test_ignore_files_hide_and_do_not_protect() -> None:
    """What is named by its path can be read, written, moved and removed."""
    run = SuiteRun(VfsToolsSection(InMemoryFilesystem(IGNORING)))
    assert "x = 1" in run.told("read_file", path="out/made.py")
    run.told("edit_file", path="out/made.py", old="1", new="2")
    run.told("write_file", path="out/new.log", content="x")
    run.told("move_file", path="out", new_path="in")
    run.told("remove_file", path="in", recursive=True)


@pytest.mark.parametrize("tool,arguments", [
    ("list_files", {"path": "out"}), ("glob_files", {"pattern": "*", "path": "out"}),
    ("grep_files", {"pattern": "x", "path": "out"}),
], ids=["list a folder", "glob a folder", "search a folder"])  # fmt: skip
def test_a_look_into_what_is_hidden_says_how_to_see_it(tool: str, arguments: dict[str, Any], wording: Wording) -> None:
    """An empty answer would be taken for an empty folder."""
    run = SuiteRun(VfsToolsSection(InMemoryFilesystem(IGNORING)))
    assert run.refused(tool, **arguments) == wording


def test_a_walk_that_is_too_long_says_so(wording: Wording) -> None:
    """The result is what was found until then."""
    files = {f"{number}.md": "x\n" for number in range(20)}
    run = SuiteRun(VfsToolsSection(InMemoryFilesystem(files), limits=VfsLimits(walked_entries=5)))
    for tool, arguments in (("list_files", {}), ("glob_files", {"pattern": "*"}), ("grep_files", {"pattern": "x"})):
        told = run.told(tool, **arguments)
        assert told == wording
