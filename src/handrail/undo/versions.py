"""Digests of what a plan depends on: the session, the agent, and of each call its tool, its policies and what they see.

The code of a function counts with the whole file that it is in; what it is closed over does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import Any, Final

from pydantic_core import from_json, to_json

from handrail.adapters.run_task import AgentFunction
from handrail.prompt import Tool
from handrail.runtime.environment import Environment
from handrail.serde import digest, dump
from handrail.store import Store

_DECLARED: Final = (
    *("name", "description", "effect", "external", "idempotency", "on_orphan", "timeout", "concurrent"),
    *("max_result_chars", "untrusted", "sanitizes", "handler", "function", "undo", "capture", "preview"),
    *("reconcile", "apply"),
)


def digest_session(store: Store | None, session_id: str) -> str:
    """A digest of all that is stored of a session: entries, tags, answers of people, and the effects below it."""
    row, whole = None if store is None else store.find(session_id), sha256()
    if store is not None and row is not None and row.head:
        for entry in store.entries(session_id, until=row.head):
            whole.update(repr(entry).encode())
        effects = sorted(repr((*effect[:4], effect.status, effect.fence)) for effect in store.effects_below(session_id))
        whole.update(repr((sorted(row.tags.items()), store.answers(session_id), effects)).encode())
    return whole.hexdigest()


def agent_versions(agent: AgentFunction) -> Mapping[str, str]:
    """Digests of what carries a run out; of a function its code."""
    versions: Callable[[], Mapping[str, str]] | None = getattr(agent, "versions", None)
    return {"code": digest(describe_code(agent))} if versions is None else versions()


def call_versions(tool: Tool[Any, Any], environment: Environment) -> dict[str, str]:
    """Digests of what decides about a call, and of what carries it out."""
    described = {name: _describe(getattr(tool, name, None)) for name in _DECLARED}
    policies = environment.rendered_prompt.policies_for(tool.name)
    offered = [(one.name, one.description, one.parameters_schema, one.effect) for one in environment.tools]
    return {
        "tool": digest([described, tool.parameters_schema, str(tool.result_type), repr(tool.examples)]),
        "policies": digest(
            [[policy.name, describe_code(type(policy).check), _describe(policy)] for policy in policies]
        ),
        "tools": digest(offered),
    }


def plain_value(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as decoded JSON; of one that JSON cannot represent the name of its class."""
    try:
        return from_json(to_json(dump(value)))
    except Exception:  # noqa: BLE001 - whatever a tool takes or returns
        return type(value).__qualname__


def describe_code(function: Callable[..., object]) -> list[object]:
    """The code of a function, with the file that it is in."""
    inner = inspect.unwrap(function)
    code: object = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    if not isinstance(code, CodeType):
        return [name]
    path = Path(code.co_filename)
    file = _digest_file(path, path.stat().st_mtime_ns) if path.is_file() else ""
    return [name, file, code.co_code.hex(), [repr(one) for one in code.co_consts if isinstance(one, str | int | float)]]


@lru_cache(maxsize=256)
def _digest_file(path: Path, _changed: int) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _describe(value: Any) -> object:  # noqa: ANN401 - what a tool declares, or a policy has
    if inspect.isroutine(value):
        return describe_code(value)
    if is_dataclass(value) and not isinstance(value, type):
        # What a policy keeps for itself, such as earlier decisions, changes during a run.
        names = [one.name for one in fields(value) if one.init and not one.name.startswith("_")]
        return {name: _describe(getattr(value, name)) for name in names}
    return plain_value(value)
