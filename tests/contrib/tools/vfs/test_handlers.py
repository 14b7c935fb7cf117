"""The file tools over every store, and the text that they show, search and replace exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias
from unicodedata import normalize

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handrail.contrib import tools
from handrail.contrib.tools.vfs.search import NOTHING_LEFT_OUT, LeftOut, Search, matcher, path_in_line
from handrail.contrib.tools.vfs.section import FileHandlers
from handrail.contrib.tools.vfs.text import EditOutcome, NotText, decode_text, excerpt, replace_exactly, with_lf
from handrail.errors import ToolValidationError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.limits import Deadline
from handrail.prompt import ToolContext
from handrail.testing import FakeClock
from tests.contrib.suites import SuiteRun
from tests.filesystem.kit import STORES, tree_of
from tests.kit import raises, refusal
from tests.wording import Wording

Form: TypeAlias = Literal["NFC", "NFD"]

TREE: dict[str, str | bytes] = {
    "README.md": "# Desk\n\nTODO: say more\n", "src/desk.py": "def open_desk():\n    return 1  # TODO\n",
    "src/deep/odd[1].py": "x = 1\n", "logo.png": b"\x89PNG\r\n\0",
}  # fmt: skip


@pytest.fixture(params=list(STORES))
def filesystem(request: pytest.FixtureRequest) -> Generator[Filesystem]:
    """A store of each kind that holds the same tree."""
    with STORES[request.param](TREE) as opened:
        yield opened


@pytest.fixture
def run(filesystem: Filesystem) -> SuiteRun:
    """Calls over the tree, of which nothing needs to be read first."""
    return SuiteRun(tools.VfsToolsSection(filesystem, policies=()))


def test_files_are_found_at_any_depth(run: SuiteRun, wording: Wording) -> None:
    """Paths are whole, and the pattern is relative to the folder."""
    assert run.told("glob_files", pattern="**/*.py") == wording
    assert run.told("glob_files", pattern="*", path="src/deep/") == wording
    assert run.refused("glob_files", pattern="*", path="README.md") == wording
    assert run.told("glob_files", pattern="*.py") == wording


def test_search_is_narrowed_down_by_folder_file_and_pattern(run: SuiteRun, wording: Wording) -> None:
    """Characters of a folder's name that mean something in a pattern mean themselves."""
    assert run.told("grep_files", pattern="TODO", files="**/*.py") == wording
    assert run.told("grep_files", pattern="=", path="src/deep/odd[1].py") == wording
    assert run.told("grep_files", pattern="def", path="src", files="*.py", context=1) == wording
    assert run.refused("grep_files", pattern="a", path="nope") == wording
    assert run.refused("grep_files", pattern="a", context=21) == wording


def test_folder_is_removed_whole_only_when_asked_for(run: SuiteRun, filesystem: Filesystem, wording: Wording) -> None:
    """A folder that holds something is not removed by mistake."""
    assert run.refused("remove_file", path="src") == wording
    assert run.told("remove_file", path="src", recursive=True) == wording
    assert set(tree_of(filesystem)) == {"README.md", "logo.png"}
    assert run.refused("remove_file", path=".", recursive=True) == wording


def test_file_or_folder_is_moved_and_nothing_replaced(run: SuiteRun, filesystem: Filesystem, wording: Wording) -> None:
    """Folders of the new path are made."""
    assert run.told("move_file", path="src/", new_path="lib/./code") == wording
    assert filesystem.read_text("lib/code/desk.py") == TREE["src/desk.py"]
    assert run.refused("move_file", path="README.md", new_path="logo.png") == wording
    assert run.refused("move_file", path="README.md", new_path="lib") == wording
    assert run.session[tools.FileMoved].all() == (tools.FileMoved("src", "lib/code"),)


