"""Files are not overwritten unseen: the policy, and the knowledge of files that a session records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PathEscapeError, PromptValidationError, UnboundResourceError
from handrail.filesystem import FileStart, FileStat, Filesystem, InMemoryFilesystem
from handrail.prompt import (
    FileShown,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    ReadBeforeWritePolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.prompt.read_before_write import (
    FileKnown,
    KnownFiles,
    all_known,
    find_known,
    known_after,
    path_in,
    remember,
)
from handrail.resources import Binding
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.serde import canonical_json
from tests.kit import raises
from tests.wording import Wording

PATHS = ("a.md", "notes/b.md", "./a.md")
_NUMBERS = count()


@dataclass(frozen=True)
class At:
    path: str
    text: str = ""
    fails: bool = False
    first: int = 1
    last: int = 3


@dataclass(frozen=True)
class Move:
    source: str
    target: str


@dataclass(frozen=True)
class ByName:
    file_path: str


def files_of(context: ToolContext) -> Filesystem:
    """The bound filesystem."""
    return context.resources.get(Filesystem)


def read(params: At, *, context: ToolContext) -> ToolResult[str]:
    """Reads a file, or fails when there is none; it does not say how much it shows."""
    files = files_of(context)
    return ToolResult.ok(files.read_text(params.path)) if files.exists(params.path) else ToolResult.error("no file")


def show_lines(params: At, *, context: ToolContext) -> ToolResult[str]:
    """Shows some lines, and says which."""
    lines = files_of(context).read_text(params.path).splitlines()
    part = FileShown(params.path, "", "part", params.first, params.last, len(lines))
    return ToolResult.ok("\n".join(lines[params.first - 1 : params.last]), files_shown=(part,))


def search(params: At, *, context: ToolContext) -> ToolResult[str]:
    """Shows nothing of any file, and says so."""
    return ToolResult.ok(f"{params.path} in {files_of(context)}", files_shown=())


def write(params: At, *, context: ToolContext) -> ToolResult[None]:
    """Writes a file, and fails afterwards if told to."""
    files_of(context).write_text(params.path, params.text)
    return ToolResult.error("failed after writing") if params.fails else ToolResult.ok(None, "written")


def remove(params: At, *, context: ToolContext) -> ToolResult[None]:
    """Removes what there is."""
    files_of(context).remove(params.path, recursive=True)
    return ToolResult.ok(None, "removed")


def made(name: str, handler: Any, **options: Any) -> Tool[At, Any]:
    """A tool over paths."""
    return Tool[At, Any](name=name, description="At work.", handler=handler, **options)


READ, WRITE = made("read_file", read, effect="read"), made("write_file", write)
REMOVE = made("remove_file", remove)
POLICY = ReadBeforeWritePolicy(write_tools=("write_file", "remove_file"))
TOOLS = (
    *(made("read", show_lines, effect="read"), made("search", search, effect="read")),
    *(made("cat", read, effect="read"), made("put", write), made("patch", write)),
)
LINES_POLICY = ReadBeforeWritePolicy(
    read_tools=("read", "search", "cat"), write_tools=("put", "patch"), edit_tools=("patch",)
)
LINES = "one\ntwo\nthree\n"


class Desk:
    """A session over files, with the policy on its tools."""

    def __init__(
        self,
        files: Mapping[str, str] = MappingProxyType({}),
        session: Session | None = None,
        tools: Sequence[Tool[Any, Any]] = (READ, WRITE, REMOVE),
        policy: ReadBeforeWritePolicy = POLICY,
    ) -> None:
        self.files = InMemoryFilesystem(files)
        section = MarkdownSection(title="A", template="a", tools=tools, policies=(policy,))
        prompt = Prompt(PromptTemplate(ns="t", key="t", sections=[section])).bind(resources={Filesystem: self.files})
        self.session = Session() if session is None else session
        self.executor = ToolExecutor(prompt=prompt, session=self.session)

    def call(self, name: str, params: object) -> ToolMessage:
        """Carry one call out."""
        return self.executor.execute(ToolCall(f"call-{next(_NUMBERS)}", name, canonical_json(params)))


def test_an_existing_file_must_have_been_read(wording: Wording) -> None:
    """The refusal says what to call first, on what; once read, it is written, unless somebody else has changed it."""
    desk = Desk({"a.md": "one"})
    assert desk.call("write_file", At("a.md", "two")).content == wording
    assert desk.files.read_text("a.md") == "one"
    assert desk.call("read_file", At("./a.md")).success
    assert desk.call("write_file", At("a.md", "two")).success
    desk.files.write_text("a.md", "by somebody else")
    assert desk.call("write_file", At("a.md", "two")).content == wording


def test_a_file_that_was_removed_is_new() -> None:
    """One that is made anew by somebody else must be read, also if its folder was removed."""
    desk = Desk({"a.md": "one"})
    desk.call("read_file", At("a.md"))
    assert desk.call("remove_file", At("a.md")).success
    assert desk.call("write_file", At("a.md", "two")).success
    desk.call("write_file", At("notes/a.md", "one"))
    assert desk.call("remove_file", At("notes")).success
    desk.files.write_text("notes/a.md", "by somebody else")
    assert not desk.call("write_file", At("notes/a.md", "two")).success


def test_what_was_shown_whole_is_known_wherever_it_was_moved() -> None:
    """A file, or one in a folder; what was shown in part is read again."""
    desk = Desk({"a.md": "one", "b.md": "two"})
    desk.call("read_file", At("a.md"))
    desk.files.move("a.md", "notes/a.md")
    assert desk.call("write_file", At("notes/a.md", "three")).success
    desk.files.move("b.md", "notes/b.md")
    assert not desk.call("write_file", At("notes/b.md", "three")).success


def test_a_link_that_leads_to_no_file_is_not_this_policys_affair(wording: Wording) -> None:
    """There is no content that could be lost; any other fault is told."""

    class Linked(InMemoryFilesystem):
        def stat(self, path: str) -> FileStat:
            return FileStat(path, "symlink", 0) if path == "link" else super().stat(path)

        def read_start(self, path: str, most_bytes: int) -> FileStart:
            raise PathEscapeError("the path leads out of the root", path=path)

    context = ToolContext.of(resources={Filesystem: Linked({"a.md": ""})})
    assert POLICY.check(REMOVE, At("link"), context=context).allowed
    assert POLICY.check(REMOVE, At("a.md"), context=context).reason == wording


def test_a_folder_is_not_this_policys_affair() -> None:
    """Only contents can be overwritten unseen."""
    desk = Desk()
    desk.files.make_folder("notes")
    assert desk.call("remove_file", At("notes")).success


def test_a_path_that_is_none_is_refused_with_the_reason(wording: Wording) -> None:
    """What the filesystem says of the path, the model reads."""
    assert Desk().call("write_file", At("../a.md", "one")).content == wording


def decide(params: object, context: ToolContext) -> PolicyDecision:
    """What the policy says to a write."""
    return POLICY.check(WRITE, params, context=context)


def test_without_files_or_path_a_write_cannot_be_judged(wording: Wording) -> None:
    """A policy that cannot know refuses; that nothing is bound, it tells the developer."""
    with raises(UnboundResourceError, wording):
        decide(At("a.md", ""), ToolContext.of())
    no_files: Any = Binding.instance(Filesystem, None)
    assert decide(At("a.md", ""), ToolContext.of(resources={Filesystem: no_files})).reason == wording
    context = ToolContext.of(resources={Filesystem: InMemoryFilesystem()})
    assert decide(Move("a", "b"), context).reason == wording


def test_a_call_may_be_about_several_files(wording: Wording) -> None:
    """Each of them must be known; all that are not are named."""

    def both(params: Move) -> Sequence[str]:
        return (params.source, params.target)

    policy = ReadBeforeWritePolicy(find_paths=both)
    context = ToolContext.of(resources={Filesystem: InMemoryFilesystem({"a.md": "text", "b.md": "text"})})
    assert policy.check(WRITE, Move("a.md", "b.md"), context=context).reason == wording
    policy.on_result(READ, Move("a.md", "b.md"), ToolResult.ok(""), context=context)
    assert policy.check(WRITE, Move("a.md", "b.md"), context=context).allowed


def test_the_path_is_in_the_field_that_is_named_so() -> None:
    """`path`, or else `file_path`."""
    assert (path_in(At("a")), path_in(ByName("b")), path_in(Move("a", "b"))) == ("a", "b", None)


def test_tools_are_named_in_a_sequence(wording: Wording) -> None:
    """A string would be taken for its letters, and an empty sequence would hold nothing."""
    wrong: Any = "read_file"
    with raises(PromptValidationError, wording):
        ReadBeforeWritePolicy(read_tools=wrong)
    with raises(PromptValidationError, wording):
        ReadBeforeWritePolicy(write_tools=())


def test_a_policy_that_holds_back_needs_a_tool_to_read_with(wording: Wording) -> None:
    """Otherwise no existing file could ever be written; where it holds nothing back, it may stand anywhere."""
    policy = ReadBeforeWritePolicy()
    assert policy.scope_fault(frozenset({"write_file", "read_file"})) is None
    assert policy.scope_fault(frozenset({"lookup"})) is None
    assert policy.scope_fault(frozenset({"write_file", "edit_file"})) == wording


class Overwriting(RuleBasedStateMachine):
    """A model that reads, writes and fails, and somebody else who changes files: against a plain picture of it."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk({"a.md": "start"})
        self.seen: dict[str, str] = {}

    def _there(self, path: str) -> str | None:
        return self.desk.files.read_text(path) if self.desk.files.exists(path) else None

    @rule(path=st.sampled_from(PATHS))
    def read(self, path: str) -> None:
        there = self._there(path)
        assert self.desk.call("read_file", At(path)).success is (there is not None)
        if there is not None:
            self.seen[path.removeprefix("./")] = there

    @rule(path=st.sampled_from(PATHS), text=st.sampled_from("xyz"), fails=st.booleans())
    def write(self, path: str, text: str, fails: bool) -> None:
        there = self._there(path)
        seen = self.seen.get(path.removeprefix("./"))
        allowed = there is None or seen == there or (seen is None and there in self.seen.values())
        assert self.desk.call("write_file", At(path, text, fails=fails)).success is (allowed and not fails)
        if allowed and not fails:
            self.seen[path.removeprefix("./")] = text
        assert self._there(path) == (text if allowed and not fails else there)

    @rule(path=st.sampled_from(PATHS), text=st.sampled_from("xyz"))
    def change_behind_its_back(self, path: str, text: str) -> None:
        self.desk.files.write_text(path, text)

    @invariant()
    def it_knows_what_it_has_seen(self) -> None:
        assert set(all_known(self.desk.session[KnownFiles])) == set(self.seen)


