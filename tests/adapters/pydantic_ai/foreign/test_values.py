"""What is recorded and sent of the values of foreign tools, and of their secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field, Secret, SecretBytes, SecretStr
from pydantic_ai import BinaryContent, Tool, ToolReturn
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.toolsets import FunctionToolset

from handrail.adapters.pydantic_ai.foreign.values import replayed_value
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolMessage
from handrail.runtime.ledger.records import read_arguments
from handrail.serde import MASK, digest
from handrail.store import EffectRow, MemoryStore
from handrail.testing import Call, Outcome
from tests.adapters.kit import Shy, call_by_hand, called, events, noted, pipeline, play, returns, write
from tests.runtime.calls.test_records import through_a_store
from tests.wording import Wording

pytestmark = pytest.mark.anyio


class Mute:
    """It cannot even be looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def _deep(levels: int = 100_000) -> list[Any]:
    deep: list[Any] = []
    for _ in range(levels):
        deep = [deep]
    return deep


def _itself() -> dict[str, Any]:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    return ring


UNSAYABLE = object()
"""What is told of a list that cannot be shown."""
VALUES: dict[str, tuple[Callable[[], Any], Any]] = {
    "not a number": (lambda: {"rate": float("nan")}, {"rate": "NaN"}),
    "model": (lambda: Shy(part=7), {"part": 7}),
    "nothing": (lambda: None, None),
    "bytes": (lambda: b"\xff", r"b'\xff'"),
    "half a character": (lambda: "\ud800", r"'\ud800'"),
    "half a character by repr": (lambda: Shy(part="\ud800"), r"shy \ud800"),
    "holds itself": (_itself, {"ring": "..."}),
    "too deep": (_deep, UNSAYABLE),
    "too deep in a message": (lambda: _deep(195), str(_deep(195))),
    "object": (lambda: len, "<built-in function len>"),
    "cannot be looked at": (lambda: [Mute(), "\ud800"], UNSAYABLE),
    "number too long": (lambda: [10**5000], UNSAYABLE),
}


@pytest.mark.parametrize("name", VALUES)
async def test_a_value_is_recorded_as_json_has_it(name: str, wording: Wording) -> None:
    """What JSON cannot say is told in words; PydanticAI gets the same."""
    make, content = VALUES[name]
    content = wording if content is UNSAYABLE else content

    async def give() -> Any:
        return make()

    session = Session()
    given = await call_by_hand(pipeline(session), FunctionToolset[Any]([give]), "give")
    assert given == content
    assert events(session)[0].result.value == content
    assert through_a_store(events(session)[0]).result.value == content


@pytest.mark.parametrize("name", VALUES)
async def test_no_value_ends_the_run_later(name: str) -> None:
    """The history can be written and read again, and what stands beside a value is kept."""
    value = VALUES[name][0]()

    async def give() -> Any:
        return ToolReturn[Any](value, content=["a picture"], metadata={"size": 3})

    result = await play(pipeline(Session()), called(Call("give")), tools=[give])
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(result.all_messages()))
    assert (returns(history)["c1"].outcome, returns(history)["c1"].metadata) == ("success", {"size": 3})
    assert "a picture" in str(history)


def _noting(*words: str) -> Iterator[str]:
    for word in words:
        write(word)
        yield word


READ: dict[str, tuple[Callable[[], Any], Any]] = {
    "map": (lambda: map(str, (1, 2)), ["1", "2"]),
    "in a mapping": (lambda: {"a": _noting("x"), "b": 1}, {"a": ["x"], "b": 1}),
    "in each other": (lambda: ({"a": (_noting("x"),)} for _ in range(2)), [{"a": [["x"]]}] * 2),
    "in a return": (lambda: ToolReturn[Any]({"a": _noting("x")}), {"a": ["x"]}),
}


@pytest.mark.parametrize("make, seen", READ.values(), ids=READ)
async def test_iterators_are_read_inside_the_call(make: Callable[[], Any], seen: Any) -> None:
    """Wherever they stand: the model and the record have the same items."""

    async def give() -> Any:
        return make()

    session = Session()
    given = await call_by_hand(pipeline(session), FunctionToolset[Any]([give]), "give")
    assert (given.return_value if isinstance(given, ToolReturn) else given) == seen
    assert events(session)[0].result.value == seen
    assert set(noted(session)) <= {"x"}


async def test_an_iterator_that_fails_fails_its_call() -> None:
    """What it did before is undone."""

    def late() -> Iterator[str]:
        yield from _noting("half")
        raise KeyError("late")

    async def give() -> Any:
        return late()

    session = Session()
    await play(pipeline(session), called(Call("give"), c1=Outcome.failed("KeyError: 'late'")), tools=[give])
    assert noted(session) == []


async def _yielding() -> object:
    """An `async def` that yields: PydanticAI takes it for a function that returns a generator."""
    write("half")
    yield "one"


async def test_what_yields_asynchronously_is_a_failed_call(wording: Wording) -> None:
    """Nobody would read it, and the model would be told of an object at some address."""
    session = Session()
    script = called(Call("give"), c1=Outcome.failed())
    result = await play(pipeline(session), script, tools=[Tool(_yielding, name="give")])
    assert returns(result.all_messages())["c1"].content == wording
    assert (noted(session), [event.success for event in events(session)]) == ([], [False])


IMAGE, OTHER = (BinaryContent.narrow_type(BinaryContent(data, media_type="image/png")) for data in (b"1", b"2"))


FILES: dict[str, tuple[Any, Any, Any]] = {
    "a file": (IMAGE, None, [IMAGE]),
    "among others": (["one", IMAGE, {"two": 2}, OTHER], ["one", {"two": 2}], ["one", {"two": 2}, IMAGE, OTHER]),
    "in a return": (ToolReturn([IMAGE], content="aside"), [], [IMAGE]),
    "none": ("text", "text", "text"),
}


@pytest.mark.parametrize("returned, kept, given", FILES.values(), ids=FILES)
async def test_files_are_recorded_as_parts_and_replayed_as_files(returned: Any, kept: Any, given: Any) -> None:
    """The model gets the files again, and not their JSON."""

    async def give() -> Any:
        return returned

    session = Session()
    assert await call_by_hand(pipeline(session), FunctionToolset[Any]([give]), "give") == returned
    event = through_a_store(events(session)[0])
    assert event.result.value == kept
    again = ToolMessage("c1", "", success=True, result=event.result)
    assert replayed_value(again) == given


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
        assert row.params_hash not in {digest({"user": "ada", "password": item}) for item in (*tried, MASK)}


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


async def test_a_key_function_gets_secrets_as_the_objects_that_hold_them() -> None:
    """As that of Handrail's own tools does: it cannot put one into the key without asking for it."""
    views: list[Any] = []

    def key(params: dict[str, Any]) -> str:
        views.append(params["password"])
        return str(params["user"])

    def enter(user: str, password: SecretStr) -> str:
        return "ok"

    custom = IdempotencyConfig(strategy="custom", key_fn=key)
    tool = Tool(enter, name="log_in", metadata={"effect": "external", "idempotency": custom})
    (row,) = await rows_after(log_in("one"), tools={"tools": [tool]})
    assert views == [SecretStr("one")]
    assert row.key == "session:ada"


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
