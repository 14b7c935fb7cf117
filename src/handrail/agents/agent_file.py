"""Agent files: YAML front matter that names model, tools and toolsets, and the instructions as body.

---
name: desk
description: Answers what customers ask about orders.
model: openai:gpt-5.2
tools: [lookup_order]          # names of tools
toolsets: [filesystem_cwd_ro]  # names of toolsets, among them the other agents
exclude: [.env, "secrets/**"]  # paths that do not exist for its file tools
input_model_ref: tools.py:Ticket  # the type of its input, a class in a file beside this one
---
You work at the refund desk.

The front matter stands between two lines `---`; `name` is the only key that it must have. A file names tools, and their
settings are made in Python. All faults of a file are reported at once, each with file, line, column and key.

The front matter as JSON Schema, for editors, is published as `docs/reference/agent-file.schema.json`. It takes what
`parse_agent_file` takes, but for what JSON Schema cannot say: that a name may not stand twice in one list when the two
differ only in the blanks around them, and that a pattern must fit paths in a folder. It does not cover the YAML itself
(keys that stand twice, tags, the limits of `handrail.serde.document`), the lines `---`, and the instructions.

Values are read by their types (`YamlFields`): `parse` checks kinds, names and ranges, and its faults get line and
column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator

from handrail.errors import AgentFileError, DocumentError, PathEscapeError
from handrail.filesystem.path_filters import ExcludedPaths
from handrail.serde.document import YamlMap, read_document, read_tree
from handrail.serde.formatting import quote_value, shorten
from handrail.serde.json_schema import is_object
from handrail.serde.yaml_fields import YamlFields, as_error

T = TypeVar("T")

NAME_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
"""The names of agents, which become names of tools."""

SUFFIX = ".agent"
"""The suffix of agent files, unless a project has other patterns."""

_FENCE = re.compile(r"---[ \t]*")
_LINE_BREAK = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """The contents of an agent file.

    Attributes:
        name: the name of the agent, and of its toolset for others: `^[A-Za-z0-9_-]{1,64}$`.
        description: the purpose of the agent; empty if the file does not have one.
        model: the name of the model, e.g. `openai:gpt-5.2`; `None` if the file leaves it open.
        exclude: patterns of paths that do not exist for the file tools of the agent, nor for those of agents that it
            makes; see `handrail.filesystem.path_filters.ExcludedPaths`.
        show_git: whether `.git` exists for them.
        input_model_ref: the type of its input, `tools.py:Ticket` from the folder of the file, or `tools.Ticket`; `None`
            for text.
        path: the file; `None` for an agent that was made without one.
    """

    name: str
    instructions: str
    description: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()
    toolsets: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    show_git: bool = False
    input_model_ref: str | None = None
    path: Path | None = None


def _entry_name(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    what = f"a mapping of {', '.join(map(repr, value))}" if is_object(value) else repr(value)
    raise ValueError(
        f"only names stand here, and this is {shorten(what, 120)}; the rest is set in Python, and a name that looks "
        "like a number is put in quotes"
    )


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{quote_value(twice[0])} stands here twice; remove one")
    return names


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("this is blank; write text, or remove the key")
    return text.strip()


def _agent_name(text: str) -> str:
    if not re.fullmatch(NAME_PATTERN[1:-1], text.strip()):
        raise ValueError(f"{quote_value(text.strip())} cannot name an agent; a name fits {NAME_PATTERN}")
    return text.strip()


def _pattern(text: str) -> str:
    try:
        # Made only for its check. A pattern that fits nothing would protect nothing.
        ExcludedPaths((text,))
    except PathEscapeError as error:
        raise ValueError(f"no path in the folder fits the pattern {quote_value(text)}: {error}") from error
    return text


_Names = Annotated[tuple[Annotated[str, BeforeValidator(_entry_name)], ...], AfterValidator(_once)]
_NotBlank = Annotated[str, AfterValidator(_not_blank)]
_Stripped = Annotated[str, AfterValidator(str.strip)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """The front matter as it is written; see `AgentFile`."""

    name: Annotated[str, AfterValidator(_agent_name)] = "agent"
    description: _Stripped = ""
    model: _NotBlank = "open"
    tools: _Names = ()
    toolsets: _Names = ()
    exclude: tuple[Annotated[str, AfterValidator(_pattern)], ...] = ()
    show_git: bool = False
    input_model_ref: _NotBlank = "text"


AGENT_FILE_KEYS = tuple(item.name for item in fields(FrontMatter))
"""The keys of the front matter."""


def read_agent_file(path: Path) -> AgentFile:
    """Reads an agent file.

    Raises:
        AgentFileError: it cannot be read, or is invalid; of several faults the message has all, and `problems` each.
    """
    file = str(path)
    text = read_document(path, file=file, what="an agent file is a text file", refusal=AgentFileError)
    return parse_agent_file(text, file=file, path=path)


def parse_agent_file(text: str, *, file: str, path: Path | None = None) -> AgentFile:
    """Reads an agent file from its text; `file` is its name in errors, `path` its place on disk.

    Raises:
        AgentFileError: it is invalid; of several faults the message has all, and `problems` each.
    """
    # Not `splitlines`, which also splits where editors do not begin a line, such as at form feeds: the line numbers of
    # faults would be wrong. A byte order mark would hide the first `---`.
    lines = _LINE_BREAK.split(text.removeprefix("\ufeff"))
    # Read only twice: further lines `---` are horizontal rules of the Markdown.
    fences = (number for number, line in enumerate(lines) if _FENCE.fullmatch(line))
    if next(fences, None) != 0:
        message = "the front matter is missing; begin the file with a line ---, the key 'name', and a line ---"
        raise AgentFileError(message, file=file, line=1, column=1)
    if (end := next(fences, None)) is None:
        raise AgentFileError("the front matter is not closed; end it with a line ---", file=file, line=1, column=1)
    faults: list[DocumentError] = []
    values = _front_matter("\n".join(lines[1:end]), file, faults)
    instructions = "\n".join(lines[end + 1 :]).strip()
    if not instructions:
        missing = "the instructions are missing; write them below the front matter"
        faults.append(AgentFileError(missing, file=file, line=end + 1, column=1))
    if faults:
        raise as_error(faults, AgentFileError, file)
    return AgentFile(**values, instructions=instructions, path=path)


def _front_matter(text: str, file: str, faults: list[DocumentError]) -> dict[str, Any]:
    try:
        # The first line of the file is the `---` above the front matter.
        root = read_tree(text, name=file, first_line=2, refusal=AgentFileError)
        # An empty front matter is not a fault of its own: it lacks the name, as any mapping without one.
        tree = YamlFields(
            YamlMap((), line=1, column=1) if root is None else root, "the front matter", file, AgentFileError
        )
    except DocumentError as fault:
        faults.append(fault)
        return {}
    values = tree.read(FrontMatter)
    if "name" not in tree.keys:
        tree.add_fault("$", "the key 'name' is missing; every agent has a name", key="name")
    faults += tree.faults
    return values