def test_search_ends_with_the_deadline_of_the_run() -> None:
    """Its own time is one bound, that of the run another; time is what the clock of the run says."""

    class Slow(InMemoryFilesystem):
        def read_bytes(self, path: str) -> bytes:
            clock.advance(timedelta(seconds=4))
            return super().read_bytes(path)

    clock = FakeClock()
    slow = Slow({f"{number}.md": "TODO\n" for number in range(9)})

    def searched(deadline: Deadline | None) -> int:
        context = ToolContext.of(resources={Filesystem: slow}, clock=clock, deadline=deadline)
        result = FileHandlers(tools.VfsLimits()).grep_files(tools.GrepFiles("TODO"), context=context)
        assert result.value is not None
        assert result.value.stopped == "time"
        return result.value.matches

    assert searched(None) == 2
    assert searched(Deadline.after(timedelta(seconds=5), clock=clock)) == 1


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")], ids="".join)
def test_texts_are_found_in_whatever_unicode_form_they_are_written(forms: tuple[Form, Form]) -> None:
    """Patterns and pieces of text; a name is written as it is listed."""
    stored, written = (partial(normalize, form) for form in forms)
    path = stored("r\u00e9s/\u00e9t\u00e9.md")
    for open_store in STORES.values():
        with open_store({path: stored("caf\u00e9 1\n")}) as filesystem:
            run = SuiteRun(tools.VfsToolsSection(filesystem))
            assert path in run.told("read_file", path=path)
            assert path in run.told("glob_files", pattern=written("**/\u00e9*"))
            assert path in run.told("grep_files", pattern=written("f\u00e9"))
            run.told("edit_file", path=path, old=written("caf\u00e9"), new=written("th\u00e9"))
            assert filesystem.read_text(path) == stored("th\u00e9 1\n")


def test_file_that_is_written_over_keeps_its_line_ends_and_its_mark(filesystem: Filesystem, run: SuiteRun) -> None:
    """Those of most of its lines; the mark is not in what is shown, searched or edited. A new file is as given."""
    filesystem.write_bytes("a.bat", b"\xef\xbb\xbfa\r\nb\r\nc\n")
    assert run.told("read_file", path="a.bat").endswith("\na\nb\nc")
    assert "a.bat:1: a" in run.told("grep_files", pattern="^a$")
    run.told("edit_file", path="a.bat", old="a\nb\n", new="a\n")
    assert filesystem.read_bytes("a.bat") == b"\xef\xbb\xbfa\r\nc\n"
    run.told("write_file", path="a.bat", content="x\n")
    run.told("edit_file", path="a.bat", old="x", new="x\nz")
    run.told("write_file", path="a.bat", content="x\ny\r\n")
    assert filesystem.read_bytes("a.bat") == b"\xef\xbb\xbfx\ny\n"
    run.told("write_file", path="b.bat", content="x\r\ny\n")
    assert filesystem.read_bytes("b.bat") == b"x\r\ny\n"


def test_patterns_know_braces_and_names_with_brackets(filesystem: Filesystem, run: SuiteRun, wording: Wording) -> None:
    """In every tool that takes one; a name that holds what means something matches itself."""
    filesystem.write_text("src/{a,b}.ts", "x = 2\n")
    assert run.told("glob_files", pattern="{src,docs}/{desk,x}.py") == wording
    assert run.told("glob_files", pattern="**/{desk,odd[1]}.{py,ts}") == wording
    assert run.told("grep_files", pattern="x", files="**/*.{ts,md}") == wording
    assert run.told("grep_files", pattern="x", path="src/{a,b}.ts") == wording
    for pattern in ("{src/a,b}.py", "{a,b", "{a,b}" * 7):
        assert run.refused("glob_files", pattern=pattern) == wording


POEM = "a rose\nis\na ROSE\nis\na rose\n"


def never() -> bool:
    """Time without end."""
    return False


def search(files: Any, asked: tools.GrepFiles, is_over: Callable[[], bool] = never, **limits: int) -> tools.LinesFound:
    """What is found in all of these files."""
    filesystem = files if isinstance(files, InMemoryFilesystem) else InMemoryFilesystem(files)
    return Search(asked, tools.VfsLimits(**limits), is_over).run(filesystem, filesystem.glob("**"), NOTHING_LEFT_OUT)


