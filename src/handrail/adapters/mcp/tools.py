"""The tools of an MCP server as tools of Handrail: what an operator declares about them, and their results.

The arguments are validated by the schema that the server lists. The effect is what the operator declares, else what the
hints of the server say; without hints it is `external`, as their defaults are. All tools are `concurrent`: they touch
nothing here that could be rolled back.

| a result | becomes |
|---|---|
| text, also of an embedded resource, and links to resources | the message, cut to `max_result_chars` |
| images, audio and other files | parts |
| structured content | the value, which is recorded and handed on; the model reads the text |
| structured content that does not fit the schema of the tool | a success without a value, whose message says so |
| `isError` | a failed call, unless `reconcile` finds the effect: an exception after it is such a result, too |
| a request for input | a failed call: questions of a server are not passed on |
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, cast

import mcp_types as t
from pydantic import Field

from handrail.adapters.mcp.connection import McpConnection
from handrail.adapters.mcp.content import fault_finder
from handrail.adapters.mcp_hints import hinted_effect
from handrail.errors import EffectNotApplied, EffectUncertain, PromptValidationError, ToolValidationError
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult, Undo
from handrail.prompt.signature import Effect
from handrail.prompt.tool_declaration import MIN_RESULT_CHARS
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.prompt.tool_result import BinaryPart, ContentPart
from handrail.redaction import redacted_logger
from handrail.serde import digest
from handrail.serde.formatting import shorten
from handrail.serde.json_schema import is_array, is_object

_EFFECTS: Final[tuple[Effect, ...]] = ("external", "state", "read")  # the strictest first
_EMPTY: Final[tuple[object, ...]] = (None, False, "", [], {})
_LONGEST_NAME: Final = 64
_LONGEST_DESCRIPTION: Final = 8_000

_log = redacted_logger("handrail.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTool:
    """Another tool of the same server that says whether an effect has happened.

    Attributes:
        tool: its name.
        arguments: for each of its arguments, the argument of the call whose value it gets; `$key` is the key.
        result: the field of its structured content, or of its text as JSON, that is not empty if the effect has
            happened; it is the result of the call then.
        proves_absence: whether an empty field proves that the effect has not happened, and will not. By default the
            call stays unknown then: a server may still carry out what it was asked, also when its proxy was killed.
    """

    tool: str
    arguments: Mapping[str, str]
    result: str
    proves_absence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneBy:
    """How a call of a tool is undone: by which other tool of the server.

    Attributes:
        tool: its name. If it takes an idempotency key (`forward_key`), it gets that of the undo, and if its `reconcile`
            asks by nothing but `$key`, that settles an undo whose outcome is unknown.
        arguments: for each of its arguments, a path into the call: `$arguments.calendar`, or `$result.event.id` of its
            structured content, or of its text as JSON.
    """

    tool: str
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclarations:
    """What an operator declares about the tools of a server; tools are named as the server names them.

    Attributes:
        only: globs; other tools are not offered. Empty for all.
        read: globs over tools that only read.
        state: globs over tools whose effects are not seen outside of the server.
        external: globs over tools that change the world. A tool that two lists name is of the stricter one.
        keys: for a tool, the arguments that make two calls one effect, for all servers of that name over the store.
        forward_key: for a tool, the argument in which the server takes an idempotency key. The model does not see it.
        reconcile: for a tool, which other tool says whether an effect has happened.
        undo: for a tool, which other tool undoes a call of it.
        untrusted: whether third parties write what the tools return.
        max_result_chars: as of `Tool`.
    """

    only: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    forward_key: Mapping[str, str] = field(default_factory=dict[str, str])
    reconcile: Mapping[str, AskTool] = field(default_factory=dict[str, AskTool])
    undo: Mapping[str, UndoneBy] = field(default_factory=dict[str, UndoneBy])
    untrusted: bool = True
    max_result_chars: Annotated[int, Field(ge=MIN_RESULT_CHARS)] = MAX_RESULT_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings(ToolDeclarations):
    """The declarations about the tools of a server, as a section or a proxy takes them.

    Attributes:
        prefix: stands before the name of each tool.
        timeout: how long a call may take; `None` for as long as the server takes.
    """

    prefix: str = ""
    timeout: timedelta | None = timedelta(minutes=5)

    def effect(self, tool: t.Tool) -> tuple[Effect, str]:
        """The effect of a tool, and where it is from: `"settings"`, `"hints"` or `"default"`."""
        for effect in _EFFECTS:
            if _names(getattr(self, effect), tool.name):
                return effect, "settings"
        if {tool.name} & {*self.keys, *self.forward_key, *self.reconcile, *self.undo}:
            return "external", "settings"
        hints = None if tool.annotations is None else tool.annotations.model_dump(by_alias=True, exclude_unset=True)
        hinted = hinted_effect(hints)
        return (hinted, "hints") if hinted else ("external", "default")

    def unknown_names(self, tools: Collection[str]) -> list[str]:
        """The tools that it names, and that the server does not have."""
        globs = (*self.only, *self.read, *self.state, *self.external)
        others = [*(ask.tool for ask in self.reconcile.values()), *(undone.tool for undone in self.undo.values())]
        names = [*self.keys, *self.forward_key, *self.reconcile, *self.undo, *others]
        missing = [glob for glob in globs if not any(fnmatchcase(tool, glob) for tool in tools)]
        return list(dict.fromkeys([*missing, *(name for name in names if name not in tools)]))


DEFAULT_SETTINGS: Final = ToolSettings()
"""Nothing is declared: hints decide."""


def make_tools(
    connection: McpConnection, settings: ToolSettings = DEFAULT_SETTINGS
) -> tuple[dict[str, Tool[Any, Any]], list[str]]:
    """The tools that a server offers now, each by its name on the server, and why others are left out.

    That is because a schema or a declaration is wrong, or a name is taken.
    """
    tools: dict[str, Tool[Any, Any]] = {}
    faults: list[str] = []
    names: set[str] = set()
    for definition in connection.tools:
        if settings.only and not _names(settings.only, definition.name):
            continue
        try:
            tool = _make_tool(connection, definition, settings)
        except PromptValidationError as error:
            fault = str(error)
        else:
            if tool.name.casefold() not in names:
                names.add(tool.name.casefold())
                tools[definition.name] = tool
                continue
            fault = "its name is taken"
        faults.append(f"the tool {definition.name} of {connection.server.name} is not offered: {fault}")
        _log.warning("%s", faults[-1])
    return tools, faults


def _make_tool(connection: McpConnection, definition: t.Tool, settings: ToolSettings) -> Tool[Any, Any]:
    effect, _ = settings.effect(definition)
    keys, ask = settings.keys.get(definition.name), settings.reconcile.get(definition.name)
    _check_declared(connection, definition, settings)
    call = _Call(connection, definition, settings)
    options: dict[str, Any] = {"effect": effect}
    if ask is not None:
        options["effect"] = External(
            on_orphan="reconcile", reconcile=call.reconcile, reconcile_proves_absence=ask.proves_absence
        )
    if (undone := settings.undo.get(definition.name)) is not None:
        options["undo"] = _undo(connection, definition.name, undone, settings)
    if keys is not None:
        options["idempotency"] = IdempotencyConfig(
            strategy="custom",
            scope=f"mcp/{connection.server.name}",
            # By the name on the server: with another prefix the key is the same, and refused as another tool's.
            key_fn=lambda arguments: f"{definition.name}:{digest([arguments[name] for name in keys])[:16]}",
        )
    return Tool.from_json_schema(
        name=tool_name(settings.prefix + definition.name),
        description=shorten(
            (definition.description or definition.title or definition.name).strip(), _LONGEST_DESCRIPTION
        ),
        schema=call.schema,
        handler=call.run,
        concurrent=True,
        timeout=settings.timeout,
        max_result_chars=settings.max_result_chars,
        untrusted=settings.untrusted,
        **options,
    )


def tool_name(name: str) -> str:
    """A name of MCP as that of a tool: other characters than letters, digits, `_` and `-` become `_`."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_LONGEST_NAME]