TestOverwriting = Overwriting.TestCase
TestOverwriting.settings = settings(max_examples=40, stateful_step_count=25)


def lines_desk(session: Session | None = None) -> Desk:
    """Calls of these tools over three lines."""
    return Desk({"a.md": LINES}, session, TOOLS, LINES_POLICY)


def test_tool_says_how_much_it_has_shown(wording: Wording) -> None:
    """Lines that add up to the whole are the whole; any of them is enough for an edit."""
    desk = lines_desk()
    assert desk.call("read", At("a.md", last=2)).success
    assert desk.call("put", At("a.md", "new")).content == wording
    assert desk.call("patch", At("a.md", LINES.upper())).success
    assert desk.call("read", At("a.md", last=1)).success
    assert not desk.call("put", At("a.md", "new")).success
    assert desk.call("read", At("a.md", first=2)).success
    assert desk.call("put", At("a.md", "new")).success


def test_tool_that_does_not_say_has_shown_the_whole_file() -> None:
    """It was given as one that reads files; one that says it has shown nothing has not."""
    desk = lines_desk()
    assert desk.call("search", At("a.md")).success
    assert not desk.call("patch", At("a.md", "new")).success
    assert desk.call("cat", At("a.md")).success
    assert desk.call("put", At("a.md", "new")).success