def after(times: int) -> Callable[[], bool]:
    """Time that is over once it has been asked for so often."""
    left = iter(range(times))
    return lambda: next(left, None) is None


def test_case_counts_unless_told_otherwise() -> None:
    """Also in an alternative."""
    assert search({"a.txt": POEM}, tools.GrepFiles("rose")).matches == 2
    assert search({"a.txt": POEM}, tools.GrepFiles("x|rose", ignore_case=True)).matches == 3


def test_lines_around_a_match_are_shown_when_asked_for(wording: Wording) -> None:
    """Marked by `-`; groups that do not touch are kept apart, files too; no line is shown twice."""
    found = search({"a.txt": POEM, "b.txt": "x\na ROSE\n"}, tools.GrepFiles("ROSE", context=1))
    assert found.render() == wording
    apart = search({"a.txt": "1\n2\nx\n4\n5\n6\nx\nx\n"}, tools.GrepFiles("x", context=1))
    assert apart.lines == wording


def test_line_ends_belong_to_no_line() -> None:
    """`$` stands before LF and before CRLF; the empty line after the last line end is none."""
    found = search({"a.txt": "one\r\ntwo\r\n", "b.txt": "one"}, tools.GrepFiles("(one|^)$"))
    assert found.lines == ("a.txt:1: one", "b.txt:1: one")


@pytest.mark.parametrize("pattern, lines", [(r"(a+)+$", 0), (r"(a|aa)+$", 0), (r"(.*a){20}$", 0), (r"(\w+\s?)*$", 20)])
def test_no_pattern_makes_the_search_hang(pattern: str, lines: int) -> None:
    """Patterns that take others for ever take as long as the line is long."""
    assert search({"a.txt": f"{'a' * 5_000}!\n" * 20}, tools.GrepFiles(pattern)).matches == lines


@pytest.mark.parametrize("pattern", ["main(", r"(?=x)x", r"(a)\1", "(a{1000}){1000}", "", "a\nb"])
def test_a_pattern_that_cannot_be_searched_for_is_refused_with_the_reason(pattern: str, wording: Wording) -> None:
    """And with how to look for the text itself."""
    with raises(ToolValidationError, wording):
        matcher(pattern, ignore_case=False)


def test_a_text_that_is_escaped_as_told_is_found() -> None:
    """The cure that a refusal names works."""
    pattern = "if (a - b) > c: # x~y&z"
    told = re.split(r"(?<!\\) ", str(refusal(ToolValidationError, matcher, f"{pattern}(", ignore_case=False)))[-1]
    assert matcher(told, ignore_case=False)(f"{pattern}(")


def test_files_that_cannot_be_searched_are_named(wording: Wording) -> None:
    """By the reason; the others are searched all the same."""

    class Locked(InMemoryFilesystem):
        def read_bytes(self, path: str) -> bytes:
            if path == "locked.txt":
                return super().read_bytes("gone.txt")
            return super().read_bytes(path)

    files = {f"{number}.bin": b"x\0" for number in range(5)} | {"big.txt": b"x" * 101}
    filesystem = Locked({**files, "a.txt": "x\n", "locked.txt": "x"})
    found = search(filesystem, tools.GrepFiles("x"), file_bytes=100)
    assert found.render() == wording


def test_long_lines_are_cut_where_they_are_shown_and_searched_in_part(wording: Wording) -> None:
    """A line of any length costs no more than a long one."""
    found = search({"a.txt": f"{'x' * 20_000}y\nxy\n"}, tools.GrepFiles("x"), line_characters=5)
    assert found.render() == wording
    assert search({"a.txt": f"{'x' * 20_000}y\n"}, tools.GrepFiles("y")).render() == wording


