"""The declared effect of a tool that is not Handrail's: from its metadata, or from the hints of an MCP server.

A Python tool declares it in its metadata, with the values of Handrail's own tools; so does a whole toolset, by
`toolset.with_metadata(effect="read")`:

    once = IdempotencyConfig(strategy="params", param_keys=("order_id",))
    Tool(pay, metadata={"effect": "external", "idempotency": once, "approval": "ask"})
    Tool(mail, metadata={"effect": External(not_applied_on=(ConnectionRefusedError,))})

`toolset.with_metadata(untrusted=True)` marks what a toolset returns as written by third parties (`handrail.taint`).

A declaration in Python comes from the program, and takes precedence. An MCP server's hints are untrusted: only the
effect is inferred from them. Whether a call is allowed without approval, and when two calls are one effect, is never
taken from
a server: if only the hints declare a tool as reading, its calls need approval unless a rule or Python decides
otherwise. The hint is also ignored for a tool with an idempotency in Python.

| the hints say | effect | where no rule applies |
|---|---|---|
| `destructiveHint: true`, whatever else they say | `external` | the default for the effect |
| `readOnlyHint: true` | `read` | `ask` |
| `readOnlyHint: false`, `destructiveHint: false` and `openWorldHint: false` | `state` | the default for the effect |
| `readOnlyHint: false` | `external` | the default for the effect |
| `openWorldHint: true`, and nothing of reading | `external` | the default for the effect |
| anything else, or nothing | `state` | the default for the effect |

For a tool that is declared as writing, the defaults of MCP apply to omitted hints (destructive, and open world): no
transaction can roll it back, so its calls are claimed in the ledger, and an interrupted one is not repeated. Only a
tool with both hints false is like Handrail's own `state` tools. A tool that is declared as both read-only and
destructive is contradictory; `readOnlyHint` is ignored.

Hints: MCP specification, `ToolAnnotations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NoReturn, cast, get_args

from pydantic_ai.tools import ToolDefinition

from handrail.errors import PromptValidationError
from handrail.prompt import External, IdempotencyConfig
from handrail.prompt.signature import Effect
from handrail.prompt.tool_declaration import MIN_RESULT_CHARS
from handrail.prompt.tool_definition import MAX_RESULT_CHARS

ApprovalDefault = Literal["allow", "ask", "deny"]
"""The approval that a tool declares for calls without a matching rule."""

_LONGEST = 80
"""Characters of a wrong value that a message quotes."""

_NEAR = 0.5
"""The similarity of a wrong and a valid value at which the valid one is proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMetadata:
    """The declaration of a tool.

    Attributes:
        effect: what a call does to the world.
        declares_effect: whether Python declares it, and not only the hints of a server or nothing.
        external: the details of an external effect that Python declares.
        concurrent: whether it is slow, independent work, as for `handrail.prompt.Tool`.
        idempotency: when two calls are one effect; their parameters are the arguments as JSON.
        approval: how a call without a matching rule is treated; `None` depends on the effect. `"ask"` for a tool that
            requires approval in PydanticAI, and for one that only the hints of a server declare as reading.
        max_result_chars: how many characters of a result the model reads at most, as for `handrail.prompt.Tool`.
        untrusted: whether third parties write what it returns, as for `handrail.prompt.Tool`.
    """

    effect: Effect = "state"
    declares_effect: bool = False
    external: External | None = None
    concurrent: bool = False
    idempotency: IdempotencyConfig | None = None
    approval: ApprovalDefault | None = None
    max_result_chars: int = MAX_RESULT_CHARS
    untrusted: bool = False

    @property
    def may_act(self) -> bool:
        """Whether a call may change the world outside of the program: also if no effect is declared."""
        return self.effect == "external" or (self.effect == "state" and not self.declares_effect)


def read_tool_metadata(definition: ToolDefinition) -> ToolMetadata:
    """Read the declaration of a tool.

    Raises:
        PromptValidationError: its metadata has an invalid value; the message names the tool and every such key.
    """
    if not definition.metadata and definition.kind == "function":
        return _NOTHING_SAID
    metadata: Mapping[str, Any] = definition.metadata or {}
    faults = [fault for key, find in _FAULTS.items() if key in metadata and (fault := find(key, metadata[key]))]
    if faults:
        _refuse(definition, faults)
    config: IdempotencyConfig | None = metadata.get("idempotency")
    said: Effect | External | None = metadata.get("effect")
    external = said if isinstance(said, External) else None
    effect: Effect | None = "external" if isinstance(said, External) else said
    approval: ApprovalDefault | None = metadata.get("approval")
    if effect is None:
        effect = hinted_effect(metadata.get("annotations"))
        # Python has declared when two calls are one effect, so the tool changes something, whatever its server claims.
        if effect == "read" and config is not None:
            effect = "state"
        elif effect == "read" and approval is None:
            approval = "ask"
    if config is not None:
        _check_together(definition, effect, config, external)
    if external is not None and external.apply is not None:
        _check_apply(definition, config, concurrent=metadata.get("concurrent", False))
    # Python may restrict what PydanticAI asks about, but cannot relax it.
    if definition.kind == "unapproved" and approval != "deny":
        approval = "ask"
    return ToolMetadata(
        effect=effect,
        declares_effect=said is not None,
        external=external,
        concurrent=metadata.get("concurrent", False),
        idempotency=config,
        approval=approval,
        max_result_chars=metadata.get("max_result_chars", MAX_RESULT_CHARS),
        untrusted=metadata.get("untrusted", False),
    )


