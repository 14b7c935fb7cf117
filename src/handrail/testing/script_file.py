"""Scripts in YAML 1.2 files; every fault is reported with its file, line and column.

replies:
  - text: I shall read the notes.            # optional, as every key of a reply is
    calls:
      - {name: read_file, arguments: {path: notes.md}}
      - {name: read_file, arguments: '{"path": ', id: broken}    # text is played as it is
    usage: {input: 120, output: 15, cached: 0}
    expect:                                  # what was sent before this reply
      instructions: [Refund desk]
      tools: [read_file, write_file]
  - within: call-1                           # only where call-1 has called an agent: a reply of that agent
    text: There are three notes.
  - text: Done.                              # a structured answer: `output: {field: ...}`
    expect:
      texts: [buy milk]
      messages:
        call-1: ok                           # or failed
        broken: {failed: [malformed JSON]}   # and what the message contains
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from handrail.errors import DocumentError, ScriptError
from handrail.limits import TokenUsage
from handrail.serde import document
from handrail.testing.script import Call, Expect, Outcome, Reply, Script


def read_script(path: Path) -> Script:
    """Reads a script from a file.

    Raises:
        ScriptError: it is not a regular file, not YAML in UTF-8, or not a script; the message has file, line and
            column.
        OSError: it cannot be opened.
    """
    try:
        text = document.document_text(path, file=path.name, what="a script is a text file")
    except DocumentError as error:
        raise ScriptError(str(error)) from error
    return parse_script(text, name=path.name)


def parse_script(text: str, *, name: str = "the script") -> Script:
    """Reads a script from YAML text; `name` is its name in errors. `ScriptError` as of `read_script`."""
    unprintable = document.first_unprintable(text)
    if unprintable is not None:
        line, column, words = unprintable
        raise ScriptError(f"{name}: {words}; line {line}, column {column}")
    try:
        return _script(text, name)
    except DocumentError as error:
        raise ScriptError(str(error)) from error


def _script(text: str, name: str) -> Script:
    root = document.read_tree(text, name=name)
    if root is None:
        raise ScriptError(f"{name} is empty; a script has the key 'replies', with a list of replies")
    reader = _ScriptReader(name)
    keys = reader.mapping(root, "a script", ("replies",))
    if "replies" not in keys:
        reader.fail(root, "a script has the key 'replies', with a list of replies")
    return Script(reader.items(keys["replies"], "replies", reader.reply), name=name)


class _ScriptReader(document.DocumentReader):
    def reply(self, tree: document.YamlNode) -> Reply:
        keys = self.mapping(tree, "a reply", _names(Reply))
        return Reply(
            text=self.read(keys, "text", self.text) or "",
            calls=self.read(keys, "calls", lambda node: self.items(node, "calls", self.call)) or (),
            output=self.read(keys, "output", self.json_object),
            usage=self.read(keys, "usage", self.usage),
            expect=self.read(keys, "expect", self.expect),
            within=self.read(keys, "within", self.text) or "",
        )

    def call(self, tree: document.YamlNode) -> Call:
        keys = self.mapping(tree, "a call", _names(Call))
        if "name" not in keys:
            self.fail(tree, "a call has the key 'name', with the name of the tool")
        arguments: dict[str, Any] | str = {}
        node = keys.get("arguments")
        if isinstance(node, document.YamlScalar):
            # A key without a value is null, which stands for no arguments. Other scalars are played as their text, so
            # `5` stays `5`.
            arguments = arguments if node.value is None else node.text
        elif node is not None:
            arguments = self.json_object(node)
        return Call(self.text(keys["name"]), arguments, self.read(keys, "id", self.text) or "")

    def expect(self, tree: document.YamlNode) -> Expect:
        keys = self.mapping(tree, "expect", _names(Expect))
        texts = {
            name: self.items(keys[name], name, self.text) for name in ("instructions", "tools", "texts") if name in keys
        }
        return Expect(**texts, messages=self.read(keys, "messages", self.outcomes) or {})

    def outcomes(self, tree: document.YamlNode) -> dict[str, Outcome]:
        return {call_id: self.outcome(node) for call_id, node in self.mapping(tree, "messages").items()}

    def outcome(self, tree: document.YamlNode) -> Outcome:
        if isinstance(tree, document.YamlMap):
            keys = self.mapping(tree, "an outcome", ("ok", "failed"))
            if len(keys) != 1:
                self.fail(tree, "an outcome is either ok or failed")
            ((verdict, node),) = keys.items()
            return Outcome(verdict == "ok", self.items(node, verdict, self.text))
        verdict = self.text(tree)
        if verdict not in ("ok", "failed"):
            self.fail(tree, f"{verdict!r} is not an outcome; write ok, failed, {{ok: [text]}} or {{failed: [text]}}")
        return Outcome(verdict == "ok")

    def usage(self, tree: document.YamlNode) -> TokenUsage:
        keys = self.mapping(tree, "usage", _names(TokenUsage))
        return TokenUsage(**{name: self.count(node, name) for name, node in keys.items()})

    def count(self, tree: document.YamlNode, name: str) -> int:
        value = tree.value if isinstance(tree, document.YamlScalar) else None
        # In YAML `true` is a boolean, which Python counts among the integers.
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.fail(tree, f"{name} is a number of tokens, 0 or more")
        return value

    def json_object(self, tree: document.YamlNode) -> dict[str, Any]:
        return {key: self.json(node) for key, node in self.mapping(tree, "this value").items()}

    def json(self, tree: document.YamlNode) -> Any:  # noqa: ANN401 - any value of JSON
        if isinstance(tree, document.YamlMap):
            return self.json_object(tree)
        return tree.value if isinstance(tree, document.YamlScalar) else [self.json(item) for item in tree.items]


def _names(kind: type[Any]) -> tuple[str, ...]:
    fields: Iterable[dataclasses.Field[Any]] = dataclasses.fields(kind)
    return tuple(field.name for field in fields)
