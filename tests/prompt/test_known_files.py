"""What a session remembers of files: how much of each was shown, stored as what each call has changed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import (
    FileShown,
    MarkdownSection,
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
    known_after_edit,
    remember,
)
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.serde import canonical_json
from handrail.session.persistence.stored_types import stored_type
from tests.wording import Wording

_NUMBERS = count()
LINES = "one\ntwo\nthree\n"


@dataclass(frozen=True)
class At:
    path: str
    text: str = ""
    first: int = 1
    last: int = 3


def read(params: At, *, context: ToolContext) -> ToolResult[str]:
    """Shows some lines, and says which."""
    files = context.resources.get(Filesystem)
    lines = files.read_text(params.path).splitlines()
    part = FileShown(params.path, "", "part", params.first, params.last, len(lines))
    return ToolResult.ok("\n".join(lines[params.first - 1 : params.last]), files_shown=(part,))


def search(params: At, *, context: ToolContext) -> ToolResult[str]:
    """Shows nothing of any file, and says so."""
    return ToolResult.ok(f"{params.path} in {context.resources.get(Filesystem)}", files_shown=())


def cat(params: At, *, context: ToolContext) -> ToolResult[str]:
    """Shows a file, and does not say how much of it."""
    return ToolResult.ok(context.resources.get(Filesystem).read_text(params.path))


def write(params: At, *, context: ToolContext) -> ToolResult[None]:
    """Writes a file, or fails after that."""
    context.resources.get(Filesystem).write_text(params.path, params.text)
    return ToolResult.error("failed") if params.text == "bad" else ToolResult.ok(None, "written")


TOOLS = (
    Tool[At, str](name="read", description="Reads.", handler=read, effect="read"),
    Tool[At, str](name="search", description="Searches.", handler=search, effect="read"),
    Tool[At, str](name="cat", description="Reads.", handler=cat, effect="read"),
    Tool[At, None](name="put", description="Writes.", handler=write),
    Tool[At, None](name="patch", description="Edits.", handler=write),
)
POLICY = ReadBeforeWritePolicy(
    read_tools=("read", "search", "cat"),
    write_tools=("put", "patch"),
    edit_tools=("patch",),
)


class Desk:
    """Calls of the tools over three lines, under the policy."""

    def __init__(self, session: Session | None = None, policy: ReadBeforeWritePolicy = POLICY) -> None:
        self.files = InMemoryFilesystem({"a.md": LINES})
        section = MarkdownSection(title="A", template="a", tools=TOOLS, policies=(policy,))
        prompt = Prompt(PromptTemplate(ns="t", key="t", sections=[section])).bind(resources={Filesystem: self.files})
        self.executor = ToolExecutor(prompt=prompt, session=Session() if session is None else session)

    def call(self, name: str, params: At) -> ToolMessage:
        """Carry one call out."""
        return self.executor.execute(ToolCall(f"call-{next(_NUMBERS)}", name, canonical_json(params)))


def test_tool_says_how_much_it_has_shown(wording: Wording) -> None:
    """Lines that add up to the whole are the whole; any of them is enough for an edit."""
    desk = Desk()
    assert desk.call("read", At("a.md", last=2)).success
    assert desk.call("put", At("a.md", "new")).content == wording
    assert desk.call("patch", At("a.md", LINES.upper())).success
    assert desk.call("read", At("a.md", last=1)).success
    assert not desk.call("put", At("a.md", "new")).success
    assert desk.call("read", At("a.md", first=2)).success
    assert desk.call("put", At("a.md", "new")).success


def test_tool_that_does_not_say_has_shown_the_whole_file() -> None:
    """It was given as one that reads files; one that says it has shown nothing has not."""
    desk = Desk()
    assert desk.call("search", At("a.md")).success
    assert not desk.call("patch", At("a.md", "new")).success
    assert desk.call("cat", At("a.md")).success
    assert desk.call("put", At("a.md", "new")).success


def test_file_that_an_edit_has_made_is_known_whole() -> None:
    """Nothing was there, so all of it is what the model wrote."""
    desk = Desk()
    assert desk.call("patch", At("new.md", "new")).success
    assert desk.call("put", At("new.md", "newer")).success


@pytest.mark.parametrize("first, last, total", [(0, 1, 1), (2, 1, 3), (1, 4, 3), (1, 1, None)])
def test_part_that_is_none_is_refused(first: int, last: int, total: int | None, wording: Wording) -> None:
    """The message says what to give; without the number of lines nothing would say whether it is the whole file."""
    with pytest.raises(ValueError) as raised:
        FileShown("a.md", shown="part", first_line=first, last_line=last, total_lines=total)
    assert str(raised.value) == wording


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


def test_edit_leaves_unseen_what_was_not_seen() -> None:
    """Text that was never shown may stand where shown lines were."""
    assert known_after_edit(FileKnown("1"), "2") == known_after_edit(None, "2") == FileKnown("2")
    assert known_after_edit(known_after(None, lines(1, 9), "1"), "2") == FileKnown("2", "part")


PATHS = ("a", "a/b", "ab")
ITEMS = st.builds(
    KnownFiles, st.dictionaries(st.sampled_from(PATHS), st.builds(FileKnown, st.sampled_from("123")), max_size=2)
)


@given(st.lists(ITEMS, max_size=12))
def test_what_is_looked_up_is_what_all_items_say(items: list[KnownFiles]) -> None:
    """From the newest back, as from the oldest on."""
    known = all_known(items)
    for path in PATHS:
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


def test_item_comes_back_from_a_store() -> None:
    """As it was."""
    item = KnownFiles({"a": FileKnown("1"), "b": FileKnown("2", "nothing"), "c": FileKnown("3", "part", (2, 5))})
    stored = stored_type(KnownFiles)
    assert stored.load(stored.dump((item,)), stored.version) == [item]


def test_each_read_stores_what_it_has_changed(tmp_path: Path) -> None:
    """The thousandth read writes no more than the first."""
    with store.open(f"sqlite:///{tmp_path}/desk.db") as kept, Session.open(kept, "desk") as session:
        desk = Desk(session)
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
            desk = Desk(session)
            assert desk.call("read", At("a.md", last=2)).success
            with session.fork(session_id="fork") as fork:
                forked = Desk(fork)
                assert not forked.call("put", At("a.md", "x")).success
                assert forked.call("patch", At("a.md", "x")).success
        with Session.open(kept, "desk") as session:
            again = Desk(session)
            assert again.call("read", At("a.md", first=3)).success
            assert again.call("put", At("a.md", "x")).success
