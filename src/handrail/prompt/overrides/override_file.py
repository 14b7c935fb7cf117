"""The JSON form of overrides: what replaces the texts of one prompt, under one tag.

    {
      "version": 1,
      "ns": "shop", "key": "desk", "tag": "stable",
      "sections": {
        "guide.rules": {"body": {"sha256": "4b5c...", "text": ["First line.", "Second line."]}}
      },
      "tools": {
        "lookup": {
          "description": {"sha256": "90ab...", "text": "Finds an order."},
          "parameters": {"$.number": {"sha256": "77de...", "text": "The number of the order."}},
          "examples": {"1": {"sha256": "c0ff...", "text": "An order of today"}}
        }
      }
    }

`sha256` is the hash of the text that is replaced. A text of several lines is a list of its lines. There is no key for
what cannot be overridden: names, types, effects, policies, and whether a section or tool is there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from handrail.errors import InvalidArgumentError, OverridesError
from handrail.prompt.overrides.texts import TextKey, TextKind
from handrail.serde.formatting import nearest, quote
from handrail.serde.json_tree import JsonArray, JsonNode, JsonObject, JsonScalar, node_kind, read_json_tree

_VERSION: Final = 1
_HASH = re.compile("[0-9a-f]{64}")
_HEAD = ("version", "ns", "key", "tag", "sections", "tools")
_OF_SECTION: Mapping[str, TextKind] = {"body": "body", "summary": "summary"}
_OF_TOOL: Mapping[str, TextKind] = {"description": "description", "parameters": "parameter", "examples": "example"}
_PARTS: Sequence[TextKind] = (*_OF_SECTION.values(), *_OF_TOOL.values())
_FIXED = frozenset(
    {
        *("name", "title", "type", "types", "params", "params_type", "result_type", "schema", "handler", "input"),
        *("output", "effect", "effects", "external", "idempotency", "reconcile", "timeout", "concurrent"),
        *("policy", "policies", "enabled", "availability", "available", "visibility", "starts_open", "tools"),
        *("children", "resources", "accepts_overrides", "max_result_chars", "untrusted", "sanitizes"),
    }
)
"""Keys that people may try, of what only the code declares."""


@dataclass(frozen=True, slots=True)
class Override:
    """What replaces one text.

    Attributes:
        key: identifies the text.
        sha256: the hash of the text that it replaces.
        text: the text in its place.
        line: the line in the file, from 1; `None` if it was not read from a file.
        column: the column in the file, from 1.
    """

    key: TextKey
    sha256: str
    text: str
    line: int | None = field(default=None, compare=False)
    column: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOverrides:
    """The overrides of one prompt under one tag.

    Attributes:
        ns: the namespace of the prompt.
        key: its key.
        tag: the tag.
        overrides: what replaces its texts, each text once; in the order of the form, sections before tools.
        file: what errors call the file that they come from.

    Raises:
        InvalidArgumentError: one text has two overrides.
    """

    ns: str
    key: str
    tag: str
    overrides: tuple[Override, ...] = ()
    file: str = field(default="overrides", compare=False)

    def __post_init__(self) -> None:
        counts = Counter(each.key for each in self.overrides)
        if twice := next((key for key, count in counts.items() if count > 1), None):
            expected = f"one override for each text, and {twice} has two"
            raise InvalidArgumentError(
                function="PromptOverrides", argument="overrides", given=self.overrides, expected=expected
            )
        # The order in which they are read back, so that overrides that were written are equal to those read.
        owners = {(each.key.owner, each.key.name): None for each in self.overrides}
        places = {owner: place for place, owner in enumerate(sorted(owners, key=lambda owner: owner[0]))}
        ordered = sorted(
            self.overrides, key=lambda each: (places[each.key.owner, each.key.name], _PARTS.index(each.key.part))
        )
        object.__setattr__(self, "overrides", tuple(ordered))


def dump_overrides(found: PromptOverrides) -> str:
    """Overrides in their JSON form, with a line break at the end."""
    sections: dict[str, dict[str, Any]] = {}
    tools: dict[str, dict[str, Any]] = {}
    for each in found.overrides:
        lines = each.text.split("\n")
        leaf = {"sha256": each.sha256, "text": each.text if len(lines) == 1 else lines}
        key = each.key
        if key.owner == "section":
            sections.setdefault(key.name, {})[key.part] = leaf
        elif key.part == "description":
            tools.setdefault(key.name, {})["description"] = leaf
        else:
            tools.setdefault(key.name, {}).setdefault(f"{key.part}s", {})[key.place] = leaf
    head = {"version": _VERSION, "ns": found.ns, "key": found.key, "tag": found.tag}
    return json.dumps({**head, "sections": sections, "tools": tools}, ensure_ascii=False, indent=2) + "\n"


def parse_overrides(text: str, *, file: str) -> PromptOverrides:
    """Read overrides from their JSON form; `file` is what errors call it.

    Raises:
        OverridesError: the text is not that form; of several faults the message has all, and `problems` each.
    """
    root = read_json_tree(text, file=file, refusal=OverridesError)
    reader = _Reader(file)
    found = reader.document(root)
    raise_all(reader.faults, file)
    return found


def raise_all(faults: Sequence[OverridesError], file: str) -> None:
    """Raise the faults of one file together, in the order of their lines; do nothing if there are none."""
    if not faults:
        return
    if len(faults) == 1:
        raise faults[0]
    ordered = sorted(faults, key=lambda fault: (fault.line or 0, fault.column or 0))
    error = OverridesError(f"{len(faults)} faults" + "".join(f"\n  {fault}" for fault in ordered), file=file)
    error.problems = tuple(ordered)
    raise error


class _Reader:
    """Reads one document; faults are gathered, so that all are reported at once."""

    def __init__(self, file: str) -> None:
        self.faults: list[OverridesError] = []
        self._file = file

    def document(self, root: JsonNode) -> PromptOverrides:
        head = self._entries(root, "the file", _HEAD)
        if isinstance(root, JsonObject):
            for name in ("version", "ns", "key", "tag"):
                if name not in head:
                    self._note(root, f"the key {name!r} is missing")
        version = head.get("version")
        if version is not None and not (isinstance(version, JsonScalar) and _is_version(version.value)):
            self._note(version, f"version is to be {_VERSION}; a newer Handrail may have written the file")
        ns, key, tag = (self._line(head.get(name), name) for name in ("ns", "key", "tag"))
        found = [
            *self._owners(head.get("sections"), "section", self._of_section),
            *self._owners(head.get("tools"), "tool", self._of_tool),
        ]
        return PromptOverrides(ns=ns, key=key, tag=tag, overrides=tuple(found), file=self._file)

    def _owners(
        self,
        tree: JsonNode | None,
        owner: Literal["section", "tool"],
        read: Callable[[str, JsonNode], Iterable[Override]],
    ) -> Iterable[Override]:
        if tree is not None:
            for name, node in self._entries(tree, f"{owner}s").items():
                yield from read(name, node)

    def _of_section(self, path: str, tree: JsonNode) -> Iterable[Override]:
        for name, node in self._entries(tree, f"section {path}", tuple(_OF_SECTION)).items():
            yield from self._override(TextKey("section", path, _OF_SECTION[name]), node)

    def _of_tool(self, tool: str, tree: JsonNode) -> Iterable[Override]:
        for name, node in self._entries(tree, f"tool {tool}", tuple(_OF_TOOL)).items():
            part = _OF_TOOL[name]
            if part == "description":
                yield from self._override(TextKey("tool", tool, part), node)
                continue
            for place, leaf in self._entries(node, f"{name} of tool {tool}").items():
                yield from self._override(TextKey("tool", tool, part, place), leaf)

    def _override(self, key: TextKey, tree: JsonNode) -> Iterable[Override]:
        before = len(self.faults)
        leaf = self._entries(tree, str(key), ("sha256", "text"))
        for name in ("sha256", "text"):
            if isinstance(tree, JsonObject) and name not in leaf:
                self._note(tree, f'{key}: the key {name!r} is missing; write {{"sha256": ..., "text": ...}}')
        if len(self.faults) > before:
            return
        digest = leaf["sha256"]
        value = digest.value if isinstance(digest, JsonScalar) else None
        if not isinstance(value, str) or not _HASH.fullmatch(value):
            self._note(digest, f"{key}: sha256 is 64 hexadecimal digits; `handrail overrides seed` writes them")
        text = self._text(leaf["text"], key)
        if len(self.faults) == before:
            yield Override(key, str(value), text, tree.line, tree.column)

    def _text(self, tree: JsonNode, key: TextKey) -> str:
        if isinstance(tree, JsonArray):
            lines = [item.value if isinstance(item, JsonScalar) else None for item in tree.items]
            texts = [line for line in lines if isinstance(line, str)]
            if len(texts) == len(lines):
                return "\n".join(texts)
        elif isinstance(tree, JsonScalar) and isinstance(tree.value, str):
            return tree.value
        self._note(tree, f"{key}: text is {node_kind(tree)}; write a text, or a list of the lines of one")
        return ""

    def _line(self, tree: JsonNode | None, name: str) -> str:
        if isinstance(tree, JsonScalar) and isinstance(tree.value, str):
            return tree.value
        if tree is not None:
            self._note(tree, f"{name} is {node_kind(tree)}; write a text")
        return ""

    def _entries(self, tree: JsonNode, what: str, known: Sequence[str] = ()) -> dict[str, JsonNode]:
        """The entries of an object, each key once and among those known."""
        if not isinstance(tree, JsonObject):
            self._note(tree, f"{what} is {node_kind(tree)}; it is to be an object")
            return {}
        entries: dict[str, JsonNode] = {}
        for key, node in tree.entries:
            name = str(key.value)
            if name in entries:
                self._note(key, f"the key {quote(name)} stands here twice")
            elif known and name not in known:
                self._note(key, _unknown_key(name, what, known))
            else:
                entries[name] = node
        return entries

    def _note(self, tree: JsonNode, message: str) -> None:
        self.faults.append(OverridesError(message, file=self._file, line=tree.line, column=tree.column))


def _is_version(given: object) -> bool:
    # Not `True` or `1.0`, which are equal to 1.
    return type(given) is int and given == _VERSION


def _unknown_key(name: str, what: str, known: Sequence[str]) -> str:
    keys = f"The keys are {', '.join(known)}."
    if name in _FIXED:
        return f"{what}: {name} cannot be overridden, only texts; change it in the code. {keys}"
    near = nearest(name, known)
    hint = f" Did you mean {near!r}?" if near else ""
    return f"{what} has no key {quote(name)}.{hint} {keys}"
