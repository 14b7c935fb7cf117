"""The ledger keeps the arguments of an effect, and compares secrets without keeping them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pytest
from pydantic import SecretStr

from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolCall
from handrail.serde import canonical_json, digest
from handrail.store import EffectRow, LedgerStore, MemoryStore
from tests.kit import Note, executor, tool

AUTO = IdempotencyConfig()
BY_USER = IdempotencyConfig(strategy="params", param_keys=("user",))


@dataclass(frozen=True)
class Login:
    user: str
    password: SecretStr
    pin: int = field(default=0, metadata={"secret": True})


class Bank:
    """The world outside: remembers with what passwords it was asked."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fails = False

    def __call__(self, params: Login, *, context: ToolContext) -> ToolResult[str]:
        self.seen.append(params.password.get_secret_value())
        return ToolResult.error("closed") if self.fails else ToolResult.ok(f"{params.user} is logged in")


class KeylessStore(MemoryStore):
    """A store whose key must not be touched."""

    def hash_key(self) -> bytes:
        raise AssertionError


def desk(bank: Bank, store: LedgerStore, **options: Any) -> ToolExecutor:
    """An executor with one external tool, `log_in`."""
    log_in = Tool[Login, str](name="log_in", description="Logs in.", handler=bank, effect="external", **options)
    return executor(log_in, effect_ledger=EffectLedger(store), session=Session(session_id="s"))


def log_in(password: str, *, id: str = "call-1", user: str = "ada") -> ToolCall:
    """A call of it."""
    return ToolCall(id, "log_in", json.dumps({"user": user, "password": password, "pin": 7}))


def rows_of(store: LedgerStore) -> list[EffectRow]:
    """What the ledger holds, by key."""
    return sorted(store.rows())


@pytest.mark.parametrize("config", [AUTO, BY_USER], ids=["auto", "params"])
def test_calls_with_different_secrets_are_different_calls(store: LedgerStore, config: IdempotencyConfig) -> None:
    """The second is not answered with the result of the first: it is another effect, or a conflict of its key."""
    bank = Bank()
    door = desk(bank, store, idempotency=config)
    assert door.execute(log_in("one")).success
    assert door.execute(log_in("one", id="call-2")).replayed
    message = door.execute(log_in("two", id="call-3"))
    assert not message.replayed
    assert message.success is (config is AUTO)
    assert bank.seen == (["one", "two"] if config is AUTO else ["one"])


def test_no_secret_can_be_found_out_from_a_row(store: LedgerStore) -> None:
    """Neither the arguments nor the hashes, in a slot and under a declared key, tell it to whoever tries them all."""
    bank = Bank()
    desk(bank, store).execute(log_in("hunter2"))
    desk(bank, store, idempotency=AUTO).execute(log_in("hunter2", id="call-2"))
    slot, declared = rows_of(store)
    words = {"user": "ada", "password": "hunter2", "pin": 7}
    assert "hunter2" not in repr((slot, declared))
    assert slot.arguments == declared.arguments == b'{"user":"ada","password":"**********","pin":"**********"}'
    for row in (slot, declared):
        assert row.params_hash == digest(words, key=store.hash_key())
        assert row.params_hash != sha256(canonical_json(words)).hexdigest()
    assert slot.key == "call:call-1"
    assert declared.key == f"session:log_in:{declared.params_hash[:12]}"


def test_the_same_call_has_another_hash_in_another_store() -> None:
    """Each store has a key of its own."""
    stores = MemoryStore(), MemoryStore()
    for store in stores:
        desk(Bank(), store).execute(log_in("hunter2"))
    (first,), (second,) = map(rows_of, stores)
    assert first.key == second.key
    assert first.params_hash != second.params_hash


def test_a_tool_without_secrets_does_not_touch_the_key_of_the_store() -> None:
    """Its slots and keys are the hashes that they have always been."""
    store = KeylessStore()
    ledger, session = EffectLedger(store), Session(session_id="s")
    tools = tool("slot", effect="external"), tool("declared", effect="external", idempotency=AUTO)
    door = executor(*tools, effect_ledger=ledger, session=session)
    for name in ("slot", "declared"):
        assert door.execute(ToolCall(name, name, '{"text": "milk"}')).success
    plain = sha256(b'{"text":"milk"}').hexdigest()
    assert [(row.key, row.params_hash, row.arguments) for row in rows_of(store)] == [
        ("call:slot", plain, b'{"text":"milk"}'),
        (f"session:declared:{plain[:12]}", plain, b'{"text":"milk"}'),
    ]


def test_what_a_person_has_changed_is_recorded_beside_what_the_model_wrote(store: LedgerStore) -> None:
    """Whoever decides sees both."""
    door = executor(tool("send", effect="external"), effect_ledger=EffectLedger(store))
    door.execute(ToolCall("c1", "send", {"text": "to bob"}, '{"text": "to eve"}'))
    (row,) = store.rows()
    assert row.arguments == b'{"arguments":{"text":"to bob"},"written":{"text":"to eve"}}'


def test_a_reclaim_stores_the_new_arguments(store: LedgerStore) -> None:
    """After a failure the key may be claimed with other arguments."""
    bank = Bank()
    door = desk(bank, store, idempotency=BY_USER)
    bank.fails = True
    assert not door.execute(log_in("one")).success
    bank.fails = False
    assert door.execute(ToolCall("c2", "log_in", {"user": "ada", "password": "two"}, {"user": "a"})).success
    (row,) = store.rows()
    assert row.status == "done"
    assert json.loads(row.arguments or b"") == {
        "arguments": {"user": "ada", "password": "**********", "pin": "**********"},
        "written": {"user": "a"},
    }


def test_a_result_recorded_by_hand_has_its_arguments(store: LedgerStore) -> None:
    """Without secrets; and other secrets are other arguments, as for a claim."""
    ledger = EffectLedger(store)
    result = ToolResult.ok("done")
    for key, params in (("a", Note("milk")), ("b", Login("ada", SecretStr("x")))):
        ledger.record(idempotency_key=key, tool_name="do", params=params, result=result)
    note, login = rows_of(store)
    assert (note.params_hash, note.arguments) == (digest(Note("milk")), b'{"text":"milk"}')
    assert login.params_hash == digest(Login("ada", SecretStr("x")), key=store.hash_key())
    assert login.arguments == b'{"user":"ada","password":"**********","pin":"**********"}'
