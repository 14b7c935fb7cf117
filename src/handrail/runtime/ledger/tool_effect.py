"""The record of an effect, as programs that use the ledger as a cache of results read it; no call needs it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from handrail.runtime.ledger.effects import lacks_value
from handrail.store.protocol import EffectRow

JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None
"""A parsed JSON value."""


@dataclass(slots=True, frozen=True)
class ToolEffect:
    """A recorded effect, as `EffectLedger.lookup` returns it.

    Attributes:
        idempotency_key: the key it was recorded under.
        tool_name: the tool that was executed.
        params_hash: sha256 of the canonical JSON of all arguments, hexadecimal.
        result_message: the message of the result.
        result_value: the value of the result, serialised; `None` also if it is unavailable.
        result_success: always true: only successes are recorded.
        created_at: when the result was recorded.
        expires_at: when the entry expires; `None` for never.
        effect_id: identifies the effect as long as its entry exists.
        partition: the session id, or `""` for a key that all sessions share.
        value_unavailable: whether the value could not be serialised, or what is stored of it is not JSON, or has the
            mask in place of a secret.
        exclude_value_from_context: whether the model sees only the message.
    """

    idempotency_key: str
    tool_name: str
    params_hash: str
    result_message: str
    result_value: JsonValue
    result_success: bool
    created_at: datetime
    expires_at: datetime | None
    effect_id: UUID
    partition: str = ""
    value_unavailable: bool = False
    exclude_value_from_context: bool = False

    @classmethod
    def of(cls, row: EffectRow) -> ToolEffect:
        """The effect that a done row records; a value that is not JSON is unavailable."""
        value, unavailable = None, True
        with suppress(ValueError):
            value, unavailable = json.loads(row.value or b"null"), lacks_value(row)
        result = (row.key, row.tool, row.params_hash, row.message, value)
        at, effect_id = row.completed_at or row.created_at, UUID(row.effect_id)
        hidden = row.exclude_value_from_context
        return cls(*result, True, at, row.expires_at, effect_id, row.partition, unavailable, hidden)  # noqa: FBT003 - a column