@pytest.mark.parametrize("first, last, total", [(0, 1, 1), (2, 1, 3), (1, 4, 3), (1, 1, None)])
def test_part_that_is_none_is_refused(first: int, last: int, total: int | None, wording: Wording) -> None:
    """The message says what to give; without the number of lines nothing would say whether it is the whole file."""
    with raises(ValueError, wording):
        FileShown("a.md", shown="part", first_line=first, last_line=last, total_lines=total)


def lines(first: int, last: int, column: int = 1, next_column: int | None = None) -> FileShown:
    """Some of ten lines."""
    return FileShown("a", "1", "part", first, last, 10, column, next_column)


def test_parts_add_up_from_the_start_on() -> None:
    """A later part counts once all before it was shown; of a line also by its characters."""
    known = known_after(None, lines(4, 5), "1")
    assert known == FileKnown("1", "part")
    known = known_after(known, lines(1, 3, next_column=8), "1")
    assert known.end == (3, 8)
    known = known_after(known, lines(3, 3, column=8), "1")
    assert known.end == (4, 1)
    assert known_after(known, lines(2, 10), "2").end == (1, 1)
    assert known_after(known, lines(2, 2), "1").end == (4, 1)
    assert known_after(known, lines(4, 10), "1") == FileKnown("1")