class _Call:
    # The handler of one tool.

    def __init__(self, connection: McpConnection, definition: t.Tool, settings: ToolSettings) -> None:
        self._connection = connection
        self._definition = definition
        self._effect, _ = settings.effect(definition)
        self._forward_key = settings.forward_key.get(definition.name)
        self._ask = settings.reconcile.get(definition.name)
        self._fault: Callable[[object], str | None] = fault_finder(definition.output_schema)
        schema = _without(definition.input_schema, self._forward_key)
        # What identifies the effect is asked for.
        keys = settings.keys.get(definition.name, ())
        required = list(dict.fromkeys([*schema.get("required", ()), *keys]))
        self.schema: dict[str, Any] = {**schema, "required": required} if keys else schema

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult[Any]:
        """Has the server run a call."""
        name, key, own = self._definition.name, context.idempotency_key, arguments
        if self._forward_key is not None and key is not None:
            arguments = {**arguments, self._forward_key: key}
        try:
            answer = await self._connection.call(name, arguments, key=key, on_progress=context.progress)
        except EffectUncertain as error:
            if self._effect == "read":  # nothing can have happened
                raise ToolValidationError(str(error)) from error
            raise
        if answer.get("resultType") == "input_required":
            raise EffectNotApplied(f"{name} asks for input before it acts, and questions of a server are not passed on")
        if answer.get("isError") is True and self._ask is not None and key is not None:
            value = await _ask(self._connection, self._ask, own, key)
            if value not in _EMPTY:
                return self._result(value)
        return parse_result(name, answer, self._fault)

    async def reconcile(self, params: object, key: str) -> ToolResult[Any] | None:
        """The result of a call whose outcome is not known, by another tool; `None` if it has not happened."""
        ask = cast("AskTool", self._ask)
        value = await _ask(self._connection, ask, params, key)
        if value not in _EMPTY:
            return self._result(value)
        return None if ask.proves_absence else ToolResult[None].error(f"{ask.tool} has nothing about it, as yet")

    def _result(self, value: object) -> ToolResult[Any]:
        if self._fault(value) is None:
            return ToolResult.ok(value)
        return parse_result(self._definition.name, {"structuredContent": value}, self._fault)


