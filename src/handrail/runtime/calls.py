"""The values of a call: the message that answers it, and its record.

Every call is recorded as a `ToolInvoked`; its `Step` is how far the call got. Two calls with one identity are the same
call if the model wrote the same tool and the same arguments. A record has the mask in place of secrets, and a digest
with the key of the store distinguishes two of them. A call that was resumed has the mask itself: it cannot run.

A recorded value of a dataclass is written with the name and version of its class, and loaded as decoded JSON if the
program no longer knows that, or if JSON does not restore it exactly. Values of other types are written as the JSON that
is shown, or as a note. Parameters that are the text of the arguments are written as `{"from": "arguments"}`. The
arguments of a function are loaded as decoded JSON, and `Tool.parse` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import datetime
from enum import StrEnum, auto
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, cast

from pydantic_core import from_json, to_json

from handrail.errors import CallIdReusedError, DumpError, ParseError, SchemaError, SessionError, ToolValidationError
from handrail.prompt import Tool, ToolResult
from handrail.prompt.tool_declaration import Arguments
from handrail.prompt.tool_result import ContentPart, dump_parts, load_parts
from handrail.redaction import MASK, CallSecrets, redacted_logger
from handrail.serde import Codec, Masking, codec, dump, parse, result_codec, stored_codec
from handrail.serde.canonical import canonical_json
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.secrets import partial_json
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef, ToolCall, masked_call, shown_id
from handrail.session.persistence.stored_types import StoredForm, find_type, stored_type
from handrail.transaction.changes import CallChange, changes_json, load_changes

if TYPE_CHECKING:
    from handrail.limits import RunContext
    from handrail.taint import ContentMarks

_log = redacted_logger("handrail.runtime")


READER = "read_result"
"""The name of the tool that reads what was left out of a message, unless a tool of the prompt has it."""


class ToolMessage(NamedTuple):
    """The answer to the model: exactly one for each call. A named tuple, because one is made for each call.

    Attributes:
        call_id: the id of the call that it answers.
        content: the text that the model reads; of a long result the beginning and the end, see `Tool.max_result_chars`.
        success: the call succeeded; if not, everything the call did to state has been undone.
        result: what the handler returned, or the failed result that describes the failure.
        replayed: the result comes from the record of the call, or from the ledger. The handler was not run, or its
            result was dropped because the same call had been recorded meanwhile.
        is_cut: `content` is only a part of the text of the result.
        parts: the same as text and files, for a result that has files; otherwise empty. `content` has a line for each
            file instead: `[image/png, 12 kB]`.
        feedback: the feedback that the message ends with, in `content` and as the last of the parts; mostly empty. The
            result has none.
        refusal: a copy, without secrets, of what the handler raised to fail the call; its `__cause__` is one of the
            exception of PydanticAI that it stands for. `None` for other failures, and in an answer from a record.
        marks: of untrusted content, the lines around `content` and `parts`; see `handrail.taint`.
        pending: the call waits, mostly for an approval: nothing of it has run or is recorded, `success` is false, and
            `content` says that it waits. Its result is in the message of the call that is made again.
    """

    call_id: str
    content: str
    success: bool
    result: ToolResult[Any]
    replayed: bool = False
    is_cut: bool = False
    parts: tuple[ContentPart, ...] = ()
    feedback: str = ""
    refusal: ToolValidationError | None = None
    pending: bool = False
    marks: ContentMarks | None = None

    @property
    def is_untrusted(self) -> bool:
        """True if third parties have written what the model reads."""
        return self.marks is not None

    @property
    def is_changed(self) -> bool:
        """True if the model reads another text than that of the result."""
        return self.is_cut or self.is_untrusted


def to_record(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """Arguments as recorded: text as it is, other values as JSON, and values that JSON cannot represent as text."""
    if isinstance(value, str | bytes):
        return value if isinstance(value, str) else value.decode(errors="backslashreplace")
    for write in (dump, repr):
        with suppress(Exception):  # it did not parse, so it may be anything
            return write(value)
    return f"<{type(value).__name__}>"


class Step(StrEnum):
    """The steps of the pipeline, in order; a step is stored by its name. `handrail.runtime.invoke` describes them."""

    LOOK_UP = auto()
    PARSE = auto()
    TURN = auto()
    POLICY = auto()
    APPROVAL = auto()
    DEADLINE = auto()
    CLAIM = auto()
    BEGIN = auto()
    HANDLER = auto()
    APPLY = auto()
    COMMIT = auto()
    RECORD = auto()
    RENDER = auto()

    @property
    def number(self) -> int:
        """Its place in the pipeline, from 1."""
        return list(Step).index(self) + 1


def _tagged(value: object) -> bytes:
    try:
        if isinstance(value, Arguments):
            own = codec(type(value))  # which reads a call, and has no mask for what is marked
            return b'{"value":%s}' % (result_codec(type(value)) if own.is_marked else own).dump_json(value)
        if is_dataclass(value):
            with suppress(SessionError):  # it holds a value that JSON does not restore exactly
                kind = stored_type(type(value))
                return b"%s%s}" % (kind.tag, kind.dump_item(value))
        return b'{"value":%s}' % to_json(dump(value))
    except Exception as error:  # noqa: BLE001 - logged; whatever the value is, the call is recorded
        partial_value = partial_json(value)
        if partial_value.is_escaped and not partial_value.gaps:
            return b'{"value":%s}' % partial_value.text.encode()
        _log.warning("a value of %s is not recorded with its call: %s", type(value).__name__, error)
        return b'{"unavailable":%s}' % to_json(type(value).__qualname__)


def _untagged(data: Any) -> Any:  # noqa: ANN401 - decoded JSON in, a value of any type out
    item = data.get("value")  # none if it is unavailable
    if "type" not in data:
        return item
    try:
        # A class that is unknown here, or was changed since, must not make the record of a call unreadable.
        kind = find_type(data["type"])
        return item if kind is None else stored_type(kind).load(to_json([item]), data["version"])[0]
    except SessionError:
        _log.warning("a recorded value of %s no longer matches its class; it is shown as JSON", data["type"])
        return item


def _without_arguments(params: bytes, arguments: Any) -> bytes:  # noqa: ANN401 - as they are recorded
    head, _, value = params.partition(b'"value":')
    with suppress(ValueError, TypeError):  # the arguments are not the text of JSON, or have a lone surrogate
        if to_json(from_json(arguments)) == value[:-1]:
            return b'%s"from":"arguments"}' % head
    return params


def _with_arguments(params: Any, arguments: Any) -> Any:  # noqa: ANN401 - decoded JSON
    return params if params is None or "from" not in params else {**params, "value": from_json(arguments)}


def _run_context(data: Mapping[str, object]) -> RunContext:
    from handrail.limits import RunContext  # noqa: PLC0415

    return parse(RunContext, data)


class _Column(NamedTuple):
    # `write` makes what JSON can represent, `_tagged` the JSON itself; `read` makes the value of what JSON has.

    name: str
    path: str
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None


def _load_times(texts: Iterable[str]) -> tuple[datetime, ...]:
    return tuple(map(datetime.fromisoformat, texts))


_COLUMNS = (
    _Column("id", "call.id"),
    _Column("name", "call.name"),
    _Column("arguments", "call.arguments", to_record),
    _Column("written", "call.written", to_record),
    _Column("params", "params", _tagged, _untagged),
    _Column("message", "result.message"),
    _Column("value", "result.value", _tagged, _untagged),
    _Column("success", "result.success"),
    _Column("exclude_value", "result.exclude_value_from_context"),
    _Column("parts", "result.parts", dump_parts, load_parts),
    _Column("session_id", "session_id"),
    _Column("run_context", "run_context", dump, _run_context),
    _Column("at", "at", read=datetime.fromisoformat),
    _Column("reply", "reply"),
    _Column("refused_at", "refused_at", read=Step),
    _Column("handler_seconds", "handler_seconds"),
    _Column("total_seconds", "total_seconds"),
    _Column("effect_key", "effect_key"),
    _Column("replayed", "replayed"),
    _Column("final", "final"),
    _Column("arguments_digest", "arguments_digest"),
    _Column("changes", "changes", changes_json, load_changes),
    _Column("turn_seconds", "turn_seconds"),
    _Column("approval_seconds", "approval_seconds"),
    _Column("trace", "trace"),
    _Column("decisions", "decisions", read=tuple),
    _Column("undo", "undo", read=tuple),
    _Column("times", "times", read=_load_times),
    _Column("may_act", "may_act"),
)
_IN_EACH = ("id", "name", "message", "success", "session_id", "at", "final")
_VALUES = attrgetter(*(column.path for column in _COLUMNS))


def _dump_event(event: Any, /) -> bytes:  # noqa: ANN401 - a `ToolInvoked`, which is declared with this
    # An object with a name for each column that is not `None`; does not fail for any value of a call.
    plain: dict[str, Any] = {}
    members: list[bytes] = []  # what is JSON already, and is appended in place of the closing brace
    for (name, _, write, _), value in zip(_COLUMNS, _VALUES(event), strict=True):
        value_json = value if value is None or write is None else write(value)
        if value_json is None:
            continue
        if write is not _tagged:
            plain[name] = value_json
        else:
            text = _without_arguments(value_json, plain.get("arguments")) if name == "params" else value_json
            members.append(b',"%s":%s' % (name.encode(), text))
    try:
        head = to_json(plain)
    except Exception:  # noqa: BLE001 - a model may send text that is not Unicode; every call is recorded
        head = json.dumps(plain, default=str).encode()
    return b"%s%s}" % (head[:-1], b"".join(members))


def _load_event(data: Mapping[str, Any], /) -> ToolInvoked:
    fields: dict[str, dict[str, Any]] = {"call": {}, "result": {}, "": {}}
    try:
        data = {**data, "params": _with_arguments(data.get("params"), data.get("arguments"))}
        for name, path, _, read in _COLUMNS:
            item = data[name] if name in _IN_EACH else data.get(name)
            owner, _, field = path.rpartition(".")
            fields[owner][field] = item if item is None or read is None else read(item)
        value, call, result = data.get("value"), ToolCall(**fields["call"]), ToolResult(**fields["result"])
        value_read = None if value is None or "type" in value else value.get("value")
        return ToolInvoked(call=call, result=result, value_read=value_read, **fields[""])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not a record of a call: {error!r}") from error


@stored_as("handrail.tool_invoked", form=StoredForm(_dump_event, _load_event))
@dataclass(frozen=True, slots=True)
class ToolInvoked:
    """The end of a call: one event for each call, whatever the outcome. Its slice is a LOG, so it is never rolled back.

    Attributes:
        call: what the model asked for, with the mask in place of secrets, as in the parameters and in the value.
        params: the parsed arguments; `None` if they did not parse, or the tool takes none. Of a function's call that
            was loaded from a store they are decoded JSON.
        result: what the handler returned, or the failed result that describes the failure.
        session_id: the session of the call.
        run_context: the correlation ids of the run.
        at: when the call ended.
        reply: the reply of the model that asked for the call; `None` if it was not given.
        refused_at: the step that refused the call or failed; `None` for a call that succeeded.
        handler_seconds: how long the handler ran; `None` if it did not run.
        total_seconds: how long the whole call took, from its arrival, waiting included.
        effect_key: the key of the effect in the ledger; `None` if the call has no effect there.
        replayed: the result comes from the ledger.
        final: a repeat of the same call is answered from this record: the call succeeded, the request is invalid, a
            policy or an approver denied it, or the handler refused it by a failed result or `ToolValidationError`.
            After any other failure the repeat goes through the pipeline.
        value_read: decoded JSON from which the tool loads the value of the result, for records loaded from a store;
            `None` if the value has its original type.
        arguments_digest: distinguishes what the model wrote from the same with other secrets; `None` if it has no
            secrets, or there is no key for it.
        changes: for people, what the call has changed in files; of a call that was rolled back, what was undone, in
            slices too. `None` if there is nothing, and in a session that is not stored.
        turn_seconds: how long after its arrival it had its turn; `None` if it did not wait for it.
        approval_seconds: how long its approver was asked; `None` if it was not.
        trace: the ids of the trace and of the span of the call, in hex, with a hyphen between; `None` without traces.
        decisions: for people, what policies have asked about it, and the answer; `None` if nothing was asked.
        undo: the ids under which participants keep what an undo of the call needs, and `-` and a name for each that
            keeps nothing; `None` if no participant but the session has changed, and in a session that is not stored.
        times: what the clock of its context has said, in order; `None` if it was not asked, and as for `undo`.
        may_act: true if its tool may change the world outside of the program; `None` otherwise.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    call: ToolCall
    params: Any
    result: ToolResult[Any]
    session_id: str
    run_context: RunContext | None
    at: datetime
    reply: str | None = None
    refused_at: Step | None = None
    handler_seconds: float | None = None
    total_seconds: float = 0.0
    effect_key: str | None = None
    replayed: bool = False
    final: bool = True
    value_read: Any = field(default=None, compare=False, repr=False)
    arguments_digest: str | None = field(default=None, compare=False, repr=False)
    changes: tuple[CallChange, ...] | None = field(default=None, compare=False, repr=False)
    turn_seconds: float | None = field(default=None, compare=False, repr=False)
    approval_seconds: float | None = field(default=None, compare=False, repr=False)
    trace: str | None = field(default=None, compare=False, repr=False)
    decisions: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    undo: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    times: tuple[datetime, ...] | None = field(default=None, compare=False, repr=False)
    may_act: bool | None = field(default=None, compare=False, repr=False)

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call.id)

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool, as the model wrote it."""
        return self.call.name

    @property
    def success(self) -> bool:
        """True if the call succeeded."""
        return self.result.success

    @property
    def summary(self) -> tuple[str, bool, datetime]:
        """The tool, whether the call succeeded, and when it ended; stores show them beside the record."""
        return f"{self.call.name}", self.result.success, self.at  # the name may be of any type that a program has sent


@dataclass(frozen=True, slots=True)
class CallEvent:
    """An event beside the record of a call, for subscribers of a session; it is not stored, and has no slice.

    Attributes:
        session_id: the session of the call.
        reply: the reply of the model that asked for it; `None` if it was not given.
        call_id: the id of the call.
        tool: name of its tool.
    """

    session_id: str
    reply: str | None
    call_id: str
    tool: str

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)


@dataclass(frozen=True, slots=True)
class ToolRaised(CallEvent):
    """The exception of a failed call of which the model reads only the type and message.

    Subscribers of the session are notified after the call has been rolled back and before it is recorded. Refusals, and
    exceptions that a handler raises for the model, are not reported.

    Attributes:
        error: the exception, with its traceback.
    """

    error: BaseException


def notify_subscribers(session: Session, event: CallEvent) -> None:
    """Notifies subscribers of an event beside the record of a call; what they raise is logged, and fails no call."""
    try:
        session.dispatcher.dispatch(event)
    except Exception:  # noqa: BLE001 - logged, as above
        _log.exception("a subscriber failed on %s of %s", type(event).__name__, event.tool)


def written_arguments(call: ToolCall) -> object:
    """The arguments as the model wrote them, decoded; as they are if they are not JSON."""
    words: Any = call.words  # an adapter may hand over anything
    if not isinstance(words, str | bytes):
        return dict(cast("Mapping[object, object]", words)) if isinstance(words, Mapping) else words
    with suppress(ValueError, TypeError):  # the latter for a lone surrogate
        return from_json(words)
    return to_record(words)


def is_same_call(call: ToolCall, record: ToolCall) -> bool:
    """True if a call is the same as the one recorded under its identity, which may have the mask for its secrets."""
    # Different text may be equal JSON, with other spaces or another order of keys.
    is_same = call.words == record.words or _is_same(
        to_record(written_arguments(call)), to_record(written_arguments(record))
    )
    return call.name == record.name and is_same


def _is_same(value: object, record: object) -> bool:
    if record == MASK:
        return True
    if is_object(record) and is_object(value):
        return record.keys() == value.keys() and all(_is_same(value[name], item) for name, item in record.items())
    if is_array(record) and is_array(value):
        return len(record) == len(value) and all(map(_is_same, value, record))
    return value == record and isinstance(value, bool) is isinstance(record, bool)


def reused_id(record: ToolInvoked, call: ToolCall | None = None) -> CallIdReusedError:
    """The error for a call whose identity `record` has: another call's, or a final one without a reply."""
    other = "without the name of its reply" if call is None else "with other arguments"
    if call is not None and call.name != record.name:
        other = f"with tool {call.name}"
    msg = (
        f"call {shown_id(str(record.ref))} of session {record.session_id!r} is a call of {record.name}, recorded at "
        f"{record.at.isoformat(timespec='seconds')}, and was repeated {other}. Name each reply of the model anew: "
        "execute(call, reply=...); if several calls of it have one id, pass all of them together to execute_all"
    )
    return CallIdReusedError(msg, call_id=record.call_id, reply=record.reply, recorded_at=record.at, tool=record.name)


