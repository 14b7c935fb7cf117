"""The key of the effect of a call, and whether an earlier attempt of the call has started the effect."""

from __future__ import annotations

from functools import partial
from typing import Any

from handrail.prompt import Tool
from handrail.prompt.idempotency import EffectKey, slot_effect_key
from handrail.runtime.call import CallState
from handrail.runtime.calls import written_arguments
from handrail.runtime.failures import CallRefusedError
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.runtime.ledger.states import key_expired
from handrail.serde import digest
from handrail.store.protocol import EffectRow


async def effect_key_of(run: CallState, tool: Tool[Any, Any]) -> EffectKey:
    """The key of the effect of a call: the declared one, or the slot of the call.

    Raises:
        CallRefusedError: the call has no id that would name its slot.
    """
    # The event loop is not held while the store is read for the key of its hashes.
    reads = run.environment.effect_ledger.units if tool.masking.hides else None
    return await run.mode.write_to(reads, partial(_key_of, run, tool))


def _key_of(run: CallState, tool: Tool[Any, Any]) -> EffectKey:
    session_id = run.environment.session.session_id
    config = tool.idempotency
    if config is None and not run.call.id:
        raise CallRefusedError(
            f"{tool.name} has external effects, and this call has no id that would identify a repeat. Give it one."
        )
    hash_key = run.environment.effect_ledger.store.hash_key() if tool.masking.hides else None
    declared: EffectKey | None = None
    if config is not None:
        params = tool.with_secrets(run.params) if tool.masking.hides else run.params
        params = tool.key_params(run.call.arguments, params)
        declared = config.effect_key(tool.name, params, session_id=session_id, hash_key=hash_key)
    if declared is None:
        return slot_effect_key(run.ref, written_arguments(run.call), session_id=session_id, hash_key=hash_key)
    if run.secrets is not None and run.secrets.text(declared.key) != declared.key:  # what `key_fn` has returned
        scope, _, own = declared.key.partition(":")
        return declared._replace(key=f"{scope}:{digest(own, key=hash_key)}")
    return declared


def _started(ledger: EffectLedger, key: EffectKey) -> EffectRow | None:
    """The row of an effect that has been started, and may have happened."""
    row = ledger.row(key.key, partition=key.partition)
    return None if row is None or row.status == "failed" or key_expired(row, ledger.store.now()) else row


async def has_started(run: CallState, tool: Tool[Any, Any]) -> bool:
    """Whether an earlier attempt of the call has started its effect, so that the handler is not to run again.

    Such a call was decided before it began, and is answered from the ledger: its effect is done, unknown or running.
    With `on_orphan="retry"` only what is done counts, because the handler runs again otherwise.

    Raises:
        CallRefusedError: as `effect_key_of`.
        StoreError: the ledger cannot be read.
    """
    environment = run.environment
    if not tool.claims or not run.ref.is_named:
        return False
    ledger = environment.effect_ledger
    key = await effect_key_of(run, tool)
    row = await run.mode.write_to(ledger.units, partial(_started, ledger, key))
    if row is None:
        return False
    # Another call with the same key was decided, not this one.
    owner = (row.owner.session_id, row.owner.call.stored, row.tool, row.params_hash)
    if owner != (environment.session.session_id, run.ref.stored, tool.name, key.params_hash):
        return False
    return row.status == "done" or tool.on_orphan != "retry"
