"""What is known of a file goes with it when it is moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import ReadBeforeWritePolicy, Tool, ToolContext, ToolResult
from handrail.prompt.read_before_write import FileKnown, KnownFiles, all_known, known_of
from tests.wording import Wording


@dataclass(frozen=True)
class At:
    path: str


@dataclass(frozen=True)
class NewPath:
    path: str
    new_path: str


MOVE = Tool[NewPath, None](name="move_file", description="Moves.")
POLICY = ReadBeforeWritePolicy()


def moved(known: dict[str, str], params: object, policy: ReadBeforeWritePolicy = POLICY) -> dict[str, str]:
    """What is known after a move."""
    context = ToolContext.of(resources={Filesystem: InMemoryFilesystem()})
    context.session[KnownFiles].append(KnownFiles({path: FileKnown(identity) for path, identity in known.items()}))
    assert policy.check(MOVE, params, context=context).allowed
    policy.on_result(MOVE, params, ToolResult.ok(None), context=context)
    items = context.session[KnownFiles]
    found = {path: known.identity for path, known in all_known(items).items()}
    for path in {*known, *found}:
        assert (None if path not in found else FileKnown(found[path])) == known_of(items, path)
    return found


def test_what_is_known_goes_with_what_is_moved() -> None:
    """A file, or a folder with all it holds; what was known of the new path counts no more."""
    known = {"a.md": "1", "notes/b.md": "2", "notes/deep/c.md": "3", "notes.md": "4"}
    assert moved(known, NewPath("./a.md", "x/a.md")) == {
        "x/a.md": "1",
        "notes/b.md": "2",
        "notes/deep/c.md": "3",
        "notes.md": "4",
    }
    assert moved(known, NewPath("notes", "old")) == {
        "a.md": "1",
        "old/b.md": "2",
        "old/deep/c.md": "3",
        "notes.md": "4",
    }
    assert moved(known, NewPath("b.md", "a.md")) == {"notes/b.md": "2", "notes/deep/c.md": "3", "notes.md": "4"}


def test_a_move_of_which_only_one_path_is_known_changes_nothing() -> None:
    """It may be some other tool of that name; what is known is compared with what is there anyway."""
    assert moved({"a.md": "1"}, At("a.md")) == {"a.md": "1"}


def test_moves_may_be_of_no_concern(wording: Wording) -> None:
    """Where there are no tools for them; a string would be taken for its letters."""
    policy = ReadBeforeWritePolicy(move_tools=())
    assert moved({"a.md": "1"}, NewPath("a.md", "b.md"), policy) == {"a.md": "1"}
    wrong: Any = "move_file"
    with pytest.raises(PromptValidationError) as raised:
        ReadBeforeWritePolicy(move_tools=wrong)
    assert str(raised.value) == wording
