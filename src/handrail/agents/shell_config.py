"""`[tool.handrail.shell]` in the `pyproject.toml` of a project folder: what the built-in toolset `shell` may run.

| key | means | default |
|---|---|---|
| `allow` | names of ready rules, the tokens of a prefix, or tables with the fields of a `ShellRule` | `["reading"]` |
| `path` | folders where programs are searched for first, from the project folder | `[]` |
| `timeout` | how many seconds a program may take | 60 |
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from handrail.agents.config_values import shown_setting
from handrail.contrib.tools import CHECKING, FIXING, GIT_READING, READING, ShellRule
from handrail.contrib.tools.shell.rules import Command
from handrail.serde.formatting import nearest, shorten

READY_RULES: Mapping[str, tuple[ShellRule, ...]] = {
    "reading": READING,
    "git-reading": GIT_READING,
    "fixing": FIXING,
    "checking": CHECKING,
}
"""The ready rules by the names that a project gives them."""

_LONGEST_SHOWN = 100
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
