"""What a call has changed, as diffs that are kept with its record, for people.

A participant that can say what has changed since its snapshot has a method `describe_changes`. A call asks it before
the participant is committed or restored, and keeps what it says in `ToolInvoked.changes`:

| participant | a call that is committed | a call that is rolled back |
|---|---|---|
| a filesystem | its files | its files |
| a session | nothing: its entries say it | its slices |
| any other | nothing | nothing |

A diff has a line for each line of a file, or each item of a slice, that was removed (`-`) or added (`+`). All is
bounded: what is longer is counted, and what is not text is described.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from handrail.redaction import CallSecrets, current_redaction, redacted, redacted_logger

if TYPE_CHECKING:
    from handrail.transaction.transaction import Transaction

MOST_CHANGES: Final = 50
"""How many changes of a call are described; one more says that there are others."""

MOST_COMPARED_BYTES: Final = 65_536
"""The most bytes of a file whose lines are compared; of a longer one the size is said."""

MOST_LINES: Final = 1_000
"""The most lines of a file that are compared."""

MOST_CHARACTERS: Final = 4_000
"""The most characters of a diff; the rest is counted."""

FileContent: TypeAlias = bytes | str | None
"""What is at a path: the content of a file, a description of anything else, or nothing."""

_log = redacted_logger("handrail.transaction")


class CallChange(NamedTuple):
    """A change that a call has made.

    Attributes:
        kind: what was changed.
        name: the path of the file, or the stored name of the type of the slice.
        diff: the lines that were removed and added.
    """

    kind: Literal["file", "slice"]
    name: str
    diff: str


def collect_changes(
    transaction: Transaction, secrets: CallSecrets | None, *, committed: bool
) -> tuple[CallChange, ...] | None:
    """What the participants of a transaction say that it has changed; a failure is logged, and fails no call.

    `secrets` are those of its call, which are masked. `None` stands for no change.
    """
    changes: list[CallChange] = []
    for participant, snapshot in tuple(transaction.snapshots.values()):
        describe = getattr(participant, "describe_changes", None)
        try:
            changes += () if describe is None else islice(describe(snapshot, committed=committed), MOST_CHANGES + 1)
        except Exception:  # noqa: BLE001 - logged; the call is not at fault
            _log.exception("the changes of %s could not be described", transaction.tool)
    if len(changes) > MOST_CHANGES:  # to count them, all files would be compared
        changes[MOST_CHANGES:] = [changes[-1]._replace(name="…", diff=f"@@ more than {MOST_CHANGES} changes @@")]
    hide = redacted if secrets is None else secrets.join(current_redaction())
    return tuple(change._replace(name=hide(change.name), diff=hide(change.diff)) for change in changes) or None


def has_files(transaction: Transaction) -> bool:
    """Returns whether it takes reading from a disk to say what a transaction has changed."""
    return any(getattr(one, "restore_waits", False) for one, _ in transaction.snapshots.values())


def file_change(path: str, before: FileContent, after: FileContent) -> CallChange:
    """The change of a file, as a unified diff without its head."""
    from difflib import unified_diff  # noqa: PLC0415 - only a call that changes files needs it

    old, new = _lines(before), _lines(after)
    if old is not None and new is not None:
        lines = [*islice(unified_diff(old, new, lineterm=""), 2, None)] or ["@@ it is empty @@"]
        return CallChange("file", path, shorten_diff(lines))
    contents = (("-", before), ("+", after))
    return CallChange("file", path, "\n".join(f"{sign}{_describe(one)}" for sign, one in contents if one is not None))


def shorten_diff(lines: Iterable[str]) -> str:
    """The lines of a diff, up to `MOST_CHARACTERS`; the last one counts the rest."""
    first, size = list[str](), 0
    rest = iter(lines)
    for line in rest:
        size += len(line) + 1
        if size > MOST_CHARACTERS:
            first.append(f"@@ {1 + sum(1 for _ in rest)} more lines @@")
            break
        first.append(line)
    return "\n".join(first)


def _lines(content: FileContent) -> Sequence[str] | None:
    if content is None:
        return ()
    if isinstance(content, str) or len(content) > MOST_COMPARED_BYTES:
        return None
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        return None
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
    else:
        lines.pop()
    return None if len(lines) > MOST_LINES else lines


def _describe(content: str | bytes) -> str:
    return content if isinstance(content, str) else f"{len(content):,} bytes"


def changes_json(changes: Sequence[CallChange]) -> list[Sequence[str]]:
    """Changes as they are recorded."""
    return [tuple(change) for change in changes]


def load_changes(items: Iterable[Any]) -> tuple[CallChange, ...]:
    """Changes as they were recorded."""
    return tuple(_load(items))


def _load(items: Iterable[Any]) -> Iterator[CallChange]:
    for kind, name, diff in items:
        yield CallChange(kind, name, diff)