_NOTHING_SAID = ToolMetadata()


def declared_effect(definition: ToolDefinition) -> Effect:
    """Read the declared effect of a tool.

    Raises:
        PromptValidationError: as for `read_tool_metadata`.
    """
    return read_tool_metadata(definition).effect


def hinted_effect(annotations: object) -> Effect:
    """The effect inferred from the hints of an MCP server; see the table above. Other values are ignored."""
    if not isinstance(annotations, Mapping):
        return "state"
    hints = cast("Mapping[object, object]", annotations)  # keys and values may be anything
    reads, destroys, open_world = map(hints.get, ("readOnlyHint", "destructiveHint", "openWorldHint"))
    # Compared with `is True`: hints are JSON from a server, where `1` or `"true"` may occur, and are ignored.
    if destroys is True:
        return "external"
    if reads is True:
        return "read"
    if reads is False:
        return "state" if destroys is False and open_world is False else "external"
    return "external" if open_world is True else "state"


def _effect_fault(key: str, value: object) -> str | None:
    if isinstance(value, External):
        if value.on_orphan == "reconcile" and value.reconcile is None:
            return "metadata 'effect' has on_orphan='reconcile', which needs External(reconcile=...)"
        return None
    return _choice_fault(key, value, get_args(Effect))


def _approval_fault(key: str, value: object) -> str | None:
    return _choice_fault(key, value, get_args(ApprovalDefault))


def _flag_fault(key: str, value: object) -> str | None:
    return None if isinstance(value, bool) else f"metadata {key!r} is {_shown(value)}; it must be True or False"


def _idempotency_fault(key: str, value: object) -> str | None:
    if isinstance(value, IdempotencyConfig):
        return None
    return f"metadata {key!r} is {_shown(value)}; write IdempotencyConfig(...), or leave the key out"


def _length_fault(key: str, value: object) -> str | None:
    if type(value) is int and value >= MIN_RESULT_CHARS:
        return None
    return f"metadata {key!r} is {_shown(value)}; it must be a number of characters, {MIN_RESULT_CHARS} or more"


_FAULTS: Mapping[str, Callable[[str, object], str | None]] = {
    "effect": _effect_fault,
    "concurrent": _flag_fault,
    "idempotency": _idempotency_fault,
    "approval": _approval_fault,
    "max_result_chars": _length_fault,
    "untrusted": _flag_fault,
}
"""Handrail's keys of metadata, with the functions that check their values; other keys are ignored."""


def _choice_fault(key: str, value: object, choices: tuple[str, ...]) -> str | None:
    if isinstance(value, str) and value in choices:
        return None
    near = (
        get_close_matches(value.strip().lower()[:_LONGEST], choices, n=1, cutoff=_NEAR)
        if isinstance(value, str)
        else ()
    )
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"metadata {key!r} is {_shown(value)}; it must be one of {', '.join(map(repr, choices))}{hint}"


def _check_together(
    definition: ToolDefinition, effect: Effect, config: IdempotencyConfig, external: External | None
) -> None:
    faults: list[str] = []
    if effect == "read":
        faults.append(
            "metadata 'idempotency' is for a tool that changes something, and this one only reads; leave it out, or "
            "declare 'effect' as 'state' or 'external'"
        )
    if config.on_orphan == "reconcile" and (external is None or external.reconcile is None):
        faults.append(
            "metadata 'idempotency' has on_orphan='reconcile', which needs a reconciler; declare 'effect' as "
            "External(reconcile=...), or write on_orphan='unknown' or 'retry'"
        )
    try:
        if external is not None:
            external.with_short_forms(config, None)
    except PromptValidationError as error:
        faults.append(f"metadata 'effect' and 'idempotency' contradict each other: {str(error).removesuffix('.')}")
    properties = definition.parameters_json_schema.get("properties")
    there = tuple(cast("Mapping[str, object]", properties) if isinstance(properties, Mapping) else ())  # JSON's keys
    missing = [name for name in config.param_keys if name not in there]
    if missing:
        faults.append(
            f"metadata 'idempotency' has param_keys with {', '.join(missing)}, and the tool's parameters are "
            f"{', '.join(there) or 'none'}"
        )
    if faults:
        _refuse(definition, faults)


def _check_apply(definition: ToolDefinition, config: IdempotencyConfig | None, *, concurrent: bool) -> None:
    if concurrent:
        _refuse(
            definition, ["metadata 'effect' has apply=..., which a concurrent tool cannot have; leave one of them out"]
        )
    if config is not None and not config.has_key:
        _refuse(
            definition,
            ["metadata 'effect' has apply=..., which needs an effect in the ledger; leave out 'idempotency'"],
        )


def _refuse(definition: ToolDefinition, faults: Sequence[str]) -> NoReturn:
    raise PromptValidationError(f"{'; '.join(faults)}.", tool=definition.name)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