def test_a_search_stops_when_its_time_is_over(wording: Wording) -> None:
    """Between lines; what was found until then is shown."""
    files = {"a.txt": POEM, "b.txt": POEM, "c.txt": POEM}
    assert search(files, tools.GrepFiles("ROSE"), after(7)).render() == wording
    assert search({"a.txt": POEM}, tools.GrepFiles("ROSE"), after(4)).render() == wording


def test_a_search_stops_when_it_has_found_as_much_as_it_may(wording: Wording) -> None:
    """The first line is always there; how many lines match is told as far as it was searched."""
    files = {"a.txt": "x\n" * 50, "b.txt": "x\n"}
    found = search(files, tools.GrepFiles("x"), search_characters=50)
    assert found.render() == wording
    assert sum(len(line) + 1 for line in found.lines) <= 50
    assert search({"a.txt": "x\n"}, tools.GrepFiles("x"), search_characters=1).lines == ("a.txt:1: x",)


def test_nothing_found_is_told_with_what_may_be_the_reason(wording: Wording) -> None:
    """An empty answer would leave the model in doubt."""
    assert search({"a.txt": POEM}, tools.GrepFiles("lily")).render() == wording
    assert search({"a.txt": POEM}, tools.GrepFiles(r"rose\nis")).render() == wording
    for files in ("*.py", "src/**", "**"):
        assert search({}, tools.GrepFiles("lily", files=files)).render() == wording


def test_a_link_is_not_searched(tmp_path: Path) -> None:
    """The result says so, whatever it leads to."""
    (tmp_path / "root/d").mkdir(parents=True)
    (tmp_path / "root/d/a.txt").write_text("lily\n")
    for name, target in (("folder", "d"), ("file", "d/a.txt"), ("nowhere", "x")):
        (tmp_path / "root" / name).symlink_to(target)
    with HostFilesystem(tmp_path / "root", journal=tmp_path / "journal") as filesystem:
        run = SuiteRun(tools.VfsToolsSection(filesystem))
        for path in ("file", "folder", "nowhere"):
            assert f"Not searched: {path}" in run.told("grep_files", pattern="lily", path=path)


@pytest.mark.parametrize("excerpt", [
    pytest.param(tools.FileExcerpt("a.txt", "a\nb", 1, 2, 2, line_ends="CRLF", ends_with_line_end=False), id="CRLF"),
    pytest.param(tools.FileExcerpt("a.txt", "a\rb\r", 1, 1, 1, ends_with_line_end=False), id="no line ends"),
    pytest.param(tools.FileExcerpt("a.txt", "one", 1, 1, 1), id="all lines"),
    pytest.param(tools.FileExcerpt("a.txt", "one", 1, 1, 3), id="first line"),
    pytest.param(tools.FileExcerpt("a.txt", "one", 1, 2, 3), id="first lines"),
    pytest.param(tools.FileExcerpt("a.txt", "one", 2, 3, 3), id="last lines"),
    pytest.param(tools.FileExcerpt("a.txt", "one", 2, 2, 3, 1, 4), id="start of a line"),
    pytest.param(tools.FileExcerpt("a.txt", "one", 1, 1, 3, 4), id="end of a line"),
    pytest.param(tools.FileExcerpt("a.txt", "one", 1, 3, 3, 4), id="end of a line and more lines"),
])  # fmt: skip
def test_first_line_of_an_excerpt_says_what_is_shown(excerpt: tools.FileExcerpt, wording: Wording) -> None:
    """And how to go on, if there is more; the text follows exactly."""
    assert excerpt.render() == wording


def test_what_a_walk_left_out_and_odd_names_are_told(wording: Wording) -> None:
    """No name breaks a line."""
    assert LeftOut(too_deep=2).notes() == wording
    assert path_in_line("a\n\x85b") == r'"a\n\u0085b"'


FIVE_LINES = "one\ntwo\nthree\nfour\nfive\n"


def read(text: str, *, offset: int = 1, limit: int | None = None, column: int = 1, **limits: int) -> tools.FileExcerpt:
    """The part of a text that is asked for."""
    return excerpt(text, tools.ReadFile("a.txt", offset, limit, column), tools.VfsLimits(**limits), path="a.txt")


