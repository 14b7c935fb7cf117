"""Reading a document that people write: a regular file of no great size, in UTF-8, with YAML in it.

A folder, a pipe or a device in place of a document is refused at once; no read waits for it.

The parts of a YAML document are read one by one; every fault has file, line and column, and known keys a near miss.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from handrail.errors import DocumentError
from handrail.loop_guard import check_blocking
from handrail.serde import yaml_tree
from handrail.serde.formatting import did_you_mean, files_in, nearest, shorten
from handrail.serde.yaml_tree import ErrorFactory, YamlMapping, YamlNode, YamlScalar

LARGEST = 1_000_000
"""How many bytes a document may have."""

_LINE_BREAK = re.compile(r"\r\n?|\n")
_LONGEST_SHOWN = 120

T = TypeVar("T")

_LONGEST_QUOTED = 60


def read_document(path: Path, *, file: str, what: str, refusal: ErrorFactory = DocumentError, suffix: str = "") -> str:
    """The text of a document.

    Args:
        path: where it lies.
        file: what errors call it.
        what: what it is to be, as a sentence without its stop: `an agent file is a text file`.
        refusal: makes the error.
        suffix: how the names of such documents end, e.g. `.agent`, for proposals; empty if they have no suffix of their
            own.

    Raises:
        DocumentError: as `refusal` makes it: the file does not exist, or cannot be read; or as for `document_text`.
    """
    check_blocking("reading", path)
    try:
        return document_text(path, file=file, what=what, refusal=refusal, suffix=suffix)
    except FileNotFoundError as error:
        # `stat` follows links, so that the missing file may be what a link leads to.
        if path.is_symlink():
            raise refusal("this is a link that leads nowhere; fix or remove it", file=file) from error
        near = did_you_mean(path, suffix=suffix)
        raise refusal(f"the file does not exist{'.' if near else ''}{near}", file=file) from error
    except OSError as error:
        raise refusal(f"the file cannot be read: {error.strerror}", file=file) from error
    except ValueError as error:
        # `DocumentError` is a ValueError, and has said already what is wrong.
        if isinstance(error, DocumentError):
            raise
        shown = shorten(repr(file), _LONGEST_SHOWN)  # a NUL in the path
        raise refusal(f"this cannot be the path of a file: {error}", file=shown) from error


def document_text(path: Path, *, file: str, what: str, refusal: ErrorFactory = DocumentError, suffix: str = "") -> str:
    """As `read_document`, for callers who know what to do with a file that is not there or cannot be opened.

    Raises:
        DocumentError: as `refusal` makes it: it is not a regular file, has more than a million bytes, or is not UTF-8.
        OSError: it cannot be opened.
        ValueError: the path is none.
    """
    # Before the file is opened: opening a pipe waits until another process writes to it.
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        if not stat.S_ISDIR(mode):
            raise refusal(f"this is a device or pipe; {what}", file=file)
        inside = files_in(path, suffix=suffix) if suffix else ""
        raise refusal(f"this is a folder; {what}{f'. Name one of those in it: {inside}' if inside else ''}", file=file)
    with path.open("rb") as opened:
        # One byte more than is allowed shows that there is more. The size that `stat` gives may have changed since.
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise refusal(f"the file has more than {LARGEST:,} bytes; {what} of that size at most", file=file)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        # All before the fault is valid UTF-8, so that line and column count characters, as editors do.
        before = _LINE_BREAK.split(content[: error.start].decode("utf-8"))
        text = f"the byte 0x{content[error.start]:02X} is not UTF-8; save the file as UTF-8"
        raise refusal(text, file=file, line=len(before), column=len(before[-1]) + 1) from error


class DocumentReader:
    """Reads the parts of one document: mappings, lists, texts.

    A fault raises `DocumentError`, or what `refusal` makes of it. With a list of `faults`, those of single keys, items
    and attempts are put there instead, and the rest is read; what was at fault is left out.

    Attributes:
        file: what errors call the document.
    """

    def __init__(
        self, file: str, *, refusal: ErrorFactory = DocumentError, faults: list[DocumentError] | None = None
    ) -> None:
        self.file = file
        self._refusal = refusal
        self._faults = faults

    def fault(self, tree: YamlNode, message: str) -> DocumentError:
        """The error for what stands at `tree`."""
        return self._refusal(message, file=self.file, line=tree.line, column=tree.column)

    def key_fault(self, tree: YamlNode, key: str, message: str) -> DocumentError:  # noqa: ARG002 - for readers that report more
        """The error for a key that stands twice, or where it is not known; `tree` is where the key stands."""
        return self.fault(tree, message)

    def fail(self, tree: YamlNode, message: str) -> NoReturn:
        """Refuse what stands at `tree`."""
        raise self.fault(tree, message)

    def note(self, fault: DocumentError) -> None:
        """Keep a fault, so that the rest is read too; without a list of faults, raise it."""
        if self._faults is None:
            raise fault
        self._faults.append(fault)

    def attempt(self, tree: YamlNode, read: Callable[[YamlNode], T]) -> T | None:
        """What `read` makes of a part; `None` if it was at fault, and the fault is noted."""
        try:
            return read(tree)
        except DocumentError as fault:
            self.note(fault)
            return None

    def mapping(self, tree: YamlNode, what: str, known: Sequence[str] = ()) -> dict[str, YamlNode]:
        """The entries of a mapping, each key once, and among those known if there are such."""
        if not isinstance(tree, YamlMapping):
            self.fail(tree, f"{what} is a mapping, 'key: value'")
        entries: dict[str, YamlNode] = {}
        for key_tree, value in tree.entries:
            # A key that is at fault does not end the reading of the mapping, where faults are gathered.
            key = self.attempt(key_tree, self.text)
            if key is None:
                continue
            if key in entries:
                self.note(self.key_fault(key_tree, key, f"the key {quote_value(key)} stands here twice"))
            elif known and key not in known:
                self.note(self.key_fault(key_tree, key, f"{what} has no key {quote_value(key)}.{_hint(key, known)}"))
            else:
                entries[key] = value
        return entries

    def items(self, tree: YamlNode, what: str, read: Callable[[YamlNode], T]) -> tuple[T, ...]:
        """What `read` makes of each item of a list; `what` is the key that the list stands under."""
        if not isinstance(tree, yaml_tree.YamlSequence):
            self.fail(tree, f"{what} is a list; write {what}: [...]")
        values: list[T] = []
        for item in tree.items:
            try:
                values.append(read(item))
            except DocumentError as fault:
                self.note(fault)
        return tuple(values)

    def text(self, tree: YamlNode) -> str:
        """A single value as text, as it is written; nothing is the empty text."""
        if not isinstance(tree, YamlScalar):
            self.fail(tree, "text is due here")
        return "" if tree.value is None else tree.text

    def read(self, keys: dict[str, YamlNode], name: str, read: Callable[[YamlNode], T]) -> T | None:
        """What `read` makes of what stands under a key, if it is there, and is not at fault."""
        return self.attempt(keys[name], read) if name in keys else None


def join_names(faults: Sequence[DocumentError]) -> str:
    """Several faults of one document as one message, a line each."""
    return f"{len(faults)} faults" + "".join(f"\n  {fault}" for fault in faults)


def quote_value(text: str) -> str:
    """A text of the document as messages show it: quoted, and cut if it is long."""
    return repr(shorten(text, _LONGEST_QUOTED))


def _hint(key: str, known: Sequence[str]) -> str:
    near = nearest(key, known)
    hint = f" Did you mean {near!r}?" if near else ""
    return f"{hint} The keys are {', '.join(known)}."
