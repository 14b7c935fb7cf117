"""What is kept of long results: by whom, how much, for how long, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contrib.tools import FilesFound, KeptText, ReadKept, VfsLimits, VfsToolsSection
from handrail.contrib.tools.vfs.overflow import (
    MAX_OVERFLOWS,
    kept_text,
    read_overflow,
    register_overflow,
    store_overflow,
)
from handrail.errors import ToolValidationError
from handrail.filesystem import HostFilesystem, InMemoryFilesystem, PathFilter
from handrail.filesystem.path_filters import ExcludedPaths
from handrail.session import Session
from tests.contrib.suites import SuiteRun
from tests.wording import Wording

LIMITS = VfsLimits()


@dataclass(frozen=True)
class Long:
    """The value of a result that may have been cut."""

    kept: KeptText | None


def session_with(*texts: str) -> Session:
    """A session that has kept these, one after the other."""
    session = Session()
    register_overflow(session, Long)
    for text in texts:
        session.dispatch(Long(store_overflow("grep_files", text.split("\n"), (), LIMITS)))
    return session


def many(count: int) -> InMemoryFilesystem:
    """So many files."""
    return InMemoryFilesystem({f"f{number:03}.md": "TODO\n" for number in range(count)})


def test_the_same_text_has_the_same_key_and_is_kept_once() -> None:
    """A search that is repeated takes no more room; it counts as the newest."""
    session = session_with("a", "b", "a")
    assert [kept.text for kept in session[KeptText]] == ["b\n", "a\n"]


def test_a_result_that_was_shown_whole_is_not_kept() -> None:
    """There is nothing to read on in."""
    session = session_with("a")
    session.dispatch(Long(None))
    assert len(session[KeptText]) == 1


@given(st.lists(st.integers(0, 40), max_size=60))
def test_no_more_than_a_few_texts_are_kept_and_the_newest_among_them(texts: list[int]) -> None:
    """Whatever is searched for, the session stays small."""
    session = session_with(*map(str, texts))
    kept = [kept.text.rstrip("\n") for kept in session[KeptText]]
    assert len(kept) == len(set(kept)) <= MAX_OVERFLOWS
    assert kept[-1:] == [str(text) for text in texts[-1:]]
    if len(set(texts)) <= MAX_OVERFLOWS:
        assert set(kept) == set(map(str, texts))


def test_the_older_half_is_dropped_when_there_would_be_too_many() -> None:
    """Half at a time, so that a full slice is not written anew with each search."""
    session = session_with(*map(str, range(MAX_OVERFLOWS + 1)))
    assert [kept.text for kept in session[KeptText]] == [f"{n}\n" for n in range(MAX_OVERFLOWS // 2, MAX_OVERFLOWS + 1)]


@pytest.mark.parametrize("most, text", [(100, "one\ntwo\n"), (8, "one\ntwo\n"), (7, "one\n"), (1, "one\n")])
def test_what_is_kept_are_whole_lines_and_one_at_least(most: int, text: str) -> None:
    """A text that is too long is cut at its end."""
    assert store_overflow("grep_files", ["one", "two"], (), VfsLimits(kept_characters=most)).text == text


def test_a_part_is_read_like_a_part_of_a_file(wording: Wording) -> None:
    """The first line says which part it is."""
    session = session_with("one\ntwo\nthree")
    key = session[KeptText][0].key
    assert read_overflow(kept_text(session, key), ReadKept(key, offset=2, limit=1), LIMITS).render() == wording
    with pytest.raises(ToolValidationError) as raised:
        read_overflow(kept_text(session, key), ReadKept(key, offset=4), LIMITS)
    assert str(raised.value) == wording


def test_a_key_that_is_none_is_refused_with_those_there_are(wording: Wording) -> None:
    """Older texts are dropped; then the search must be made again."""
    with pytest.raises(ToolValidationError) as caught:
        kept_text(session_with("a", "b"), "nope")
    assert str(caught.value) == wording
    with pytest.raises(ToolValidationError) as caught:
        kept_text(Session(), "nope")
    assert str(caught.value) == wording


def test_a_long_result_can_be_read_to_its_end(wording: Wording) -> None:
    """The cut result tells key and offset; going on as told shows the rest, and the whole is the whole."""
    run = SuiteRun(VfsToolsSection(many(7), limits=VfsLimits(entries=3, lines=3)))
    for tool, pattern in (("glob_files", "*.md"), ("grep_files", "TODO")):
        told = run.told(tool, pattern=pattern)
        kept = run.session[KeptText].all()[-1]
        assert kept.tool == tool
        assert told == wording
        shown = told.split("\n")[1:]
        assert len(shown) == 3
        for offset in (4, 7):
            shown += run.told("read_kept", key=kept.key, offset=offset).split("\n")[1:]
        assert [line[: len("f000.md")] for line in shown] == [f"f{number:03}.md" for number in range(7)]


def test_a_search_that_is_undone_has_kept_nothing() -> None:
    """What is kept is part of the call."""
    run = SuiteRun(VfsToolsSection(many(3), limits=VfsLimits(entries=1)))

    def refuse(_event: object) -> None:
        raise RuntimeError("no")

    subscription = run.session.dispatcher.subscribe(FilesFound, refuse)
    run.refused("glob_files", pattern="*.md")
    assert not run.session[KeptText].all()
    subscription.close()
    run.told("glob_files", pattern="*.md")
    assert len(run.session[KeptText]) == 1


def test_what_is_kept_comes_back_with_the_session() -> None:
    """It is plain data in a slice."""
    session = session_with("one\ntwo")
    again = Session.from_json(session.to_json(), types=[KeptText])
    assert again[KeptText].all() == session[KeptText].all()


# ------------------------------------------------------------------------------------------ what may be shown of a text

LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""What one program or another takes for the end of a line."""


