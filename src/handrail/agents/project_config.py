"""`[tool.handrail]` in the `pyproject.toml` of a project folder; a project without it has the defaults.

| key | means | default |
|---|---|---|
| `agents` | globs of the agent files | `["*.agent"]` |
| `python` | globs of the modules with tools and toolsets | `["tools.py", "tools/*.py"]` |
| `model` | the model of agents whose files name none | none |
| `approval` | the file of approval rules | none |
| `store` | the URL of the store | none |
| `shell` | the table `[tool.handrail.shell]`: how programs are run | its defaults |

Every path lies in the project folder. A pattern that is written there must match a file.

| key of `shell` | means | default |
|---|---|---|
| `allow` | names of ready rules, the tokens of a prefix, or tables with the fields of a `ShellRule` | `["reading"]` |
| `path` | folders where programs are searched for first, from the project folder | `[]` |
| `timeout` | how many seconds a program may take | 60 |
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, cast

from pydantic import Field

from handrail.contrib.tools import CHECKING, FIXING, GIT_READING, READING, ShellRule
from handrail.errors import DocumentError, ParseError, ProjectError
from handrail.serde import parse
from handrail.serde.document import read_document
from handrail.serde.formatting import nearest_path, shorten

READY_RULES: Mapping[str, tuple[ShellRule, ...]] = {
    "reading": READING,
    "git-reading": GIT_READING,
    "fixing": FIXING,
    "checking": CHECKING,
}
"""The ready rules by the names that a project gives them."""

FILE = "pyproject.toml"
"""The file that may hold the configuration."""

_MOST_SECONDS = 86_400
_LONGEST_SHOWN = 100
_LONGEST = 1000  # of a path that is written there
_TABLE = f"{FILE}: [tool.handrail]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellConfig:
    """How the programs of a project's runs are run.

    Attributes:
        allow: what may be run by the toolset `shell`.
        path: where programs are searched for first, as absolute paths.
        timeout: how long one may take.
    """

    allow: tuple[ShellRule, ...] = READING
    path: tuple[str, ...] = ()
    timeout: timedelta = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectConfig:
    """What a project says about itself.

    Attributes:
        agents: patterns of its agent files, from the project folder.
        python: patterns of its modules.
        model: the model of agents that name none; `None` if the project leaves it open.
        approval: the file of its approval rules, from the project folder; `None` if there is none.
        store: the URL of its store; `None` if the project leaves it open.
        shell: how its programs are run.
    """

    agents: tuple[str, ...] = ("*.agent",)
    python: tuple[str, ...] = ("tools.py", "tools/*.py")
    model: str | None = None
    approval: Path | None = None
    store: str | None = None
    shell: ShellConfig = field(default_factory=ShellConfig)


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """What a project folder says of its configuration.

    Attributes:
        config: what it says; the default for each key that is wrong.
        problems: every fault.
    """

    config: ProjectConfig = ProjectConfig()
    problems: tuple[ProjectError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTable:
    """The table `[tool.handrail.shell]`, as it is written; see the module."""

    allow: tuple[str | tuple[str, ...] | dict[str, Any], ...] = ("reading",)
    path: tuple[str, ...] = ()
    timeout: Annotated[float, Field(gt=0, le=_MOST_SECONDS)] = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The table `[tool.handrail]`, as it is written."""

    agents: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    model: str = ""
    approval: str = ""
    store: str = ""
    shell: ShellTable = field(default_factory=ShellTable)


def read_config(folder: Path) -> ConfigReading:
    """Read the configuration of a project folder; the defaults if it has none."""
    file = folder / FILE
    # Not `exists`, which is false for a link that leads nowhere: the configuration behind it must not be ignored.
    if _is_absent(file):
        return ConfigReading()
    try:
        text = read_document(file, file=FILE, what="a project is configured in a text file")
        document = tomllib.loads(text.removeprefix("\ufeff"))
    # Before ValueError, of which a DocumentError is one.
    except DocumentError as error:
        return ConfigReading(problems=(_chained(str(error), error),))
    except RecursionError as error:
        # From `tomllib`, which descends once for each level.
        return ConfigReading(problems=(_chained(f"{FILE} is nested too deep to be read; make it flatter", error),))
    except ValueError as error:  # also what is not a TOML error: a number of too many digits
        return ConfigReading(problems=(_chained(f"{FILE} is not TOML: {error}", error),))
    tool: object = document.get("tool", {})
    table = cast("Mapping[str, object]", tool).get("handrail", {}) if isinstance(tool, Mapping) else tool
    if not isinstance(table, Mapping):
        fault = f"{_TABLE} is not a table; write [tool.handrail], then keys below"
        return ConfigReading(problems=(ProjectError(fault),))
    return _reading(folder, cast("Mapping[str, object]", table))


def matching_files(folder: Path, patterns: Sequence[str]) -> tuple[Path, ...]:
    """The files that patterns match, from the folder, sorted for each pattern; a file that two match comes once."""
    found = [
        path.relative_to(folder) for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()
    ]
    # Sorted within each pattern only: the order of the patterns is the choice of the project.
    return tuple(dict.fromkeys(found))


