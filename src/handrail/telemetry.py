"""OpenTelemetry: a span for each tool call, and two metrics. It needs the API alone, which is the extra `telemetry`.

    instrument()  # as soon as the providers are set, or before

| who makes the call | span |
|---|---|
| `ToolExecutor`, each loop on it, a handler | `execute_tool NAME`, the current one while the call runs |
| PydanticAI, if the agent has the capability `Instrumentation` | that of PydanticAI |
| PydanticAI otherwise | `execute_tool NAME`, as in other loops |
| the client of an MCP server | that of the SDK: `tools/call NAME` |

A span that the entry point has opened gets the attributes and events of Handrail, and nothing else: its name, status
and contents are those of who has opened it. If nothing records it, as with providers that are only given to
`instrument`, the call has a span of its own. `docs/how-to/trace-calls.md` has all names. Those of OpenTelemetry are in
development: the version is in `SCHEMA_URL`.

Exceptions and their texts are on no span, only their types. Arguments, results and keys are there if they are asked
for, without secrets. The name of a tool that does not exist is the model's, and is `_OTHER`.

No failure of a provider, processor or exporter fails a call; it is logged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from functools import partial, wraps
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

from handrail.errors import LeaseLostError
from handrail.events import Subscription
from handrail.redaction import current_redaction, redacted, redacted_logger
from handrail.runtime.calls import CallPoint, Step, to_record
from handrail.runtime.observation import CallEnd, find_end, observe_calls
from handrail.serde.formatting import json_line
from handrail.serde.json_values import escape_surrogates
from handrail.session.calls import masked_call, storable_id

try:
    from opentelemetry import context, metrics, trace
except ImportError as _error:
    raise ImportError(
        "handrail.telemetry needs the API of OpenTelemetry, which is not installed: pip install 'handrail[telemetry]'",
        name=_error.name,
    ) from _error

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from handrail.runtime.call import CallState
    from handrail.runtime.calls import ToolMessage

__all__ = ["SCHEMA_URL", "instrument"]

P = ParamSpec("P")
R = TypeVar("R")

_log = redacted_logger("handrail.telemetry")

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of OpenTelemetry's conventions that the names are of."""

_BOUNDARIES = tuple(0.01 * 2**power for power in range(14))  # those that the conventions have for operations


def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    content: bool = False,
) -> Subscription:
    """Traces and measures the calls of this process that arrive from now on, in place of an earlier instrumentation.

    Args:
        tracer_provider: makes the spans; by default the global one, also if it is set later.
        meter_provider: makes the metrics; as above.
        content: puts arguments, results and keys on spans, without secrets.

    Returns:
        What ends it: by `close()`, or as a context manager.
    """
    own_version = version("handrail")
    tracer = trace.get_tracer("handrail", own_version, tracer_provider, SCHEMA_URL)
    meter = metrics.get_meter("handrail", own_version, meter_provider, SCHEMA_URL)
    durations = meter.create_histogram(
        "gen_ai.execute_tool.duration", "s", "The time of tool calls.", explicit_bucket_boundaries_advisory=_BOUNDARIES
    )
    unknown = meter.create_counter("handrail.effects.unknown", "{call}", "Tool calls whose effect is unknown.")
    return observe_calls(_never_failing(partial(_CallSpan, _Instruments(tracer, durations, unknown, content))))


def _never_failing(method: Callable[P, R]) -> Callable[P, R | None]:
    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(*args, **kwargs)
        except Exception:  # noqa: BLE001 - logged; the call is not at fault
            _log.exception("a call could not be traced")
            return None

    return guarded


class _Instruments(NamedTuple):
    tracer: trace.Tracer
    durations: metrics.Histogram
    unknown: metrics.Counter
    content: bool


