"""Foreign tools that take secrets: what the ledger keeps of them, and that it takes no two of them for one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field, Secret, SecretBytes, SecretStr
from pydantic_ai import Tool

from handrail.runtime import EffectLedger, IdempotencyConfig, Session
from handrail.runtime.ledger.records import read_arguments
from handrail.serde import MASK, digest
from handrail.store import EffectRow, MemoryStore
from handrail.testing import Call, Outcome
from tests.adapters.foreign_desk import called, pipeline, play

AUTO = {"effect": "external", "idempotency": IdempotencyConfig()}


class Credentials(BaseModel):
    """What a model of pydantic's may hold."""

    user: str
    password: SecretStr = Field(alias="passWord")


@dataclass(frozen=True, slots=True)
class Door:
    """What a dataclass may hold."""

    name: str
    code: SecretBytes


async def rows_after(*calls: Call, tools: Any, **came: Outcome) -> list[EffectRow]:
    """What the ledger holds after a run with these calls, by key."""
    store = MemoryStore()
    capability = pipeline(Session(), effect_ledger=EffectLedger(store))
    await play(capability, called(*calls, **came), **tools)
    return sorted(store.rows())


def take(**arguments: Any) -> str:
    """Take whatever is sent."""
    return f"ok, {len(arguments)}"


def log_in(password: str, **more: object) -> Call:
    """A call of a tool with a secret."""
    return Call("log_in", {"user": "ada", "password": password, **more})


@pytest.mark.anyio
async def test_secrets_of_a_function_are_masked_and_told_apart() -> None:
    """Validation makes asterisks of them, and the key is made of what they hold all the same."""
    tried: list[str] = []

    def enter(user: str, password: SecretStr) -> str:
        tried.append(password.get_secret_value())
        return "ok"

    tools = {"tools": [Tool(enter, name="log_in", metadata=AUTO)]}
    rows = await rows_after(log_in("one"), log_in("two"), log_in("one"), tools=tools)
    assert tried == ["one", "two"]
    assert len({row.key for row in rows}) == 2
    for row in rows:
        assert json.loads(row.arguments or b"") == {"user": "ada", "password": MASK}
        assert row.params_hash not in {digest({"user": "ada", "password": each}) for each in (*tried, MASK)}


class Account(BaseModel):
    """A model whose schema shows nothing of its secret."""

    user: str
    pin: Secret[str]


def only_secret(password: Secret[str], user: str = "") -> str:
    """A secret of its own."""
    return "ok"


def in_model(account: Account) -> str:
    """A secret in the only parameter, whose fields are the parameters."""
    return "ok"


def in_list(accounts: list[Account], password: SecretStr, user: str = "") -> str:
    """Secrets deep in the arguments, beside one that the schema shows."""
    return "ok"


def any_name(**more: Secret[str]) -> str:
    """Secrets of any name."""
    return "ok"


HUNTER = {"user": "ada", "pin": "hunter"}
NAMELESS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "parameter": (only_secret, {"password": "hunter", "user": "ada"}, {"password": MASK, "user": "ada"}),
    "default beside it": (only_secret, {"password": "hunter"}, {"password": MASK}),
    "model": (in_model, HUNTER, {"user": "ada", "pin": MASK}),
    "list": (in_list, {"accounts": [HUNTER], "password": "hunter"}, {"accounts": MASK, "password": MASK}),
    "any name": (any_name, {"one": "hunter", "two": "hunter"}, {"one": MASK, "two": MASK}),
}


@pytest.mark.anyio
@pytest.mark.parametrize("function, arguments, shown", NAMELESS.values(), ids=list(NAMELESS))
async def test_secrets_that_a_schema_does_not_show_are_masked_in_what_the_model_wrote(
    function: Any, arguments: dict[str, Any], shown: dict[str, Any]
) -> None:
    """In it `Secret[str]` is a plain string."""
    tools = {"tools": [Tool(function, name="log_in", metadata={"effect": "external"})]}
    (row,) = await rows_after(Call("log_in", arguments), tools=tools)
    assert b"hunter" not in (row.arguments or b"")
    recorded = read_arguments(row.arguments or b"")
    assert (recorded.arguments if recorded.words is None else recorded.words) == shown
    assert row.params_hash != digest(arguments)


