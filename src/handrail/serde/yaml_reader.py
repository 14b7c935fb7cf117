"""What a YAML document says, read part by part; every fault has file, line and column, and known keys a near miss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from handrail.errors import DocumentError
from handrail.serde import yaml_tree
from handrail.serde.formatting import nearest, shortened
from handrail.serde.yaml_tree import ErrorFactory, YamlMapping, YamlNode, YamlScalar

T = TypeVar("T")

_LONGEST_SHOWN = 60


class Reader:
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

    def key_fault(self, tree: YamlNode, key: str, message: str) -> DocumentError:  # noqa: ARG002 - for readers that tell more
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
            key = self.attempt(key_tree, self.text)
            if key is None:
                continue
            if key in entries:
                self.note(self.key_fault(key_tree, key, f"the key {shown(key)} stands here twice"))
            elif known and key not in known:
                self.note(self.key_fault(key_tree, key, f"{what} has no key {shown(key)}.{_hint(key, known)}"))
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


def listed(faults: Sequence[DocumentError]) -> str:
    """Several faults of one document as one message, a line each."""
    return f"{len(faults)} faults" + "".join(f"\n  {fault}" for fault in faults)


def shown(text: str) -> str:
    """A text of the document as messages show it: quoted, and cut if it is long."""
    return repr(shortened(text, _LONGEST_SHOWN))


def _hint(key: str, known: Sequence[str]) -> str:
    near = nearest(key, known)
    hint = f" Did you mean {near!r}?" if near else ""
    return f"{hint} The keys are {', '.join(known)}."