@pytest.mark.parametrize("name", [field.name for field in fields(tools.VfsLimits)])
def test_limit_below_one_is_refused(name: str, wording: Wording) -> None:
    """A limit of nothing is a mistake; the message names it."""
    with raises(ValueError, wording):
        tools.VfsLimits(**{name: 0})


@pytest.mark.parametrize("data", [
    pytest.param(b"a\0", id="binary"), pytest.param(b"\x89PNG\r\n\x1a\n\0\0", id="image"),
    pytest.param(b"caf\xe9", id="another encoding"), pytest.param(b"\x1f\x8b", id="gzip"),
])  # fmt: skip
def test_what_is_no_text_is_told_in_words(data: bytes, wording: Wording) -> None:
    """What it is, how large, and where it stops being text."""
    assert decode_text(data) == NotText(wording)


@pytest.mark.parametrize("text, line_ends, ends_with_line_end", [
    ("a\nb\n", "LF", True), ("a\r\nb\r\n", "CRLF", True), ("a\r\nb\n", "mixed", True), ("a\r\nb", "CRLF", False),
    ("a", "LF", False),
])  # fmt: skip
def test_line_ends_are_told_and_shown_as_lf(text: str, line_ends: str, ends_with_line_end: bool) -> None:
    """The model need not reproduce CRLF, but may want to know."""
    shown = read(text)
    assert (shown.line_ends, shown.ends_with_line_end) == (line_ends, ends_with_line_end)
    assert "\r" not in shown.text


@pytest.mark.parametrize("text, where", [(FIVE_LINES, (6, 1)), (FIVE_LINES, (3, 6)), ("\n", (1, 2))])
def test_line_or_character_beyond_the_end_is_refused(text: str, where: tuple[int, int], wording: Wording) -> None:
    """The model finds a right number in the message: how many there are."""
    with raises(ToolValidationError, wording):
        read(text, offset=where[0], column=where[1])


@given(text=st.text("ab\r\n", max_size=60), lines=st.integers(1, 4), characters=st.integers(1, 9))
def test_going_on_as_told_shows_the_whole_file(text: str, lines: int, characters: int) -> None:
    """Whoever follows the results to the end has seen every character once, within the limits each time."""
    part = read(text, lines=lines, characters=characters)
    seen = part.text
    while part.last_line < part.total_lines or part.next_column is not None:
        within = part.next_column is not None
        part = read(
            text,
            offset=part.last_line if within else part.last_line + 1,
            column=part.next_column or 1,
            lines=lines,
            characters=characters,
        )
        assert len(part.text) <= characters
        assert part.last_line - part.first_line < lines
        seen += part.text if within else f"\n{part.text}"
    end = "\n" if part.total_lines and part.ends_with_line_end else ""
    assert f"{seen}{end}" == with_lf(text)


SOURCE = """\
def double(x):
    return x * 2


def triple(x):
    return x * 3
"""

SNIPPETS = st.text("ab \r\n", max_size=12)


def edit(text: str, old: str, new: str, *, replace_all: bool = False) -> EditOutcome:
    """The text after an edit."""
    return replace_exactly(text, tools.EditFile("a.py", old, new, replace_all), path="a.py")


def edit_refusal(text: str, old: str, new: str = "new\n") -> str:
    """Why an edit is refused."""
    return str(refusal(ToolValidationError, edit, text, old, new))


