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
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast

from handrail.contrib.tools import CHECKING, FIXING, GIT_READING, READING, ShellRule
from handrail.contrib.tools.shell.rules import Command
from handrail.errors import DocumentError, ProjectError
from handrail.serde.document import read_document
from handrail.serde.formatting import nearest, nearest_path, shorten

_LONGEST_SHOWN = 100


def shown_setting(value: object) -> str:
    """A value of a configuration, for messages."""
    try:
        return shorten(repr(value), _LONGEST_SHOWN)
    except (RecursionError, ValueError):  # nested too deep, or a number of too many digits
        return f"a {type(value).__name__} that is too large to be shown"


def leaves_folder(path: str) -> bool:
    """Whether a path goes out of the folder that it is taken from."""
    # In the notation of either system, because a project is shared between them: `C:\\x` is an ordinary name on POSIX.
    return PurePosixPath(path).is_absolute() or bool(PureWindowsPath(path).anchor) or ".." in re.split(r"[/\\]", path)


def unknown_key(key: str, known: tuple[str, ...]) -> str:
    """That a table has a key which does not exist, with the nearest one that does, as a sentence."""
    near = nearest(key, known)
    hint = f" Did you mean {near!r}?" if near else ""
    return f"the key {shown_setting(key)} does not exist.{hint} The keys are {', '.join(known)}."


READY_RULES: Mapping[str, tuple[ShellRule, ...]] = {
    "reading": READING,
    "git-reading": GIT_READING,
    "fixing": FIXING,
    "checking": CHECKING,
}
"""The ready rules by the names that a project gives them."""

_MOST_SECONDS = 86_400


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


def read_shell_config(folder: Path, given: object) -> tuple[ShellConfig, list[str]]:
    """The configuration of a project folder, and every fault of it; a key at fault has its default.

    Args:
        folder: the project folder.
        given: the value of the key `shell`.
    """
    if not isinstance(given, Mapping):
        return ShellConfig(), [f"is {shown_setting(given)}; write the table [tool.handrail.shell]"]
    table = cast("Mapping[str, object]", given)
    faults = [_unknown(key) for key in table if key not in KEYS]
    values: dict[str, Any] = {}
    for key, read in KEYS.items():
        if key in table:
            try:
                values[key] = read(folder, table[key])
            except ValueError as error:
                faults.append(f"{key} {error}")
    return ShellConfig(**values), faults


def _allow(_folder: Path, given: object) -> tuple[ShellRule, ...]:
    rules: list[ShellRule] = []
    faults: list[str] = []
    for number, declared in enumerate(_list(given, 'allow = ["reading", ["make", "test"]]')):
        try:
            rules += _rules(declared)
        except ValueError as error:  # of which a `PromptValidationError` is one
            faults.append(f"[{number}] {error}")
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(rules)


def _rules(declared: object) -> tuple[ShellRule, ...]:
    if isinstance(declared, str):
        if declared not in READY_RULES:
            raise ValueError(
                f"is {shown_setting(declared)}, and the ready rules are {', '.join(READY_RULES)}. Write the tokens of "
                "a command as a list: "
                f"{shorten(json.dumps(declared.split()), _LONGEST_SHOWN)}"
            )
        return READY_RULES[declared]
    if isinstance(declared, Mapping):
        table = cast("Mapping[str, Any]", declared)
        known = [each.name for each in fields(ShellRule)]
        if unknown := next((key for key in table if key not in known), None):
            raise ValueError(f"has the key {shown_setting(unknown)}; the keys are {', '.join(known)}")
        if "prefix" not in table:
            raise ValueError('lacks the key prefix; write {prefix = ["make", "test"], ...}')
        values: dict[str, Any] = {key: _as_tuple(value) for key, value in table.items()}
        return (ShellRule(**values),)
    # `ShellRule` checks that they are strings.
    return (ShellRule(cast("Command", tuple(_list(declared, '["make", "test"]')))),)


def _path(folder: Path, given: object) -> tuple[str, ...]:
    found: list[str] = []
    for item in _list(given, 'path = [".venv/bin"]'):
        if not isinstance(item, str) or not item or not item.isprintable() or os.pathsep in item:
            raise ValueError(f"has {shown_setting(item)}, which is not the path of one folder")
        found.append(os.fspath(folder.absolute() / item))
    return tuple(found)


def _timeout(_folder: Path, given: object) -> timedelta:
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given <= _MOST_SECONDS:
        return timedelta(seconds=given)
    raise ValueError(f"is {shown_setting(given)}; write a number of seconds, at most {_MOST_SECONDS}")


KEYS: Mapping[str, Callable[[Path, object], object]] = {
    "allow": _allow,
    "path": _path,
    "timeout": _timeout,
}
"""How each key is read."""


def _list(given: object, example: str) -> Iterator[object]:
    if not isinstance(given, list):
        raise ValueError(f"is {shown_setting(given)}; write a list: {example}")  # noqa: TRY004 - a fault of the file
    return iter(cast("Sequence[object]", given))


def _as_tuple(value: object) -> object:
    return tuple(cast("Sequence[object]", value)) if isinstance(value, list) else value