def parse_result(tool: str, answer: Mapping[str, Any], fault: Callable[[object], str | None]) -> ToolResult[Any]:
    """The result of a tool, as the server has sent it; `fault` says why structured content does not fit its schema."""
    texts, parts = parse_content(answer.get("content", ()))
    text, value = "\n".join(texts), answer.get("structuredContent")
    if answer.get("isError") is True:
        return ToolResult[None].error("\n".join((text or f"{tool} failed", *map(str, parts))))
    if why := fault(value):
        note = f"{tool} was carried out, and its result does not fit the schema of the tool: {why}. Do not repeat it."
        text, value = "\n".join((note, text or json.dumps(value))), None
    elif not text and not parts and value is not None:
        text = json.dumps(value, ensure_ascii=False)
    return ToolResult.ok(value, text, exclude_value_from_context=True, parts=parts)


def parse_content(blocks: object) -> tuple[list[str], list[ContentPart]]:
    """The texts of content blocks, and their files as parts."""
    texts: list[str] = []
    parts: list[ContentPart] = []
    for block in filter(is_object, blocks if is_array(blocks) else ()):
        resource = block.get("resource", block)
        if (data := resource.get("data", resource.get("blob"))) is not None:
            try:
                parts.append(BinaryPart(b64decode(data), resource.get("mimeType") or "application/octet-stream"))
            except ValueError:  # also a media type that is none
                texts.append(f"[a file that cannot be read: {resource.get('mimeType')}]")
        elif block.get("type") == "resource_link":
            texts.append(f"[{block.get('name')}: {block.get('uri')}]")
        else:
            texts.append(str(resource.get("text", "")))
    return texts, parts


def _check_declared(connection: McpConnection, definition: t.Tool, settings: ToolSettings) -> None:
    # What is declared to protect a tool must not be void.
    name, own = definition.name, definition.input_schema.get("properties", {})
    ask = settings.reconcile.get(name)
    sources = () if ask is None else (source for source in ask.arguments.values() if source != "$key")
    undone = settings.undo.get(name)
    paths = [] if undone is None else [path.split(".") for path in undone.arguments.values()]
    if wrong := next((path for path in paths if path[0] not in {"$arguments", "$result"} or len(path) == 1), None):
        raise PromptValidationError(f"its undo takes {'.'.join(wrong)}; write $arguments.NAME or $result.NAME")
    undo_sources = [path[1] for path in paths if path[0] == "$arguments"]
    arguments = [*settings.keys.get(name, ()), *sources, *undo_sources, *filter(None, [settings.forward_key.get(name)])]
    if missing := [argument for argument in arguments if argument not in own]:
        raise PromptValidationError(f"{missing[0]!r} is declared for it, and is not among its arguments")
    if undone is not None:
        _check_undo(connection, undone, settings)
    if (arguments or ask or undone) and (effect := settings.effect(definition)[0]) != "external":
        raise PromptValidationError(
            f"keys, forward_key, reconcile and undo are of external tools, and it is declared {effect}"
        )
    if ask is None:
        return
    asked = next((tool for tool in connection.tools if tool.name == ask.tool), None)
    if asked is None or settings.effect(asked)[0] != "read":
        raise PromptValidationError(f"its reconcile asks {ask.tool}, which must be a tool that is declared read")
    if unknown := [one for one in ask.arguments if one not in asked.input_schema.get("properties", {})]:
        raise PromptValidationError(f"its reconcile gives {ask.tool} {unknown[0]!r}, which it does not take")