@pytest.mark.parametrize("text, old, new, after, lines", [
    (SOURCE, "x * 3", "3 * x", SOURCE.replace("x * 3", "3 * x"), (6,)),
    ("a\nb\na\n", "a", "x\ny", "x\ny\nb\nx\ny\n", (1, 4)), ("a\n" * 12, "a", "b", "b\n" * 12, tuple(range(1, 11))),
    ("a\nb\r\nc\nd\r\n", "c", "C\nC", "a\nb\r\nC\nC\nd\r\n", (3,)),
    ("a\nb\r\nc\nd\r\n", "b", "B\nB", "a\nB\nB\r\nc\nd\r\n", (2,)), ("a\nb\n", "a\r\nb", "A\r\nB", "A\nB\n", (1,)),
])  # fmt: skip
def test_pieces_are_replaced(text: str, old: str, new: str, after: str, lines: tuple[int, ...]) -> None:
    """At most ten lines of the new text are told, and how many pieces; new lines end as most lines."""
    outcome = edit(text, old, new, replace_all=True)
    assert (outcome.text, outcome.replacements, outcome.lines) == (after, text.count(with_lf(old)), lines)


REFUSED = {
    "more than once, with the lines": (SOURCE, "return x"), "many times, of which ten are listed": ("a\n" * 12, "a"),
    "overlapping": ("a\n\n\nb\n", "\n\n"), "empty, with how to insert": (SOURCE, ""),
    "missing, with the nearest lines": (SOURCE, "\treturn x*4"), "another indentation": (SOURCE, "\treturn x*2"),
    "other blanks": (SOURCE, "def  triple(x):\n    return x * 3\n"),
    "another indentation below blank lines": (SOURCE, "\n\n\n\tdef triple(x):\n"),
    "line ends too many": ("a\nb c\n", "\n\nb c"),
    "wrong in its second line": (SOURCE, "def triple(x):\n  return x * 3\n"),
    "wrong below blank lines": (SOURCE, "\n\ndef triple(x):\n    return 3 * x\n"),
    "beyond the end": (SOURCE, "    return x * 3\n\n"),
    "blank lines that agree": ("a\n\n\nb\nreturn value\n", "\n\nreturn values\n"), "like nothing": (SOURCE, "zzzzzzzz"),
    "white space": (SOURCE, "  \t"), "the same but for line ends, which are not the edit's": ("new\n", "new\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("text, old", REFUSED.values(), ids=REFUSED)
def test_piece_that_cannot_be_replaced_is_told_with_the_cure(text: str, old: str, wording: Wording) -> None:
    """An edit is exact or refused: which place is meant, only the model knows."""
    assert edit_refusal(text, old) == wording


def test_long_lines_are_cut_in_messages(wording: Wording) -> None:
    """A message stays short whatever the file holds."""
    told = edit_refusal(f"{'x' * 1_000}\n", f"{'x' * 999}y")
    assert len(told) < 500
    assert told == wording


@given(before=SNIPPETS, old=SNIPPETS, after=SNIPPETS, new=SNIPPETS)
def test_edit_replaces_the_piece_and_keeps_the_bytes_around_it(before: str, old: str, after: str, new: str) -> None:
    """Seen with LF the piece is replaced; what stands before and after it is the same to the byte."""
    text = f"{before}{old}{after}"
    assume(old and with_lf(old) != with_lf(new))
    assume(not before.endswith("\r") and not after.startswith("\n") and not old.endswith("\r"))
    assume(len(re.findall(f"(?={re.escape(with_lf(old))})", with_lf(text))) == 1)
    result = edit(text, old, new).text
    assert result.startswith(before)
    assert result.endswith(after)
    assert with_lf(result[len(before) : len(result) - len(after)]).count("\n") >= with_lf(new).count("\n")
    if "\r" not in f"{text}{new}":
        assert result == f"{before}{new}{after}"


@given(lines=st.lists(st.text("ab ", max_size=3), min_size=2, max_size=6), old=st.text("ab \n", min_size=1, max_size=5))
def test_file_with_one_kind_of_line_end_has_one_after_any_edit(lines: list[str], old: str) -> None:
    """No edit mixes line ends."""
    seen = "\n".join(lines)
    assume(old in seen)
    result = edit("\r\n".join(lines), old, "x\ny", replace_all=True).text
    assert with_lf(result) == seen.replace(old, "x\ny")
    assert result.count("\n") == result.count("\r\n")