def test_what_is_known_whole_stays_so() -> None:
    """A part, or a description, takes nothing away; of another content it is all that is known."""
    described = FileShown("a", "1", "nothing")
    for shown in (lines(1, 1), described):
        assert known_after(FileKnown("1"), shown, "1") == FileKnown("1")
    part = known_after(None, lines(1, 1), "1")
    assert known_after(part, described, "1") == part
    assert known_after(part, described, "2") == FileKnown("2", "nothing")
    assert known_after(FileKnown("1", "nothing"), lines(1, 1), "1") == part


KNOWN_PATHS = ("a", "a/b", "ab")
ITEMS = st.builds(
    KnownFiles, st.dictionaries(st.sampled_from(KNOWN_PATHS), st.builds(FileKnown, st.sampled_from("123")), max_size=2)
)


@given(st.lists(ITEMS, max_size=12))
def test_what_is_looked_up_is_what_all_items_say(items: list[KnownFiles]) -> None:
    """From the newest back, as from the oldest on."""
    known = all_known(items)
    for path in KNOWN_PATHS:
        assert find_known(items, path) == known.get(path)


def test_slice_holds_a_few_facts_for_each_file() -> None:
    """However often files are read."""
    session = Session()
    for number in range(5_000):
        remember(session, KnownFiles({f"{number % 20}": FileKnown(f"{number}")}))
    assert len(session[KnownFiles]) < 128
    assert {path: known.identity for path, known in all_known(session[KnownFiles]).items()} == {
        f"{number % 20}": f"{number}" for number in range(4_980, 5_000)
    }


def test_each_read_stores_what_it_has_changed(tmp_path: Path) -> None:
    """The thousandth read writes no more than the first."""
    with store.open(f"sqlite:///{tmp_path}/desk.db") as kept, Session.open(kept, "desk") as session:
        desk = lines_desk(session)
        for number in range(1_000):
            desk.files.write_text(f"{number:03}.md", LINES)
            assert desk.call("cat", At(f"{number:03}.md")).success
        sizes = {len(each.items) for each in kept.entries("desk", type_name="handrail.files_known")}
        assert len(sizes) == 1
        assert sizes.pop() < 200
        assert len(all_known(session[KnownFiles])) == 1_000


def test_what_is_known_is_there_in_a_fork_and_when_the_session_is_opened_again(tmp_path: Path) -> None:
    """Files that were shown in part, too."""
    with store.open(f"sqlite:///{tmp_path}/desk.db") as kept:
        with Session.open(kept, "desk") as session:
            desk = lines_desk(session)
            assert desk.call("read", At("a.md", last=2)).success
            with session.fork(session_id="fork") as fork:
                forked = lines_desk(fork)
                assert not forked.call("put", At("a.md", "x")).success
                assert forked.call("patch", At("a.md", "x")).success
        with Session.open(kept, "desk") as session:
            again = lines_desk(session)
            assert again.call("read", At("a.md", first=3)).success
            assert again.call("put", At("a.md", "x")).success


@dataclass(frozen=True)
class PathAt:
    path: Path


def test_paths_of_pathlib_are_held_back_and_read(wording: Wording) -> None:
    """As those that are text."""
    context = ToolContext.of(resources={Filesystem: InMemoryFilesystem({"a.md": "old"})})
    assert decide(PathAt(Path("a.md")), context).reason == wording
    POLICY.on_result(READ, PathAt(Path("a.md")), ToolResult.ok(""), context=context)
    assert decide(PathAt(Path("a.md")), context).allowed
