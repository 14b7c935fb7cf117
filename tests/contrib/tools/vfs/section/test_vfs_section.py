"""The file suite as a section: its tools, its text, and the filesystems that it works on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from handrail.contrib.tools import VfsLimits, VfsToolsSection
from handrail.errors import DuplicateBindingError, PromptValidationError, ProviderError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate
from handrail.resources import ResourceRegistry
from tests.contrib.suites import SuiteRun


def files(**contents: str) -> InMemoryFilesystem:
    """A filesystem with a plan in it, and these files; `a_md` stands for `a.md`."""
    return InMemoryFilesystem(
        {"notes/plan.md": "# Plan\n"} | {name.replace("_", "."): content for name, content in contents.items()}
    )


def rendered(section: VfsToolsSection) -> str:
    """What the model is told by the section."""
    return Prompt(PromptTemplate(ns="tests", key="files", sections=[section])).render().text


def test_section_brings_the_tools_with_their_effects() -> None:
    """Looking is reading; every tool has an example; descriptions are fixed by default."""
    section = VfsToolsSection()
    assert {tool.name: tool.effect for tool in section.tools} == {
        "list_files": "read",
        "glob_files": "read",
        "grep_files": "read",
        "read_file": "read",
        "read_kept": "read",
        "write_file": "state",
        "edit_file": "state",
        "remove_file": "state",
        "move_file": "state",
    }
    assert all(tool.examples for tool in section.tools)
    assert not any(tool.accepts_overrides for tool in section.tools)
    assert all(tool.accepts_overrides for tool in VfsToolsSection(accepts_overrides=True).tools)


def test_text_of_the_section() -> None:
    """What a model sees."""
    assert rendered(VfsToolsSection()) == snapshot("""\
## 1. Files

Work on files with these tools. A path is relative to the root of the filesystem, with forward slashes, such as
`notes/plan.md`; `.` is the root.

**Tools to look with**

- `list_files` shows what a folder holds.
- `glob_files` finds files and folders by a pattern of their path: `*.md` in the folder itself, `**/*.md` at any depth.
- `grep_files` finds lines by a regular expression; `files` says in which files, `context` how many lines around each to
  show. It reads each line by itself, and knows no look-around and no backreferences.
- `read_file` shows the text of a file. The first line of the result says which part of the file follows and how to go
  on; it is not in the file. Everything below that line is the file's text, exactly.
- `read_kept` continues a result of `glob_files` or `grep_files` that was too long: the result shows key and offset.

**Tools to change with**

- `write_file` makes a file, or replaces all that is in it.
- `edit_file` replaces one piece of text and leaves the rest of the file as it is. To change a part of a file, prefer it
  to `write_file`.
- `remove_file` removes a file or folder, `move_file` gives one another path and replaces nothing.

**Rules**

- Find what you need with `glob_files` and `grep_files` and read that; you seldom need to read everything.
- Read a file before you write to it or remove it, and again if it has changed since; what `grep_files` shows of it does
  not count. For `edit_file` it is enough to have read a part; for `write_file` and `remove_file` read all of it. A new
  file you may write at once, and what you have written yourself you need not read. To move a file you need not read it.
- Copy `old` exactly from what `read_file` shows, with its spaces and line breaks, and take enough of it
  that it occurs only once in the file. To change every occurrence, set `replace_all`.