@pytest.mark.anyio
async def test_secrets_deep_in_the_arguments_are_told_apart() -> None:
    """In models with aliases, dataclasses, lists and sets."""

    def enter(logins: list[Credentials], doors: dict[str, Door], tokens: set[SecretStr]) -> str:
        return "ok"

    def call(word: str = "p", code: str = "c", tokens: tuple[str, ...] = ("a", "b")) -> Call:
        login = {"user": "ada", "passWord": word}
        return Call(
            "log_in", {"logins": [login], "doors": {"main": {"name": "m", "code": code}}, "tokens": list(tokens)}
        )

    calls = [call(), call("q"), call(code="d"), call(tokens=("a", "c")), call(tokens=("b", "a"))]
    rows = await rows_after(*calls, tools={"tools": [Tool(enter, name="log_in", metadata=AUTO)]})
    assert len(rows) == 4
    assert json.loads(rows[0].arguments or b"")["doors"] == {"main": {"name": "m", "code": MASK}}
    assert json.loads(rows[0].arguments or b"")["tokens"] == MASK


@pytest.mark.anyio
async def test_a_key_function_gets_secrets_as_the_objects_that_hold_them() -> None:
    """As that of Handrail's own tools does: it cannot put one into the key without asking for it."""
    seen: list[Any] = []

    def key(params: dict[str, Any]) -> str:
        seen.append(params["password"])
        return str(params["user"])

    def enter(user: str, password: SecretStr) -> str:
        return "ok"

    custom = IdempotencyConfig(strategy="custom", key_fn=key)
    tool = Tool(enter, name="log_in", metadata={"effect": "external", "idempotency": custom})
    (row,) = await rows_after(log_in("one"), tools={"tools": [tool]})
    assert seen == [SecretStr("one")]
    assert row.key == "session:ada"


@pytest.mark.anyio
async def test_secrets_are_found_in_the_schema_of_a_tool_without_types() -> None:
    """`writeOnly` and the format `password`, as a server may send them; what is not declared beside them is masked."""
    schema = {
        "type": "object",
        "properties": {"user": {"type": "string"}, "password": {"type": "string", "writeOnly": True}},
    }

    tool = Tool[Any].from_schema(take, name="log_in", description="Takes anything.", json_schema=schema)
    tool.metadata = AUTO
    rows = await rows_after(log_in("one", extra="x"), log_in("two"), tools={"tools": [tool]})
    shown = [json.loads(row.arguments or b"") for row in rows]
    assert sorted(shown, key=len) == [
        {"user": "ada", "password": MASK},
        {"user": "ada", "password": MASK, "extra": MASK},
    ]
    assert digest({"user": "ada", "password": "two"}) not in {row.params_hash for row in rows}


@pytest.mark.anyio
async def test_a_schema_that_changes_is_looked_at_anew() -> None:
    """A server may declare its tool in another way while a run goes on."""
    store = MemoryStore()
    capability = pipeline(Session(), effect_ledger=EffectLedger(store))
    for number, marks in enumerate(({}, {"writeOnly": True})):
        schema = {"type": "object", "properties": {"password": {"type": "string", **marks}}}
        tool = Tool[Any].from_schema(take, name="log_in", description="Any.", json_schema=schema)
        tool.metadata = AUTO
        await play(capability, called(Call("log_in", {"password": "one"}, id=f"c{number}")), tools=[tool])
    shown = {row.arguments for row in store.rows()}
    assert shown == {b'{"password":"one"}', b'{"password":"**********"}'}
