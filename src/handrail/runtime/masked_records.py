"""The record of a call whose tool takes secrets: it has `MASK` in place of each.

Handlers get the values. What is stored, and what listeners are notified of, does not have them. So that a call with
another secret is not taken for the same call, the record has a digest of the arguments, with the random key of the
store. A call that was resumed has the mask itself: it is the same, and it cannot run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_core import from_json

from handrail.errors import DumpError, SchemaError, StoreError
from handrail.prompt import Tool, ToolResult
from handrail.redaction import CallSecrets, redacted_logger
from handrail.runtime.calls import ToolInvoked, written_arguments
from handrail.runtime.environment import Environment
from handrail.serde import Codec, Masking, digest, stored_codec
from handrail.serde.canonical import canonical_json
from handrail.serde.json_schema import is_object
from handrail.session.calls import ToolCall, masked_call

_log = redacted_logger("handrail.runtime")


def masked_record(
    call: ToolCall, params: object, masking: Masking, environment: Environment
) -> tuple[ToolCall, Any, str | None]:
    """What is recorded of a call: the call and its parameters without secrets, and the digest of its arguments.

    Never raises: a call does not fail because it cannot be shown. Without a key the digest is `None`.

    Args:
        call: the call.
        params: its parsed arguments; `None` if there are none.
        masking: which of them are secret.
        environment: the run.
    """
    if params is not None and masking.hides_plain:
        is_plain = is_object(params)
        params = masking.mask(params) if is_plain else _masked(params, stored_codec(type(params), unambiguous=False))
    return masked_call(call, masking), params, _digest(call, environment)


def masked_result(result: ToolResult[Any], tool: Tool[Any, Any] | None) -> ToolResult[Any]:
    """A result as it is shown and recorded, if its type has secrets that show themselves, as a marked `str` does."""
    if result.value is None or tool is None or tool.value_codec is None or not tool.result_masking.hides_plain:
        return result
    return replace(result, value=_masked(result.value, tool.value_codec))


def has_same_secrets(call: ToolCall, recorded: ToolInvoked, tool: Tool[Any, Any] | None, run: Environment) -> bool:
    """Whether the secrets of a call are those of a call that was recorded and is the same otherwise, or are unknown."""
    if recorded.arguments_digest is None or tool is None or masks_in(call, tool):
        return True
    return _digest(call, run) in {None, recorded.arguments_digest}


def masks_in(call: ToolCall, tool: Tool[Any, Any]) -> tuple[str, ...]:
    """The places of secrets in what the model wrote that hold the mask, because the call was resumed."""
    return tool.masking.masks_in(written_arguments(call)) if tool.masking.hides else ()


def secrets_in(value: object, masking: Masking) -> Iterator[str]:
    """The texts that are secret in arguments or in the value of a result, in JSON and as Python shows them.

    Args:
        value: decoded JSON, or a value of the type.
        masking: which parts of it are secret.
    """
    with suppress(DumpError, SchemaError, RecursionError):  # a value without a form in JSON has none there
        yield from masking.texts_in(from_json(canonical_json(value, reveals=True)))
    with suppress(SchemaError, RecursionError):
        yield from masking.texts_in(value)


def secrets_of(call: ToolCall, params: object, tool: Tool[Any, Any], outer: CallSecrets | None) -> CallSecrets | None:
    """The secrets of a call before it is made, and those of the call that it is made in; the latter if it has none."""
    if not tool.masking.hides:
        return outer
    secrets = CallSecrets(outer)
    secrets.add(partial(secrets_in, written_arguments(call), tool.masking))
    secrets.add(partial(secrets_in, tool.with_secrets(params), tool.masking))
    return secrets


def _masked(value: object, held: Codec[Any]) -> Any:  # noqa: ANN401 - of the type of the codec
    """A value with the mask in place of its secrets, as it is when it has been stored and loaded.

    It is `None` if it cannot be stored: code of the program refuses the mask, or changes what it reads.
    """
    try:
        return held.parse_json(held.dump_json(value))
    except Exception as error:  # noqa: BLE001 - logged; the type may have code of the program
        _log.warning("a value of %s is not recorded: %s", type(value).__name__, type(error).__name__)
        return None


def _digest(call: ToolCall, environment: Environment) -> str | None:
    store, ledger = environment.session.store, environment.effect_ledger
    if store is not None and store is not ledger.units:  # another process may have another ledger, with another key
        return None
    try:
        return digest(written_arguments(call), key=ledger.store.hash_key())
    except (DumpError, SchemaError, StoreError, RecursionError):  # not JSON, or no key
        return None