- Line ends are shown as LF. `edit_file` keeps those that the file has.
- A call that fails has changed nothing. Its message says what to do instead.\
""")


def test_text_speaks_of_reading_first_only_where_a_policy_asks_for_it() -> None:
    """The guidance says what holds."""
    assert "Read a file before you write" in rendered(VfsToolsSection())
    assert "Read a file before you write" not in rendered(VfsToolsSection(policies=()))


def test_without_a_filesystem_the_model_is_told_what_to_bind() -> None:
    """The section alone has no files; neither reads nor writes fail in another way."""
    run = SuiteRun(VfsToolsSection(policies=()))
    told = run.refused("list_files")
    assert told == snapshot(
        "there are no files here: the program binds no Filesystem. It can do so by VfsToolsSection(filesystem) or "
        "by prompt.bind(resources={Filesystem: filesystem}). Do without the file tools."
    )
    assert run.refused("write_file", path="a.txt", content="a") == told


def test_section_works_on_what_the_prompt_binds() -> None:
    """Without a filesystem of its own, and with one: what `bind` binds takes precedence."""
    bound = files(a_md="bound")
    own = SuiteRun(VfsToolsSection(files(a_md="own")))
    assert own.told("read_file", path="a.md").endswith("\nown")
    mounted = VfsToolsSection(mounts={"own": files(a_md="own")})
    for section in (VfsToolsSection(), VfsToolsSection(files(a_md="own")), mounted):
        run = SuiteRun(section, resources={Filesystem: bound})
        assert run.told("read_file", path="a.md").endswith("\nbound")


def test_section_keeps_the_resources_it_is_given() -> None:
    """The filesystem is bound beside them; two filesystems in one section are a mistake."""
    given_resources: list[ResourceRegistry | dict[type[object], object]] = [
        {InMemoryFilesystem: files()},
        ResourceRegistry.build({InMemoryFilesystem: files()}),
    ]
    for resources in given_resources:
        registry = VfsToolsSection(files(), resources=resources).registry
        assert InMemoryFilesystem in registry
        assert Filesystem in registry
    with pytest.raises(DuplicateBindingError):
        VfsToolsSection(files(), resources={Filesystem: files()})


def test_what_is_no_filesystem_is_refused() -> None:
    """Where the section is made, not where a call first needs it."""
    no_filesystem: Any = "notes"
    with pytest.raises(ProviderError, match="not a Filesystem"):
        VfsToolsSection(no_filesystem)


def test_mounts_appear_as_folders_and_are_told_of() -> None:
    """The model sees one tree, and what it writes lands in the filesystem that is mounted there."""
    source, notes = files(a_md="a"), InMemoryFilesystem()
    section = VfsToolsSection(mounts={"src": source, "notes": notes})
    assert rendered(section).split("\n")[4:6] == snapshot(
        [
            "The root holds `src` and `notes`, each a filesystem of its own: the root itself takes nothing else,",
            "and nothing moves from one to another.",
        ]
    )
    run = SuiteRun(section)
    run.told("write_file", path="notes/new.md", content="new")
    assert notes.read_text("new.md") == "new"
    assert run.told("glob_files", pattern="**/*.md") == snapshot("""\
**/*.md in .: 3 entries.
notes/new.md (3 bytes)
src/a.md (1 byte)
src/notes/plan.md (7 bytes)\
""")


def test_filesystem_and_mounts_are_not_given_together() -> None:
    """One of them would be lost."""
    with pytest.raises(PromptValidationError) as caught:
        VfsToolsSection(files(), mounts={"src": files()})
    assert str(caught.value) == snapshot(
        "section files: filesystem and mounts are both given; give one of them, or mount the filesystem, too: "
        "mounts={'files': filesystem, ...}."
    )


def test_host_folder_is_mounted_with_patterns_of_what_is_to_be_seen(tmp_path: Path) -> None:
    """The model works on the files on disk, and what is excluded is not there for it."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text("TODO = 1\n")
    (root / "secret.key").write_text("TODO\n")
    with HostFilesystem(root, exclude=("*.key",), journal=tmp_path / "journal", durability="normal") as source:
        run = SuiteRun(VfsToolsSection(mounts={"src": source, "notes": InMemoryFilesystem()}))
        assert run.told("grep_files", pattern="TODO") == snapshot("""\
TODO in .: 1 line matches in 1 file (1 file searched).
src/a.py:1: TODO = 1\
""")
        run.told("read_file", path="src/a.py")
        run.told("edit_file", path="src/a.py", old="TODO", new="DONE")
        assert "src/secret.key" not in run.told("list_files", path="src")
        assert not run.call("remove_file", path="src/secret.key").success
    assert (root / "a.py").read_text() == "DONE = 1\n"
    assert (root / "secret.key").exists()


def test_what_the_limits_of_the_section_allow_is_not_cut_in_the_message() -> None:
    """A policy is told that the file was shown, so all of it must be."""
    text = "some words in a line\n" * 2_000
    run = SuiteRun(VfsToolsSection(files(long_txt=text), limits=VfsLimits(characters=50_000, lines=10_000)))
    message = run.call("read_file", path="long.txt")
    assert not message.is_cut
    assert message.content.endswith(text.rstrip())