def declared_result(tool: Tool[Any, Any] | None, event: ToolInvoked) -> ToolResult[Any]:
    """The result in a record, with its value as the tool declares it; as decoded JSON if it no longer fits."""
    if event.value_read is None or tool is None or tool.value_codec is None:
        return event.result
    try:
        return replace(event.result, value=tool.load_value(to_json(event.value_read)))
    except (ParseError, ValueError):
        _log.warning("the recorded value of %s no longer matches its type; it is returned as JSON", tool.name)
        return event.result


def masked_record(call: ToolCall, params: object, masking: Masking) -> tuple[ToolCall, Any]:
    """The call and its parameters without secrets. Never raises: a call does not fail because it cannot be shown."""
    if params is not None and masking.hides_plain:
        is_plain = is_object(params)
        params = masking.mask(params) if is_plain else _masked(params, stored_codec(type(params), unambiguous=False))
    return masked_call(call, masking), params


def masked_result(result: ToolResult[Any], tool: Tool[Any, Any] | None) -> ToolResult[Any]:
    """A result as it is shown and recorded, if its type has secrets that show themselves, as a marked `str` does."""
    if result.value is None or tool is None or tool.value_codec is None or not tool.result_masking.hides_plain:
        return result
    return replace(result, value=_masked(result.value, tool.value_codec))