def _unknown(key: str) -> str:
    near = nearest(key, KEYS)
    hint = f" Did you mean {near!r}?" if near else ""
    return f"has the key {shown_setting(key)}, which does not exist.{hint} The keys are {', '.join(KEYS)}."


FILE = "pyproject.toml"
"""The file that may hold the configuration."""

_LONGEST = 1000  # of a path that is written there
_TABLE = f"{FILE}: [tool.handrail]"
_CONVERTED: Mapping[str, Callable[[Any], object]] = {"agents": tuple, "python": tuple, "approval": Path}


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


def read_config(folder: Path) -> ConfigReading:
    """Read the configuration of a project folder; the defaults if it has none."""
    file = folder / FILE
    # Not `exists`, which is false for a link that leads nowhere: the configuration behind it must not be ignored.
    if _is_absent(file):
        return ConfigReading()
    try:
        text = read_document(file, file=FILE, what="a project is configured in a text file")
        table = _table(tomllib.loads(text.removeprefix("\ufeff")))
    # Before ValueError, of which a DocumentError is one.
    except DocumentError as error:
        return ConfigReading(problems=(_chained(str(error), error),))
    except RecursionError as error:
        # From `tomllib`, which descends once for each level.
        return ConfigReading(problems=(_chained(f"{FILE} is nested too deep to be read; make it flatter", error),))
    except ValueError as error:  # also what is not a TOML error: a number of too many digits
        return ConfigReading(problems=(_chained(f"{FILE} is not TOML: {error}", error),))
    if not isinstance(table, Mapping):
        return ConfigReading(
            problems=(ProjectError(f"{_TABLE} is not a table; write [tool.handrail], then keys below"),)
        )
    return _reading(folder, cast("Mapping[str, Any]", table))


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


def _table(document: Mapping[str, Any]) -> object:
    tool: object = document.get("tool", {})
    # A `tool` that is not a table is returned, so that `read_config` refuses it.
    return cast("Mapping[str, object]", tool).get("handrail", {}) if isinstance(tool, Mapping) else tool


def _reading(folder: Path, table: Mapping[str, Any]) -> ConfigReading:
    known = tuple(each.name for each in fields(ProjectConfig))
    faults = [unknown_key(key, known) for key in table if key not in known]
    values: dict[str, Any] = {}
    for key in (key for key in known if key in table):
        given = table[key]
        if key == "shell":
            values[key], of_shell = read_shell_config(folder, given)
            faults += [f"shell {fault}" for fault in of_shell]
            continue
        found = list(_pattern_faults(folder, key, given) if key in {"agents", "python"} else _text_faults(key, given))
        if key == "approval" and not found:
            found = list(_file_faults(folder, given))
        faults += [f"{key} {fault}" for fault in found]
        if not found:
            # A key at fault has its default, so that the rest of the project can be surveyed.
            values[key] = _CONVERTED[key](given) if key in _CONVERTED else given
    return ConfigReading(ProjectConfig(**values), tuple(ProjectError(f"{_TABLE}: {fault}") for fault in faults))


def _text_faults(key: str, given: object) -> Iterator[str]:
    if not isinstance(given, str):
        yield f'is {shown_setting(given)}; write a text: {key} = "..."'
    elif not given.strip() or not given.isprintable():
        yield f"is {shown_setting(given)}, which says nothing; write a text, or leave the key out"


def _pattern_faults(folder: Path, key: str, given: object) -> Iterator[str]:
    if not isinstance(given, list):
        yield f'is {shown_setting(given)}; write a list of patterns: {key} = ["..."]'
        return
    for item in cast("list[object]", given):
        if not isinstance(item, str) or not item.isprintable() or not _is_pattern(item):
            yield f"has {shown_setting(item)}, which is not a pattern"
        elif leaves_folder(item):
            yield f"has {shown_setting(item)}, which leaves the project folder; a pattern is a path from there"
        else:
            yield from _match_faults(folder, item)


def _match_faults(folder: Path, pattern: str) -> Iterator[str]:
    try:
        if not matching_files(folder, (pattern,)):
            yield f"has {shown_setting(pattern)}, which matches no file"
    except (ValueError, OSError) as error:
        yield f"has {shown_setting(pattern)}, which is not a pattern: {error}"


def _file_faults(folder: Path, given: str) -> Iterator[str]:
    if leaves_folder(given):
        yield f"is {shown_setting(given)}, which leaves the project folder; it is a path from there"
    elif len(given) > _LONGEST or not os.path.isfile(folder / given):  # noqa: PTH113 - a name may be too long to ask for
        near = None if len(given) > _LONGEST else nearest_path(folder / given, suffix=".yaml")
        hint = "" if near is None else f". Did you mean {near.relative_to(folder).as_posix()!r}?"
        yield f"is {shown_setting(given)}, but the file does not exist{hint}"


def _is_pattern(text: str) -> bool:
    """Whether a text is a path at all: `.` and what is blank are none, nor is what no path could be as long as."""
    return bool(text.strip()) and bool(PurePosixPath(text).parts) and len(text) <= _LONGEST