def _is_absent(file: Path) -> bool:
    """Whether there is nothing of that name, not even a link that leads nowhere."""
    try:
        file.lstat()
    except OSError as error:
        # Any other fault, such as a folder without permission, is reported by the reading that follows.
        return isinstance(error, FileNotFoundError)
    return False


def _chained(message: str, error: Exception) -> ProjectError:
    problem = ProjectError(message)
    problem.__cause__ = error
    return problem


def _reading(folder: Path, table: Mapping[str, object]) -> ConfigReading:
    faults: list[str] = []
    values: dict[str, Any] = {}
    # Each key by itself: one at fault has its default, so that the rest of the project can be surveyed.
    for key, value in table.items():
        try:
            written = getattr(parse(_Table, {key: value}), key)
            values[key] = _READERS[key](folder, written)
        except ParseError as error:
            faults += [f"{path.removeprefix('$.').replace('$', key)}: {message}" for path, message in error.faults]
        except _Faults as error:
            faults += [f"{key} {fault}" for fault in error.args]
    return ConfigReading(ProjectConfig(**values), tuple(ProjectError(f"{_TABLE}: {fault}") for fault in faults))


class _Faults(Exception):
    """What is wrong with the value of a key; its arguments say it."""


def _read_text(_folder: Path, text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise _Faults(f"is {_shown(text)}, which says nothing; write a text, or leave the key out")
    return text


def _read_patterns(folder: Path, patterns: tuple[str, ...]) -> tuple[str, ...]:
    faults = [f"has {_shown(pattern)}, {fault}" for pattern in patterns for fault in _pattern_faults(folder, pattern)]
    if faults:
        raise _Faults(*faults)
    return patterns


def _pattern_faults(folder: Path, pattern: str) -> Iterator[str]:
    # Neither `.` and what is blank, nor what is longer than paths may be.
    is_path = pattern.isprintable() and pattern.strip() and PurePosixPath(pattern).parts and len(pattern) <= _LONGEST
    if not is_path:
        yield "which is not a pattern"
    elif _leaves_folder(pattern):
        yield "which leaves the project folder; a pattern is a path from there"
    else:
        try:
            if not matching_files(folder, (pattern,)):
                yield "which matches no file"
        except (ValueError, OSError) as error:
            yield f"which is not a pattern: {error}"


def _read_file(folder: Path, name: str) -> Path:
    _read_text(folder, name)
    if _leaves_folder(name):
        raise _Faults(f"is {_shown(name)}, which leaves the project folder; it is a path from there")
    if len(name) > _LONGEST or not os.path.isfile(folder / name):  # noqa: PTH113 - a name may be too long to ask for
        near = None if len(name) > _LONGEST else nearest_path(folder / name, suffix=".yaml")
        hint = "" if near is None else f". Did you mean {near.relative_to(folder).as_posix()!r}?"
        raise _Faults(f"is {_shown(name)}, but the file does not exist{hint}")
    return Path(name)


def _read_shell(folder: Path, table: ShellTable) -> ShellConfig:
    rules: list[ShellRule] = []
    faults: list[str] = []
    for number, declared in enumerate(table.allow):
        try:
            rules += _rules(declared)
        except ValueError as error:  # of which a `PromptValidationError` is one
            faults.append(f"allow[{number}] {error}")
    unreadable = [item for item in table.path if not item or not item.isprintable() or os.pathsep in item]
    faults += [f"path has {_shown(item)}, which is not the path of one folder" for item in unreadable]
    if faults:
        raise _Faults(*faults)
    path = tuple(os.fspath(folder.absolute() / item) for item in table.path)
    return ShellConfig(allow=tuple(rules), path=path, timeout=timedelta(seconds=table.timeout))


def _rules(declared: str | tuple[str, ...] | dict[str, Any]) -> tuple[ShellRule, ...]:
    if isinstance(declared, tuple):
        return (ShellRule(declared),)
    if isinstance(declared, dict):
        return (parse(ShellRule, declared),)
    if declared not in READY_RULES:
        tokens = shorten(json.dumps(declared.split()), _LONGEST_SHOWN)
        raise ValueError(
            f"is {_shown(declared)}, and the ready rules are {', '.join(READY_RULES)}. Write the tokens of a command "
            f"as a list: {tokens}"
        )
    return READY_RULES[declared]


_READERS: Mapping[str, Callable[[Path, Any], object]] = {
    "agents": _read_patterns,
    "python": _read_patterns,
    "model": _read_text,
    "approval": _read_file,
    "store": _read_text,
    "shell": _read_shell,
}
"""What each key means, once its value is of the right type."""


def _leaves_folder(path: str) -> bool:
    # In the notation of either system, because a project is shared between them: `C:\\x` is an ordinary name on POSIX.
    return PurePosixPath(path).is_absolute() or bool(PureWindowsPath(path).anchor) or ".." in re.split(r"[/\\]", path)


def _shown(text: str) -> str:
    return shorten(repr(text), _LONGEST_SHOWN)
