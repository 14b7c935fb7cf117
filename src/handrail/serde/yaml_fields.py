"""A YAML mapping read by the types of a dataclass, with the line and column of every fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from handrail.errors import DocumentError, ParseError
from handrail.serde.document import YamlList, YamlMap, YamlNode, YamlScalar, node_at
from handrail.serde.formatting import quote_value
from handrail.serde.typed import parse


def as_error(faults: list[DocumentError], kind: type[DocumentError], file: str) -> DocumentError:
    """The one fault of a file, or an error that has all of them, from top to bottom."""
    if len(faults) == 1:
        return faults[0]
    # The keys are read in an order of their own; people fix a file from top to bottom.
    faults.sort(key=lambda fault: (fault.line or 0, fault.column or 0))
    return kind("\n  ".join((f"{len(faults)} faults", *map(str, faults))), file=file, problems=tuple(faults))


class YamlFields:
    """The keys of a YAML mapping, read by the types of a dataclass, and every fault with line and column."""

    def __init__(self, tree: YamlNode, what: str, file: str, refusal: Callable[..., DocumentError]) -> None:
        """Reads the keys of a mapping, which errors call `what`; `refusal` makes the errors.

        Raises:
            DocumentError: `tree` is not a mapping.
        """
        self._file = file
        self._refusal = refusal
        if not isinstance(tree, YamlMap):
            raise refusal(f"{what} is a mapping, 'key: value'", file=file, line=tree.line, column=tree.column)
        self._tree = tree
        self.faults: list[DocumentError] = []
        self.keys: dict[str, YamlNode] = self._entries(tree, "")

    def read(self, kind: type[object]) -> dict[str, Any]:
        """The values of the keys, by the types of `kind`; one at fault is left out."""
        values: dict[str, Any] = {}
        for key, tree in self.keys.items():
            before = len(self.faults)
            plain = self._plain(tree, key)
            if len(self.faults) > before:
                continue
            try:
                values[key] = getattr(parse(kind, {key: plain}), key)
            except ParseError as error:
                for path, message in error.faults:
                    self.add_fault(path, message, key=key)
        return values

    def items(self, key: str) -> Sequence[YamlNode]:
        """The items of the list under a key, if there is one."""
        tree = self.keys.get(key)
        return tree.items if isinstance(tree, YamlList) else ()

    def add_fault(self, path: str, message: str, *, key: str) -> None:
        """Records a fault of a key at a path such as `$.tools[1]`."""
        says_key = message.startswith(("unknown field", "wrong key"))
        node = node_at(self._tree, path, is_key=says_key)
        if not says_key and path != "$" and "missing field" not in message:
            message = f"{path.removeprefix('$.')}: {message}"
        self._fault(node, message, key)

    def _fault(self, node: YamlNode, message: str, key: str) -> None:
        self.faults.append(
            self._refusal(message, file=self._file, line=node.line, column=node.column, field=key or None)
        )

    def _entries(self, tree: YamlMap, key: str) -> dict[str, YamlNode]:
        entries: dict[str, YamlNode] = {}
        for node, value in tree.entries:
            # A key that is not a text is the empty one, which no type has.
            name = node.text if isinstance(node, YamlScalar) and node.value is not None else ""
            if name in entries:
                self._fault(node, f"the key {quote_value(name)} stands here twice", key or name)
            else:
                entries[name] = value
        return entries

    def _plain(self, tree: YamlNode, key: str) -> object:
        if isinstance(tree, YamlList):
            return [self._plain(item, key) for item in tree.items]
        if isinstance(tree, YamlMap):
            return {name: self._plain(value, key) for name, value in self._entries(tree, key).items()}
        if tree.value is None and not tree.text:
            self._fault(tree, "nothing stands here; write a value, or remove the key", key)
        return tree.value