def _check_undo(connection: McpConnection, undone: UndoneBy, settings: ToolSettings) -> None:
    other = next((tool for tool in connection.tools if tool.name == undone.tool), None)
    if other is None or settings.effect(other)[0] == "read":
        raise PromptValidationError(f"its undo calls {undone.tool}, which must be a tool that is not declared read")
    names = {*undone.arguments, settings.forward_key.get(undone.tool)}
    if unknown := [one for one in undone.arguments if one not in other.input_schema.get("properties", {})]:
        raise PromptValidationError(f"its undo gives {undone.tool} {unknown[0]!r}, which it does not take")
    if missing := [one for one in other.input_schema.get("required", ()) if one not in names]:
        raise PromptValidationError(f"its undo does not give {undone.tool} {missing[0]!r}, which it needs")


def _undo(connection: McpConnection, name: str, undone: UndoneBy, settings: ToolSettings) -> Undo:
    forward_key, ask = settings.forward_key.get(undone.tool), settings.reconcile.get(undone.tool)

    def read(params: Any, result: ToolResult[Any]) -> dict[str, list[object]]:  # noqa: ANN401 - as of an undo
        sources = {"$arguments": params, "$result": _content(result)}
        return {one: _at(sources, path) for one, path in undone.arguments.items()}

    def obstacle(params: Any, result: ToolResult[Any]) -> str | None:  # noqa: ANN401 - as of an undo
        missing = [undone.arguments[one] for one, values in read(params, result).items() if not values]
        return f"the call of {name} has no {missing[0]}" if missing else None

    async def run(params: Any, result: ToolResult[Any], before: object, *, context: ToolContext) -> ToolResult[Any]:  # noqa: ANN401, ARG001 - as above
        key, arguments = context.idempotency_key, {one: value for one, (value,) in read(params, result).items()}
        if forward_key is not None:
            arguments[forward_key] = key
        answer = await connection.call(undone.tool, arguments, key=key)
        return parse_result(undone.tool, answer, lambda _: None)

    async def reconcile(params: object, key: str) -> ToolResult[None] | None:  # noqa: ARG001 - as of a reconciler
        asked = cast("AskTool", ask)
        if await _ask(connection, asked, {}, key) not in _EMPTY:
            return ToolResult.ok(None, f"{undone.tool} has been carried out")
        return None if asked.proves_absence else ToolResult[None].error(f"{asked.tool} has nothing about it, as yet")

    if ask is None or {*ask.arguments.values()} != {"$key"}:
        return Undo(run, obstacle=obstacle)
    asks = External(on_orphan="reconcile", reconcile=reconcile, reconcile_proves_absence=ask.proves_absence)
    return Undo(run, asks, obstacle)


def _content(result: ToolResult[Any]) -> object:
    with suppress(ValueError):
        return json.loads(result.message) if result.value is None else result.value
    return None


def _at(sources: Mapping[str, object], path: str) -> list[object]:
    values: list[object] = [sources]
    for key in path.split("."):
        values = [value[key] for value in values if is_object(value) and key in value]
    return values


async def _ask(connection: McpConnection, ask: AskTool, params: object, key: str) -> object:
    own = cast("Mapping[str, Any]", params)  # a tool whose schema is data has a mapping
    arguments = {name: key if source == "$key" else own.get(source) for name, source in ask.arguments.items()}
    answer = await connection.call(ask.tool, arguments)
    texts, _ = parse_content(answer.get("content", ()))
    if answer.get("isError") is True:
        raise EffectUncertain(f"{ask.tool} failed: {' '.join(texts)}")
    content: object = answer.get("structuredContent")
    if content is None:
        with suppress(ValueError):
            content = json.loads("\n".join(texts))
    if not is_object(content) or ask.result not in content:
        raise EffectUncertain(f"{ask.tool} answered no object with the field {ask.result}")
    return content[ask.result]


def _names(globs: Collection[str], name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _without(schema: Mapping[str, Any], argument: str | None) -> dict[str, Any]:
    # What Handrail fills in is not asked of the model.
    if argument is None:
        return dict(schema)
    properties = {name: node for name, node in schema.get("properties", {}).items() if name != argument}
    required = [name for name in schema.get("required", ()) if name != argument]
    return {**schema, "properties": properties, "required": required}
