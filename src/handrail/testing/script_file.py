"""Scripts in YAML 1.2 files; every fault is told with its file, line and column.

replies:
  - text: I shall read the notes.            # optional, as every key of a reply is
    calls:
      - {name: read_file, arguments: {path: notes.md}}
      - {name: read_file, arguments: '{"path": ', id: broken}    # text is played as it is
    usage: {input: 120, output: 15, cached: 0}
    expect:                                  # what was sent before this reply
      instructions: [Refund desk]
      tools: [read_file, write_file]
  - text: Done.                              # a structured answer: `output: {field: ...}`
    expect:
      texts: [buy milk]
      messages:
        call-1: ok                           # or failed
        broken: {failed: [malformed JSON]}   # and what the message contains
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from handrail.errors import ScriptError
from handrail.limits import TokenUsage
from handrail.testing.script import Call, Expect, Outcome, Reply, Script
from handrail.testing.yaml_tree import Mapping, Scalar, Sequence, Tree, read_tree

T = TypeVar("T")


def read_script(path: Path) -> Script:
    """Read a script from a file.

    Raises:
        ScriptError: it is no YAML in UTF-8, or no script; the message names file, line and column.
        OSError: it cannot be opened.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScriptError(f"{path.name}: byte {error.start} is no UTF-8; save the file as UTF-8") from error
    return parse_script(text, name=path.name)


def parse_script(text: str, *, name: str = "the script") -> Script:
    """Read a script from YAML text; `name` is what its errors call it.

    Raises:
        ScriptError: as for `read_script`.
    """
    root = read_tree(text, name=name)
    if root is None:
        raise ScriptError(f"{name} is empty; a script has the key 'replies', with a list of replies")
    reader = _Reader(name)
    keys = reader.mapping(root, "a script", ("replies",))
    if "replies" not in keys:
        reader.fail(root, "a script has the key 'replies', with a list of replies")
    return Script(reader.items(keys["replies"], "replies", reader.reply), name=name)


class _Reader:
    """Makes a script of the tree of one file."""

    def __init__(self, name: str) -> None:
        self._name = name

    def fail(self, tree: Tree, message: str) -> NoReturn:
        raise ScriptError(f"{self._name}:{tree.line}:{tree.column}: {message}")

    def reply(self, tree: Tree) -> Reply:
        keys = self.mapping(tree, "a reply", _names(Reply))
        return Reply(
            text=self.read(keys, "text", self.text) or "",
            calls=self.read(keys, "calls", lambda found: self.items(found, "calls", self.call)) or (),
            output=self.read(keys, "output", self.json_object),
            usage=self.read(keys, "usage", self.usage),
            expect=self.read(keys, "expect", self.expect),
        )

    def call(self, tree: Tree) -> Call:
        keys = self.mapping(tree, "a call", _names(Call))
        if "name" not in keys:
            self.fail(tree, "a call has the key 'name', with the name of the tool")
        arguments: dict[str, Any] | str = {}
        given = keys.get("arguments")
        if isinstance(given, Scalar):
            arguments = arguments if given.value is None else given.text
        elif given is not None:
            arguments = self.json_object(given)
        return Call(self.text(keys["name"]), arguments, self.read(keys, "id", self.text) or "")

    def expect(self, tree: Tree) -> Expect:
        keys = self.mapping(tree, "expect", _names(Expect))
        texts = {
            name: self.items(keys[name], name, self.text) for name in ("instructions", "tools", "texts") if name in keys
        }
        return Expect(**texts, messages=self.read(keys, "messages", self.outcomes) or {})

    def outcomes(self, tree: Tree) -> dict[str, Outcome]:
        return {call_id: self.outcome(found) for call_id, found in self.mapping(tree, "messages").items()}

    def outcome(self, tree: Tree) -> Outcome:
        if isinstance(tree, Mapping):
            keys = self.mapping(tree, "an outcome", ("ok", "failed"))
            if len(keys) != 1:
                self.fail(tree, "an outcome is either ok or failed")
            ((verdict, found),) = keys.items()
            return Outcome(verdict == "ok", self.items(found, verdict, self.text))
        verdict = self.text(tree)
        if verdict not in ("ok", "failed"):
            self.fail(tree, f"{verdict!r} is no outcome; write ok, failed, {{ok: [text]}} or {{failed: [text]}}")
        return Outcome(verdict == "ok")

    def usage(self, tree: Tree) -> TokenUsage:
        keys = self.mapping(tree, "usage", _names(TokenUsage))
        return TokenUsage(**{name: self.count(found, name) for name, found in keys.items()})

    def count(self, tree: Tree, name: str) -> int:
        value = tree.value if isinstance(tree, Scalar) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.fail(tree, f"{name} is a number of tokens, 0 or more")
        return value

    def json_object(self, tree: Tree) -> dict[str, Any]:
        return {key: self.json(found) for key, found in self.mapping(tree, "this value").items()}

    def json(self, tree: Tree) -> Any:  # noqa: ANN401 - any value of JSON
        if isinstance(tree, Mapping):
            return self.json_object(tree)
        return tree.value if isinstance(tree, Scalar) else [self.json(item) for item in tree.items]

    def mapping(self, tree: Tree, what: str, known: tuple[str, ...] = ()) -> dict[str, Tree]:
        """The entries of a mapping, each key once, and among those known if there are such."""
        if not isinstance(tree, Mapping):
            self.fail(tree, f"{what} is a mapping, 'key: value'")
        entries: dict[str, Tree] = {}
        for key_tree, value in tree.entries:
            key = self.text(key_tree)
            if key in entries:
                self.fail(key_tree, f"the key {key!r} stands here twice")
            if known and key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                self.fail(key_tree, f"{what} has no key {key!r}.{hint} The keys are {', '.join(known)}.")
            entries[key] = value
        return entries

    def items(self, tree: Tree, what: str, read: Callable[[Tree], T]) -> tuple[T, ...]:
        if not isinstance(tree, Sequence):
            self.fail(tree, f"{what} is a list; write {what}: [...]")
        return tuple(read(item) for item in tree.items)

    def text(self, tree: Tree) -> str:
        if not isinstance(tree, Scalar):
            self.fail(tree, "text is due here")
        return "" if tree.value is None else tree.text

    def read(self, keys: dict[str, Tree], name: str, read: Callable[[Tree], T]) -> T | None:
        """What stands under a key, if it is there."""
        return read(keys[name]) if name in keys else None


def _names(kind: type[Any]) -> tuple[str, ...]:
    fields: Iterable[dataclasses.Field[Any]] = dataclasses.fields(kind)
    return tuple(field.name for field in fields)