class _CallSpan:
    """The span of one call; our own, unless the entry point has opened one that is recorded."""

    _token: Token[context.Context] | None = None

    def __init__(self, instruments: _Instruments, run: CallState) -> None:
        self._instruments = instruments
        self._run = run
        self._points: set[CallPoint] = set()
        name = "_OTHER" if run.tool is None else escape_surrogates(run.tool.name)
        effect = {} if run.tool is None else {"handrail.effect": run.tool.effect}
        self._tool: dict[str, AttributeValue] = {"gen_ai.tool.name": name, **effect}
        span = trace.get_current_span()
        self._is_own: bool = not (span.is_recording() and run.environment.has_span(run.ref))
        if self._is_own:
            # The rest is set at the end: this is what a sampler may need.
            kind = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}
            span = instruments.tracer.start_span(f"execute_tool {name}", attributes=kind | self._tool)
            # Also one that is not sampled: a span that the handler opens must not begin a trace.
            if span.get_span_context().is_valid:
                self._token = context.attach(trace.set_span_in_context(span))
        self._span = span
        own = span.get_span_context()
        self.trace: str | None = f"{own.trace_id:032x}-{own.span_id:016x}" if own.is_valid else None

    @_never_failing
    def notify(self, point: CallPoint) -> None:
        self._points.add(point)
        if self._span.is_recording():
            self._span.add_event(f"handrail.{point}")

    @_never_failing
    def end(self, message: ToolMessage | None, error: BaseException | None) -> None:
        try:
            outcome = find_end(self._run, message, error)
            fault = self._find_fault(outcome, error)
            self._measure(outcome, fault)
            if self._span.is_recording():
                self._describe(outcome, fault, message)
                if self._is_own and fault:
                    self._span.set_status(trace.StatusCode.ERROR)
        finally:
            # A coroutine that is closed with its loop may be so in another context, which has no such token.
            is_here = not isinstance(error, GeneratorExit) or trace.get_current_span() is self._span
            if self._token is not None and is_here:
                context.detach(self._token)
            if self._is_own:
                self._span.end()

    def _seconds(self) -> float:
        return self._run.environment.clock.monotonic() - self._run.arrived

    def _find_fault(self, outcome: CallEnd, error: BaseException | None) -> str:
        if outcome == "unknown":
            return "unknown_outcome"
        # A refusal that the model reads is not an error of the system; one that the program gets is.
        if outcome == "rolled_back" or (error is not None and outcome in {"refused", "denied"}):
            return "tool_error" if self._run.failure is None else self._run.failure.__name__
        return ""

    @_never_failing
    def _measure(self, outcome: CallEnd, fault: str) -> None:
        ending = {"handrail.outcome": outcome} | ({"error.type": fault} if fault else {})
        self._instruments.durations.record(self._seconds(), self._tool | ending)
        if outcome == "unknown":
            self._instruments.unknown.add(1, self._tool)

    @_never_failing
    def _describe(self, outcome: CallEnd, fault: str, message: ToolMessage | None) -> None:
        run, claim = self._run, self._run.claim
        if run.failure is not None and issubclass(run.failure, LeaseLostError):
            self._span.add_event("handrail.lease_lost")
        session_id = escape_surrogates(run.environment.session.session_id)
        # Without a claim, the effect with a key is that of an earlier attempt.
        unclaimed = "unknown" if outcome == "unknown" and run.effect_key is not None else None
        values: dict[str, AttributeValue | None] = {
            "handrail.call": f"{session_id}/{run.ref.key}",
            "handrail.effect": self._tool.get("handrail.effect"),
            "handrail.outcome": outcome,
            "handrail.step": None if run.refused_at is None else run.refused_at.value,
            "handrail.approval": self._find_approval(outcome),
            "handrail.turn_seconds": self._run.turn_seconds,
            "handrail.attempt": claim.fence,
            "handrail.ledger": unclaimed if claim.effect is None else claim.outcome,
            "handrail.commit": self._find_commit(),
        }
        if self._is_own:
            call_id = storable_id(run.call.id) if run.call.id else None
            values |= {
                "gen_ai.conversation.id": session_id,
                "gen_ai.tool.call.id": call_id,
                "error.type": fault or None,
            }
        if self._instruments.content:
            values |= self._find_content(message)
        self._span.set_attributes({name: value for name, value in values.items() if value is not None})

    def _find_approval(self, outcome: CallEnd) -> str | None:
        if self._run.open_question is not None:
            return "waiting"
        if outcome == "denied" and self._run.refused_at is Step.APPROVAL:
            return "denied"
        return "approved" if "question_answered" in self._points else None

    def _find_commit(self) -> str | None:
        if "committed" not in self._points:
            return None
        return "parent" if self._run.turn.outer is not None else "store" if self._run.plan.is_stored else "memory"

    def _find_content(self, message: ToolMessage | None) -> dict[str, AttributeValue | None]:
        run = self._run
        words = to_record((run.call if run.plan.masking is None else masked_call(run.call, run.plan.masking)).words)
        arguments = words if isinstance(words, str) else json_line(words)
        texts = {
            "gen_ai.tool.call.arguments": arguments,
            "gen_ai.tool.call.result": None if message is None else message.content,
            "handrail.key": run.effect_key,
        }
        # The secrets of the call are looked for once more: it has ended.
        hide = redacted if run.secrets is None else run.secrets.join(current_redaction())
        return {name: text and escape_surrogates(hide(text)) for name, text in texts.items()}