def shown_of(files: InMemoryFilesystem, path_filter: PathFilter, *, pattern: str = "SECRET|plain") -> str:
    """What is read on in a kept search, by tools with a filter that the search did not have."""
    session = Session()
    before = SuiteRun(VfsToolsSection(files, limits=VfsLimits(lines=1)), session=session)
    before.told("grep_files", pattern=pattern)
    before.told("glob_files", pattern="**")
    after = SuiteRun(VfsToolsSection(files.filtered(path_filter)), session=session)
    return "\n".join(after.told("read_kept", key=kept.key) for kept in session[KeptText])


@pytest.mark.parametrize("end", LINE_ENDS)
def test_no_piece_of_a_line_about_a_hidden_file_is_shown(end: str) -> None:
    """Whatever stands in the line, or in the name of the file."""
    files = InMemoryFilesystem(
        {".env": f"plain{end}SECRET{end}SECRET\n", f"a{end}SECRET.key": "plain SECRET\n", "b.md": "plain\n"}
    )
    told = shown_of(files, PathFilter(reading=(ExcludedPaths((".env", "*.key")),)))
    assert "SECRET" not in told
    assert "b.md:1: plain" in told


@given(st.text(st.sampled_from(f"a-/ {LINE_ENDS}"), min_size=1, max_size=6).filter(lambda name: name.strip("/") != ""))
def test_name_of_a_file_stays_in_its_line(name: str) -> None:
    """And cannot begin one that looks like another file's."""
    files = InMemoryFilesystem({f"x{name.strip('/')}": "plain\n", "y": "plain\n"})
    run = SuiteRun(VfsToolsSection(files))
    found = run.told("grep_files", pattern="plain")
    assert len(found.splitlines()) == 3
    assert len(run.told("glob_files", pattern="**").splitlines()) == 1 + len(files.glob("**"))


@pytest.mark.parametrize("kind", ["listing", "searching", "reading"])
def test_what_is_left_out_of_searches_is_not_shown_of_older_ones(kind: str) -> None:
    """As after a new rule that asks."""
    files = InMemoryFilesystem({"ask.md": "SECRET\n", "b.md": "plain\n"})
    told = shown_of(files, PathFilter(**{kind: (ExcludedPaths(("ask.md",)),)}))
    assert ("SECRET" in told, "ask.md" in told, "b.md:1: plain" in told) == (False, False, True)


def test_what_a_link_leads_to_counts_for_older_searches(tmp_path: Path, wording: Wording) -> None:
    """A search that named the link has shown it."""
    root = tmp_path / "root"
    root.mkdir()
    (root / ".env").write_text("SECRET\n" * 9)
    (root / "l").symlink_to(".env")
    (root / "gone").symlink_to("../out")
    with HostFilesystem(root, journal=tmp_path / "journal") as files:
        session = Session()
        limits = VfsLimits(lines=1, entries=1)
        before = SuiteRun(VfsToolsSection(files, limits=limits), session=session)
        before.told("grep_files", pattern="SECRET", path="l")
        before.told("glob_files", pattern="*")
        for exclude in ((), (".env",)):
            after = SuiteRun(VfsToolsSection(files, exclude=exclude), session=session)
            lines, listed = (after.told("read_kept", key=kept.key) for kept in session[KeptText])
            assert ("SECRET" in lines) is (not exclude)
            assert listed == wording


def test_text_of_another_toolset_is_refused(wording: Wording) -> None:
    """Its files may be others of the same names; the tool to use is named."""
    session = Session()
    register_overflow(session, Long)
    session.dispatch(Long(store_overflow("notes_grep_files", ["a: 1", "b: 1"], ("a", "b"), LIMITS)))
    (kept,) = session[KeptText]
    assert kept.reading_on(1) == wording
    assert kept_text(session, kept.key, reader="notes_read_kept") is kept
    with pytest.raises(ToolValidationError) as raised:
        kept_text(session, kept.key)
    assert str(raised.value) == wording
    assert store_overflow("grep_files", ["a: 1", "b: 1"], ("a", "b"), LIMITS).key != kept.key
