"""Agent files: YAML front matter that names model, tools and toolsets, and the instructions as body.

---
name: desk
description: Answers what customers ask about orders.
model: openai:gpt-5.2
tools: [lookup_order]          # names of tools
toolsets: [filesystem_cwd_ro]  # names of toolsets, among them the other agents
disclose: {filesystem_cwd_ro: Reads files.}  # toolsets that are shown by this text until the model opens them
exclude: [.env, "secrets/**"]  # paths that do not exist for its file tools
overrides: texts/desk.json     # the file of the overrides of its texts, from the project folder
input_model_ref: tools.py:Ticket  # the type of its input, a class in a file beside this one
---
You work at the refund desk.

The front matter stands between two lines `---`; `name` is the only key that it must have. Names are all that a file
says of tools: their settings are made in Python. Every fault is reported with file, line, column and key, and all those
of one file at once.

The front matter as JSON Schema, for editors, is published as `docs/reference/agent-file.schema.json`. It takes what
`parse_agent_file` takes, but for what JSON Schema cannot say: that a name may not stand twice in one list when the two
differ only in the blanks around them, that `disclose` names toolsets of the file, and that a pattern must fit paths in
a folder. What lies outside the values is
for the parser alone: the YAML itself (keys that stand twice, tags, the limits of `handrail.serde.document`), the lines
`---`, and the instructions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from handrail.errors import AgentFileError, ApprovalRulesError, DocumentError, PathEscapeError
from handrail.filesystem.path_filters import ExcludedPaths
from handrail.serde.document import DocumentReader, YamlList, YamlMap, YamlNode, YamlScalar, read_document, read_tree
from handrail.serde.formatting import join_names, quote_value, shorten

T = TypeVar("T")

NAME_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
"""What the name of an agent looks like: it becomes the name of a tool."""

SUFFIX = ".agent"
"""How the names of agent files end, unless a project says otherwise."""

AGENT_FILE_KEYS = (
    *("name", "description", "model", "tools", "toolsets", "disclose", "exclude", "show_git", "overrides"),
    "input_model_ref",
)
"""The keys of the front matter."""

OWN_SUMMARY = "summary"
"""The value below `disclose` that stands for what the toolset says of itself."""

_NAME = re.compile(NAME_PATTERN[1:-1])
_FENCE = re.compile(r"---[ \t]*")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_LINE_BREAK = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class DisclosedEntry:
    """A toolset that is closed when a run begins: the model reads its summary, and opens it to get its tools.

    Attributes:
        toolset: its name.
        summary: the summary; empty for what the toolset says of itself.
    """

    toolset: str
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """What an agent file says.

    Attributes:
        name: names the agent, as a toolset for others too: `^[A-Za-z0-9_-]{1,64}$`.
        description: what the agent is for; empty if the file does not say.
        model: the name of the model, e.g. `openai:gpt-5.2`; `None` if the file leaves it open.
        tools: names of tools, in the order of the file.
        toolsets: names of toolsets, in the order of the file.
        disclose: those of the toolsets that are closed when a run begins.
        exclude: patterns of paths that do not exist for the file tools of the agent, nor for those of agents that it
            makes; see `handrail.filesystem.path_filters.ExcludedPaths`.
        show_git: whether `.git` exists for them.
        overrides: the file of the overrides of its texts, from the project folder; `None` for none.
        input_model_ref: the type of its input, `tools.py:Ticket` from the folder of the file, or `tools.Ticket`; `None`
            for text.
        instructions: the body.
        path: the file; `None` for an agent that was made without one.
    """

    name: str
    instructions: str
    description: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()
    toolsets: tuple[str, ...] = ()
    disclose: tuple[DisclosedEntry, ...] = ()
    exclude: tuple[str, ...] = ()
    show_git: bool = False
    overrides: str | None = None
    input_model_ref: str | None = None
    path: Path | None = None


def read_agent_file(path: Path) -> AgentFile:
    """Read an agent file.

    Raises:
        AgentFileError: it cannot be opened, is too large or not UTF-8, or is not an agent file; of several faults the
            message has all, and `problems` each.
    """
    file = str(path)
    text = read_document(path, file=file, what="an agent file is a text file", refusal=AgentFileError, suffix=SUFFIX)
    return parse_agent_file(text, file=file, path=path)


def parse_agent_file(text: str, *, file: str, path: Path | None = None) -> AgentFile:
    """Read an agent file from its text; `file` is what errors call it, `path` where it lies.

    Raises:
        AgentFileError: it is not an agent file; of several faults the message has all, and `problems` each.
    """
    # Not `splitlines`, which also splits where editors do not begin a line, such as at form feeds: the line numbers of
    # faults would be wrong. A byte order mark would hide the first `---`.
    lines = _LINE_BREAK.split(text.removeprefix("\ufeff"))
    # Read only twice: further lines `---` are horizontal rules of the Markdown.
    fences = (number for number, line in enumerate(lines) if _FENCE.fullmatch(line))
    if next(fences, None) != 0:
        message = "the front matter is missing; begin the file with a line ---, the key 'name', and a line ---"
        raise AgentFileError(message, file=file, line=1, column=1)
    end = next(fences, None)
    if end is None:
        raise AgentFileError("the front matter is not closed; end it with a line ---", file=file, line=1, column=1)
    faults: list[DocumentError] = []
    found = _front_matter("\n".join(lines[1:end]), file, faults)
    instructions = _instructions(lines, end + 1, file, faults)
    if faults:
        raise as_error(faults, AgentFileError, file)
    return replace(found, instructions=instructions, path=path)


def as_error(faults: list[DocumentError], kind: type[AgentFileError | ApprovalRulesError], file: str) -> DocumentError:
    """The one fault of a file, or an error that has all of them, from top to bottom."""
    if len(faults) == 1:
        return faults[0]
    # The keys are read in an order of their own; people fix a file from top to bottom.
    faults.sort(key=lambda fault: (fault.line or 0, fault.column or 0))
    error = kind(join_names(faults), file=file)
    error.problems = tuple(faults)
    return error


def _instructions(lines: list[str], start: int, file: str, faults: list[DocumentError]) -> str:
    body = "\n".join(lines[start:])
    no_text = _NO_TEXT.search(body)
    if no_text is not None:
        line, column = _place_after(body[: no_text.start()])
        text = f"the character U+{ord(no_text[0]):04X} is not allowed in instructions; remove it"
        faults.append(AgentFileError(text, file=file, line=start + line, column=column))
    instructions = body.strip()
    if not instructions:
        text = "the instructions are missing; write them below the front matter"
        faults.append(AgentFileError(text, file=file, line=start, column=1))
    return instructions


def _place_after(text: str) -> tuple[int, int]:
    lines = _LINE_BREAK.split(text)
    return len(lines), len(lines[-1]) + 1


def _front_matter(text: str, file: str, faults: list[DocumentError]) -> AgentFile:
    """What the front matter says, as a file without instructions; where there are faults, only they count."""
    nothing = AgentFile(name="", instructions="")
    try:
        # The first line of the file is the `---` above the front matter.
        root = read_tree(text, name=file, first_line=2, refusal=AgentFileError)
        if root is None:
            # An empty front matter is not a fault of its own: it lacks the name, as any mapping without one.
            root = YamlMap((), line=1, column=1)
        if not isinstance(root, YamlMap):
            words = f"the front matter is {_kind(root)}; it is to be a mapping, 'key: value'"
            raise AgentFileError(words, file=file, line=root.line, column=root.column)
        keys = _KeyReader(file, refusal=AgentFileError, faults=faults).mapping(
            root, "the front matter", AGENT_FILE_KEYS
        )
    except DocumentError as fault:
        faults.append(fault)
        return nothing
    if "name" not in keys:
        words = "the key 'name' is missing; every agent has a name"
        faults.append(AgentFileError(words, file=file, line=root.line, column=root.column, field="name"))
    values = _Values(file, keys, faults)
    # `None` if the list is at fault; then it is not known which toolsets there are.
    toolsets = values.read("toolsets", _names) if "toolsets" in keys else ()
    return AgentFile(
        # A key at fault has an empty value here. The file is not used then: `parse_agent_file` raises the faults.
        name=values.read("name", _name) or "",
        description=values.read("description", _text) or "",
        model=values.read("model", _model),
        tools=values.read("tools", _names) or (),
        toolsets=toolsets or (),
        disclose=values.read("disclose", partial(_disclosed, toolsets=toolsets)) or (),
        exclude=values.read("exclude", _patterns) or (),
        show_git=values.read("show_git", _switch) or False,
        overrides=values.read("overrides", _file),
        input_model_ref=values.read("input_model_ref", _file),
        instructions="",
    )


class _KeyReader(DocumentReader):
    """Reads the mapping of the front matter."""

    def key_fault(self, tree: YamlNode, key: str, message: str) -> DocumentError:
        if key == "per_run_step":
            message = (
                "'per_run_step' is set in Python, toolset_factory(..., per_run_step=True); an agent file has names only"
            )
        return AgentFileError(message, file=self.file, line=tree.line, column=tree.column, field=key)


class _Values:
    """Reads the values of the keys; every fault names its key."""

    def __init__(self, file: str, keys: dict[str, YamlNode], faults: list[DocumentError]) -> None:
        self._file = file
        self._keys = keys
        self._faults = faults

    def read(self, field: str, read: Callable[[DocumentReader, YamlNode, str], T]) -> T | None:
        """What `read` makes of the value of a key; `None` if the key is missing or its value at fault."""
        # A reader for each key, because the faults that it raises have the key as their `field`.
        reader = DocumentReader(self._file, refusal=partial(AgentFileError, field=field), faults=self._faults)
        return reader.read(self._keys, field, lambda tree: read(reader, tree, field))


def _text(reader: DocumentReader, tree: YamlNode, field: str) -> str:
    if not isinstance(tree, YamlScalar):
        reader.fail(tree, f"{field} is text, not {_kind(tree)}")
    if tree.value is None:
        cure = "every agent has a name" if field == "name" else "write text, or remove the key"
        reader.fail(tree, f"{field} says nothing; {cure}")
    if not isinstance(tree.value, str):
        reader.fail(tree, f"{field} is text, and {shorten(tree.text, 60)} is {_kind(tree)}; put it in quotes")
    return tree.text.strip()


def _text_at(reader: DocumentReader, field: str, tree: YamlNode) -> str:
    return _text(reader, tree, field)


def _name(reader: DocumentReader, tree: YamlNode, field: str) -> str:
    name = _text(reader, tree, field)
    if not _NAME.fullmatch(name):
        reader.fail(tree, f"{quote_value(name)} cannot name an agent; a name fits {NAME_PATTERN}")
    return name


def _model(reader: DocumentReader, tree: YamlNode, field: str) -> str:
    model = _text(reader, tree, field)
    if not model:
        reader.fail(tree, "model is blank; name a model, or remove the key to leave it open")
    return model


def _names(reader: DocumentReader, tree: YamlNode, field: str) -> tuple[str, ...]:
    """The names in a list of names, each once."""
    if not isinstance(tree, YamlList):
        reader.fail(tree, f"{field} is a list of names, {_instead(tree, field)}")
    first: dict[str, int] = {}

    def name(item: YamlNode) -> str:
        found = _item(reader, item, field)
        # Compared without the blanks around them, which `_item` has removed.
        if found in first:
            reader.fail(item, f"{field} names {quote_value(found)} twice, first in line {first[found]}; remove one")
        first[found] = item.line
        return found

    return reader.items(tree, field, name)


def _disclosed(
    reader: DocumentReader, tree: YamlNode, field: str, *, toolsets: tuple[str, ...] | None
) -> tuple[DisclosedEntry, ...]:
    """The toolsets that are closed at the beginning; `toolsets` is `None` if the list of toolsets is at fault."""
    if not isinstance(tree, YamlMap):
        reader.fail(tree, f"{field} is a mapping of names of toolsets to summaries; write {field}: {{NAME: summary}}")
    # Stripped, as in the list of toolsets.
    places = {key.text.strip(): key for key, _ in tree.entries if isinstance(key, YamlScalar)}
    found: list[DisclosedEntry] = []
    for written, value in reader.mapping(tree, field).items():
        name, place = written.strip(), places[written.strip()]
        if toolsets is not None and name not in toolsets:
            known = f"they are {', '.join(toolsets)}" if toolsets else "there are none"
            reader.note(reader.fault(place, f"{field} names {quote_value(name)}, which is not in toolsets; {known}"))
        summary = reader.attempt(value, partial(_text_at, reader, f"{field}.{shorten(name, 64)}"))
        if summary is not None:
            found.append(DisclosedEntry(name, "" if summary == OWN_SUMMARY else summary))
    return tuple(found)


def _patterns(reader: DocumentReader, tree: YamlNode, field: str) -> tuple[str, ...]:
    """The patterns in a list of patterns of paths."""
    if not isinstance(tree, YamlList):
        reader.fail(tree, f"{field} is a list of patterns of paths; write {field}: ['.env', 'secrets/**']")

    def pattern(item: YamlNode) -> str:
        if not isinstance(item, YamlScalar) or not isinstance(item.value, str) or not item.text:
            reader.fail(
                item, f"{field} has patterns of paths only, and this is {_kind(item)}; write one such as '*.key'"
            )
        try:
            # Made only for its check. A pattern that fits nothing would protect nothing.
            ExcludedPaths((item.text,))
        except PathEscapeError as error:
            reader.fail(
                item, f"{field} has a pattern that no path in the folder fits, {quote_value(item.text)}: {error}"
            )
        return item.text

    return reader.items(tree, field, pattern)


def _switch(reader: DocumentReader, tree: YamlNode, field: str) -> bool:
    if not isinstance(tree, YamlScalar) or not isinstance(tree.value, bool):
        reader.fail(tree, f"{field} is true or false, and this is {_kind(tree)}")
    return tree.value


def _file(reader: DocumentReader, tree: YamlNode, field: str) -> str:
    file = _text(reader, tree, field)
    if not file:
        reader.fail(tree, f"{field} is blank; name a file, or remove the key")
    return file


def _instead(tree: YamlNode, field: str) -> str:
    if not isinstance(tree, YamlScalar):
        return f"and this is {_kind(tree)}; names only, the rest is set in Python"
    if tree.value is None:
        return f"and nothing stands here; write {field}: [] for none, or remove the key"
    return f"and {quote_value(tree.text)} is {_kind(tree)}; write {field}: [{shorten(tree.text, 60)}]"


def _item(reader: DocumentReader, tree: YamlNode, field: str) -> str:
    if isinstance(tree, YamlMap):
        reader.fail(tree, f"{field} has names only, and this is {_kind(tree)}; write the name, set the rest in Python")
    if isinstance(tree, YamlList):
        reader.fail(tree, f"{field} has names only, and this is a list; write its names without it")
    if not tree.text.strip():
        reader.fail(tree, f"{field} has names only, and this is blank; write a name, or remove the item")
    if not isinstance(tree.value, str):
        text = f"{shorten(tree.text, 60)} is {_kind(tree)}"
        reader.fail(tree, f"{field} has names only, and {text}; a name that looks like one is put in quotes")
    return tree.text.strip()


def _kind(tree: YamlNode) -> str:
    if isinstance(tree, YamlMap):
        keys = ", ".join(repr(key.text) for key, _ in tree.entries if isinstance(key, YamlScalar))
        return f"a mapping of {shorten(keys, 120) or 'nothing'}"
    if isinstance(tree, YamlList):
        return "a list"
    if tree.value is None:
        return "nothing"
    if isinstance(tree.value, bool):
        return "a boolean"
    return "a text" if isinstance(tree.value, str) else "a number"
