"""No file is overwritten unseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PathEscapeError, PromptValidationError, UnboundResourceError
from handrail.filesystem import FileStart, FileStat, Filesystem, InMemoryFilesystem
from handrail.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    ReadBeforeWritePolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.prompt.read_before_write import KnownFiles, all_known, path_in
from handrail.resources import Binding
from handrail.runtime import ToolCall, ToolMessage
from handrail.serde import canonical_json
from handrail.session import Session
from tests.wording import Wording

PATHS = ("a.md", "notes/b.md", "./a.md")


@dataclass(frozen=True)
class At:
    path: str


@dataclass(frozen=True)
class Put:
    path: str
    text: str
    fails: bool = False


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
    """Reads a file, or fails when there is none."""
    files = files_of(context)
    return ToolResult.ok(files.read_text(params.path)) if files.exists(params.path) else ToolResult.error("no file")


def write(params: Put, *, context: ToolContext) -> ToolResult[None]:
    """Writes a file, and fails afterwards if told to."""
    files_of(context).write_text(params.path, params.text)
    return ToolResult.error("failed after writing") if params.fails else ToolResult.ok(None, "written")


def remove(params: At, *, context: ToolContext) -> ToolResult[None]:
    """Removes what there is."""
    files_of(context).remove(params.path, recursive=True)
    return ToolResult.ok(None, "removed")


READ = Tool[At, str](name="read_file", description="Reads.", handler=read, effect="read")
WRITE = Tool[Put, None](name="write_file", description="Writes.", handler=write)
REMOVE = Tool[At, None](name="remove_file", description="Removes.", handler=remove)
POLICY = ReadBeforeWritePolicy(write_tools=("write_file", "remove_file"))


class Desk:
    """A session over files, with the policy on its tools."""

    def __init__(self, **files: str) -> None:
        self.files = InMemoryFilesystem()
        for name, text in files.items():
            self.files.write_text(f"{name}.md", text)
        section = MarkdownSection(title="A", template="a", tools=(READ, WRITE, REMOVE), policies=(POLICY,))
        prompt = Prompt(PromptTemplate(ns="t", key="t", sections=[section])).bind(resources={Filesystem: self.files})
        self.session = Session()
        self.executor = ToolExecutor(prompt=prompt, session=self.session)

    def call(self, name: str, params: At | Put) -> ToolMessage:
        """Carry one call out."""
        return self.executor.execute(ToolCall("c", name, canonical_json(params)))


def test_an_existing_file_must_have_been_read(wording: Wording) -> None:
    """The refusal says what to call first, on what; after the read the write goes through."""
    desk = Desk(a="one")
    assert desk.call("write_file", Put("a.md", "two")).content == wording
    assert desk.files.read_text("a.md") == "one"
    assert desk.call("read_file", At("./a.md")).success
    assert desk.call("write_file", Put("a.md", "two")).success


def test_a_file_that_changed_must_be_read_again(wording: Wording) -> None:
    """What somebody else has written meanwhile is not overwritten unseen."""
    desk = Desk(a="one")
    desk.call("read_file", At("a.md"))
    desk.files.write_text("a.md", "by somebody else")
    assert desk.call("write_file", Put("a.md", "two")).content == wording
    desk.call("read_file", At("a.md"))
    assert desk.call("write_file", Put("a.md", "two")).success


def test_a_file_that_was_removed_is_new() -> None:
    """Whoever makes it anew is safe, unless it has the content that was read."""
    desk = Desk(a="one")
    desk.call("read_file", At("a.md"))
    assert desk.call("remove_file", At("a.md")).success
    assert desk.call("write_file", Put("a.md", "two")).success


def test_a_file_that_is_made_anew_by_somebody_else_must_be_read() -> None:
    """Also if its folder was removed."""
    desk = Desk()
    desk.call("write_file", Put("notes/a.md", "one"))
    assert desk.call("remove_file", At("notes")).success
    desk.files.write_text("notes/a.md", "by somebody else")
    assert not desk.call("write_file", Put("notes/a.md", "two")).success


def test_what_was_shown_whole_is_known_wherever_it_was_moved() -> None:
    """A file, or one in a folder; what was shown in part is read again."""
    desk = Desk(a="one", b="two")
    desk.call("read_file", At("a.md"))
    desk.files.move("a.md", "notes/a.md")
    assert desk.call("write_file", Put("notes/a.md", "three")).success
    desk.files.move("b.md", "notes/b.md")
    assert not desk.call("write_file", Put("notes/b.md", "three")).success


def test_a_folder_that_was_looked_at_leaves_what_is_known() -> None:
    """Nothing was read of what it holds."""
    desk = Desk()
    desk.call("write_file", Put("notes/a.md", "one"))
    context = ToolContext.of(session=desk.session, resources={Filesystem: desk.files})
    POLICY.on_result(READ, At("notes"), ToolResult.ok(""), context=context)
    assert decide(Put("notes/a.md", "two"), context).allowed


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
    assert Desk().call("write_file", Put("../a.md", "one")).content == wording


def decide(params: object, context: ToolContext) -> PolicyDecision:
    """What the policy says to a write."""
    return POLICY.check(WRITE, params, context=context)


def test_without_files_or_path_a_write_cannot_be_judged(wording: Wording) -> None:
    """A policy that cannot know refuses; that nothing is bound, it tells the developer."""
    with pytest.raises(UnboundResourceError) as raised:
        decide(Put("a.md", ""), ToolContext.of())
    assert str(raised.value) == wording
    no_files: Any = Binding.instance(Filesystem, None)
    assert decide(Put("a.md", ""), ToolContext.of(resources={Filesystem: no_files})).reason == wording
    context = ToolContext.of(resources={Filesystem: InMemoryFilesystem()})
    assert decide(Move("a", "b"), context).reason == wording


def test_without_files_a_result_is_nothing_to_remember() -> None:
    """Neither is the result of a tool that the policy does not know."""
    context = ToolContext.of()
    POLICY.on_result(READ, At("a.md"), ToolResult.ok(""), context=context)
    assert not context.session[KnownFiles].all()


def test_a_call_may_be_about_several_files(wording: Wording) -> None:
    """Each of them must be known; all that are not are named."""

    def both(params: Move) -> Sequence[str]:
        return (params.source, params.target)

    policy = ReadBeforeWritePolicy(find_paths=both)
    files = InMemoryFilesystem()
    for path in ("a.md", "b.md"):
        files.write_text(path, "text")
    context = ToolContext.of(resources={Filesystem: files})
    assert policy.check(WRITE, Move("a.md", "b.md"), context=context).reason == wording
    policy.on_result(READ, Move("a.md", "b.md"), ToolResult.ok(""), context=context)
    assert policy.check(WRITE, Move("a.md", "b.md"), context=context).allowed


def test_the_path_is_in_the_field_that_is_named_so() -> None:
    """`path`, or else `file_path`."""
    assert (path_in(At("a")), path_in(ByName("b")), path_in(Move("a", "b"))) == ("a", "b", None)


def test_tools_are_named_in_a_sequence(wording: Wording) -> None:
    """A string would be taken for its letters, and an empty sequence would hold nothing."""
    wrong: Any = "read_file"
    with pytest.raises(PromptValidationError) as caught:
        ReadBeforeWritePolicy(read_tools=wrong)
    assert str(caught.value) == wording
    with pytest.raises(PromptValidationError) as raised:
        ReadBeforeWritePolicy(write_tools=())
    assert str(raised.value) == wording


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
        self.desk = Desk(a="start")
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
        assert self.desk.call("write_file", Put(path, text, fails)).success is (allowed and not fails)
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