def masks_in(call: ToolCall, tool: Tool[Any, Any]) -> tuple[str, ...]:
    """The places of secrets in what the model wrote that hold the mask, because the call was resumed."""
    return tool.masking.masks_in(written_arguments(call)) if tool.masking.hides else ()


def secrets_in(value: object, masking: Masking) -> Iterator[str]:
    """The texts that are secret in arguments or in the value of a result, in JSON and as Python shows them."""
    with suppress(DumpError, SchemaError, RecursionError):  # a value without a form in JSON has none there
        yield from masking.texts_in(from_json(canonical_json(value, reveals=True)))
    with suppress(SchemaError, RecursionError):
        yield from masking.texts_in(value)


def gather_secrets(
    call: ToolCall, params: object, tool: Tool[Any, Any], outer: CallSecrets | None
) -> CallSecrets | None:
    """The secrets of a call before it is made, and those of the call that it is made in; the latter if it has none."""
    if not tool.masking.hides:
        return outer
    secrets = CallSecrets(outer)
    secrets.add(partial(secrets_in, written_arguments(call), tool.masking))
    secrets.add(partial(secrets_in, tool.with_secrets(params), tool.masking))
    return secrets


def _masked(value: object, codec: Codec[Any]) -> Any:  # noqa: ANN401 - of the type of the codec
    # `None` if it cannot be stored: code of the program refuses the mask, or changes what it reads.
    try:
        return codec.parse_json(codec.dump_json(value))
    except Exception as error:  # noqa: BLE001 - logged; the type may have code of the program
        _log.warning("a value of %s is not recorded: %s", type(value).__name__, type(error).__name__)
        return None


CallPoint: TypeAlias = Literal[
    "turn_acquired", "question_opened", "question_answered", "claimed", "recorded", "committed", "rolled_back"
]
"""What a call has come to. `"recorded"`: an effect that stays if the call fails is recorded, before the commit."""


class CallObserver(Protocol):
    """Observes one call. Its methods are called in the context of the call, and must not raise."""

    @property
    def trace(self) -> str | None:
        """Where a trace has the call, as of `ToolInvoked.trace`; `None` if none has."""
        ...

    def notify(self, point: CallPoint) -> None:
        """Takes a point that the call has come to."""
        ...

    def end(self, message: ToolMessage | None, error: BaseException | None) -> None:
        """Takes the end of the call: its message, or what it raises."""
        ...
