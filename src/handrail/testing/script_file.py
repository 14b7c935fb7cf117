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

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handrail.errors import DocumentError, ScriptError
from handrail.serde import document
from handrail.serde.yaml_fields import YamlFields, as_error
from handrail.testing.script import Reply, Script

_EMPTY: Final = document.YamlMap((), line=1, column=1)


def read_script(path: Path) -> Script:
    """Reads a script from a file.

    Raises:
        ScriptError: it cannot be read, is not YAML in UTF-8, or not a script; the message has file, line and column.
    """
    try:
        text = document.read_document(path, file=path.name, what="a script is a text file")
    except DocumentError as error:
        raise ScriptError(str(error)) from error
    return parse_script(text, name=path.name)


@dataclass(frozen=True)
class _Document:
    replies: Sequence[Reply]


def parse_script(text: str, *, name: str = "the script") -> Script:
    """Reads a script from YAML text; `name` is its name in errors. `ScriptError` as of `read_script`."""
    try:
        tree = YamlFields(document.read_tree(text, name=name) or _EMPTY, "a script", name, DocumentError)
        replies: Sequence[Reply] = tree.read(_Document).get("replies", ())
        if "replies" not in tree.keys:
            tree.add_fault("$", "the key 'replies' is missing", key="replies")
        if tree.faults:
            raise as_error(tree.faults, DocumentError, name)
    except DocumentError as error:
        raise ScriptError(str(error)) from error
    return Script(replies, name=name)
