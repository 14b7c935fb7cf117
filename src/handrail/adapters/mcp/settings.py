"""The file that describes MCP servers: for `handrail proxy --config`, and for the agents of a project.

    servers:
      bank:
        command: [python, bank.py]       # or url: https://bank.example/mcp
        env: [BANK_TOKEN, REGION=eu]     # variables that the server gets: of this process, or with a value
        headers: {Authorization: "Bearer ${BANK_TOKEN}"}   # with a URL
        prefix: bank_                    # of several servers the default is the name of the server and _
        only: ["*"]                      # globs over the names that the server gives its tools
        read: [balance, "get_*"]
        external: [pay]
        keys: {pay: [order]}             # arguments that make two calls one effect
        forward_key: {pay: idempotency_key}   # the argument in which the server takes a key
        reconcile:
          pay: {tool: find_payment, arguments: {order: order}, result: payment}
        undo:
          pay: {tool: refund, arguments: {payment: $result.payment, cents: $arguments.cents}}
        timeout: 300                     # seconds of a call

All faults of a file are reported at once, each with its line and column.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from handrail.adapters.mcp.connection import McpServer
from handrail.adapters.mcp.tools import ToolDeclarations, ToolSettings
from handrail.errors import DocumentError
from handrail.serde.document import YamlMap, read_document, read_tree
from handrail.serde.yaml_fields import YamlFields, as_error

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


_Seconds = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTable(ToolDeclarations):
    """A server as it is written; see `McpServer` and `ToolSettings`."""

    command: tuple[str, ...] = ()
    url: str = ""
    env: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cwd: str = "."
    start_timeout: _Seconds = 30
    prefix: str | None = None
    timeout: _Seconds | None = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFile:
    """The file as it is written."""

    servers: Annotated[dict[str, ServerTable], Field(min_length=1)]


class ConfiguredServer(NamedTuple):
    """A server, and what is declared about its tools."""

    server: McpServer
    settings: ToolSettings


def read_servers(
    path: Path, environment: Mapping[str, str] = os.environ, *, shown_as: str = ""
) -> tuple[ConfiguredServer, ...]:
    """Reads a file of servers; variables are of `environment`, and `shown_as` is the file in messages.

    Raises:
        DocumentError: it cannot be read, is invalid, or names a variable that is not set.
    """
    file = shown_as or str(path)
    text = read_document(path, file=file, what="MCP servers are described in a text file")
    root = read_tree(text.removeprefix("\ufeff"), name=file) or YamlMap((), line=1, column=1)
    tree = YamlFields(root, "a file of MCP servers", file, DocumentError)
    tables: Mapping[str, ServerTable] = tree.read(ServersFile).get("servers", {})
    if "servers" not in tree.keys:
        tree.add_fault("$", "the key 'servers' is missing; write a name below it for each server", key="servers")
    servers: list[ConfiguredServer] = []
    for name, table in tables.items():
        try:
            servers.append(_configured(name, table, path.parent, environment, several=len(tables) > 1))
        except ValueError as error:
            tree.add_fault(f"$.servers.{name}", str(error), key="servers")
    if tree.faults:
        raise as_error(tree.faults, DocumentError, file)
    return tuple(servers)


def _configured(
    name: str, table: ServerTable, folder: Path, environment: Mapping[str, str], *, several: bool
) -> ConfiguredServer:
    if bool(table.command) == bool(table.url):
        raise ValueError("a server has a command or a url, and not both")
    server = McpServer(
        name=name,
        command=table.command,
        url=table.url,
        env=passed_on(table.env, environment),
        cwd=folder / table.cwd,
        headers={key: _filled(value, environment) for key, value in table.headers.items()},
        start_timeout=timedelta(seconds=table.start_timeout),
    )
    timeout = None if table.timeout is None else timedelta(seconds=table.timeout)
    prefix = (f"{name}_" if several else "") if table.prefix is None else table.prefix
    declarations: dict[str, Any] = {item.name: getattr(table, item.name) for item in fields(ToolDeclarations)}
    return ConfiguredServer(server, ToolSettings(**declarations, timeout=timeout, prefix=prefix))


def passed_on(names: Sequence[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a server gets: `NAME` of `environment`, or `NAME=value`; `ValueError` if one is not set."""
    entries = (name.partition("=") for name in names)
    return {name: value if equals else _variable(name, environment) for name, equals, value in entries}


def _filled(text: str, environment: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: _variable(match[1], environment), text)


def _variable(name: str, environment: Mapping[str, str]) -> str:
    if (value := environment.get(name)) is None:
        raise ValueError(f"the environment variable {name} is not set")
    return value
