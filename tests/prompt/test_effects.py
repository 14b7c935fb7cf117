"""Effects: the declaration of an external effect, and the keys of effects."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from handrail.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    HandrailError,
    InvalidReturnError,
    ModelVisibleError,
    PromptEvaluationError,
    PromptValidationError,
    RunAbortedError,
    ToolValidationError,
)
from handrail.prompt import External, IdempotencyConfig, Tool, ToolResult
from handrail.prompt.idempotency import EffectKey, slot_effect_key, slot_key
from handrail.serde import canonical_json, digest
from handrail.session.calls import CallRef, is_reply
from tests.kit import Note, echo, raises, refusal
from tests.wording import Wording


def find_out(params: Note, key: str) -> ToolResult[Note] | None:
    """Say that it did not happen."""
    return None


def pay(**options: Any) -> Tool[Note, Note]:
    """A tool."""
    given: dict[str, Any] = {"name": "pay", "description": "Pays.", "handler": echo} | options
    return Tool[Note, Note](**given)


def refused(**options: Any) -> str:
    """What a tool that is declared so is refused with."""
    return str(refusal(PromptValidationError, pay, **options))


BY_THE_RUNTIME = (HandrailError, ModelVisibleError, RunAbortedError, DeadlineExceededError, BudgetExceededError)
BY_ANYTHING = (Exception, BaseException, OSError, TimeoutError, ExceptionGroup, KeyboardInterrupt)


@pytest.mark.parametrize("kind", [*BY_THE_RUNTIME, PromptEvaluationError, *BY_ANYTHING])
@pytest.mark.short(6)
def test_types_that_prove_nothing_are_refused(kind: Any, wording: Wording) -> None:
    """They are raised after an effect as well as before it; so is a deadline that passes while the handler runs."""
    with raises(PromptValidationError, wording):
        External(not_applied_on=(kind,))


def test_fields_are_held_to_their_ranges(wording: Wording) -> None:
    """Each message names the field and what would be right."""
    wrong: list[dict[str, Any]] = [{"on_orphan": "again"}, {"repeat_unknown": "yes"}]
    wrong += [{"reconcile_proves_absence": "no"}, {"accept_late_result": "no"}]
    wrong += [{"reconcile_proves_absence": True}, {"lease": 60}, {"lease": timedelta(0)}]
    for fields in wrong:
        with raises(PromptValidationError, wording):
            External(**fields)


def test_contradictions_are_refused(wording: Wording) -> None:
    """The message names both places."""
    assert refused(effect=External(reconcile=cast("Any", len))) == wording


CONTRADICTIONS: dict[str, Callable[[], object]] = {
    "no reconciler to be asked": lambda: External(on_orphan="reconcile"),
    "a reconciler that is not asked": lambda: External(on_orphan="retry", reconcile=find_out),
    "a repeat of a key": lambda: pay(effect=External(repeat_unknown="allow"), idempotency=IdempotencyConfig()),
}


@pytest.mark.parametrize("declare", CONTRADICTIONS.values(), ids=list(CONTRADICTIONS))
def test_of_two_options_that_contradict_each_other_neither_wins(
    declare: Callable[[], object], wording: Wording
) -> None:
    """The tool is not made, and the message says what to write; otherwise an effect would run again unasked."""
    with raises(PromptValidationError, wording):
        declare()


@pytest.mark.parametrize(
    "effect, expected", [({"effect": "state"}, "retry"), ({}, "unknown"), ({"effect": "external"}, "unknown")]
)
def test_orphan_of_a_tool_that_declares_state_is_retried(effect: dict[str, Any], expected: str) -> None:
    """What it wrote has been undone; a tool that does not say what it does may act outside."""
    assert pay(idempotency=IdempotencyConfig(), **effect).on_orphan == expected


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: int = 1


def _full_hash(value: object) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()


REFUSED: list[dict[str, Any]] = [
    *({"strategy": "hash"}, {"strategy": "params"}, {"param_keys": ("order_id",)}),
    *({"strategy": "custom"}, {"key_fn": str}, {"ttl": timedelta(0)}, {"ttl": timedelta.max}, {"ttl": 3600}),
    *({"scope": ""}, {"scope": " global"}, {"scope": "a\0b"}, {"scope": "call"}),
]


@pytest.mark.parametrize("arguments", REFUSED, ids=repr)
def test_wrong_configuration_is_refused_with_its_cure(arguments: dict[str, Any], wording: Wording) -> None:
    """A declaration that cannot mean anything is refused where it is made."""
    with raises(PromptValidationError, wording):
        IdempotencyConfig(**arguments)


CONFIGS = {
    "auto": IdempotencyConfig(),
    "params": IdempotencyConfig(strategy="params", param_keys=("order_id",)),
    "custom": IdempotencyConfig(strategy="custom", key_fn=lambda p: f"order:{p.order_id!r}"),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@given(order_id=st.text(st.characters(codec="utf-8"), max_size=20), amount=st.integers(-(2**53), 2**53))
def test_hash_beside_the_key_is_of_all_arguments(config: IdempotencyConfig, order_id: str, amount: int) -> None:
    """Whatever the key is made from, the whole arguments are compared before a result is replayed."""
    order = Order(order_id, amount)
    found = config.effect_key("create_order", order, session_id="s1")
    assert found == EffectKey("s1", cast("str", config.key_for("create_order", order)), _full_hash(order))
    assert found == config.effect_key("create_order", Order(order_id, amount), session_id="s1")


def test_slot_is_the_call_within_its_session() -> None:
    """A call without a declared key is known by reply and id; the hash is of the arguments that the model wrote."""
    assert slot_key(CallRef(None, "call_7")) == "call:call_7"
    assert slot_key(CallRef("resp_1", "call_7")) == "call:resp_1/call_7"
    words = {"number": "1"}
    assert slot_effect_key(CallRef("r", "call_7"), words, session_id="s1") == EffectKey(
        "s1", "call:r/call_7", _full_hash(words)
    )


def test_slots_of_two_calls_are_never_one() -> None:
    """Reply and id may hold any character; the key of a slot keeps them apart."""
    parts = ("a", "a/b", "b", "/", "%2F", "%", "a b", "é", "\n")
    refs = [CallRef(reply, call_id) for reply in (None, *parts) for call_id in parts]
    assert len({slot_key(ref) for ref in refs}) == len(refs)
    assert [CallRef.parse(str(ref)) for ref in refs] == refs


@pytest.mark.parametrize("text", ["%ff", "%ff/a", "a/%ff", "%C3"])
def test_text_that_names_no_call_is_an_id(text: str) -> None:
    """What is not percent-encoded UTF-8 was not written by `str` of a call."""
    assert CallRef.parse(text) == CallRef(None, text)


@pytest.mark.parametrize("reply", [None, "", "r", "@r", "r/c", "%40", "x" * 600])
@pytest.mark.parametrize("call_id", ["", "c", "@c", "/"])
def test_nested_call_names_its_parent_and_is_never_taken_for_a_call_of_the_model(
    reply: str | None, call_id: str
) -> None:
    """At any depth, and where a digest stands for a name that is too long."""
    outer = CallRef(reply, call_id)
    inner = CallRef.nested(outer, "0")
    innermost = CallRef.nested(inner, "0")
    assert (inner.parent, innermost.parent) == (outer, inner)
    assert CallRef.parse(str(innermost)) == innermost
    for nested in (inner, innermost):
        assert not is_reply(nested.reply)
        assert not is_reply(nested.storable.reply)


def _raise_for_the_model(params: object) -> str:
    raise ToolValidationError("order_id must start with 'ord-'")


BAD_KEYS: dict[str, Callable[[Any], Any]] = {
    "speaks to the model": _raise_for_the_model,
    "raises": lambda _: dict[str, str]()["token"],
    "empty": lambda _: "",
    "too long": lambda _: "x" * 513,
    "a zero": lambda _: "a\0b",
    "half a character": lambda _: "\ud800",
}


@pytest.mark.parametrize("key_fn", BAD_KEYS.values(), ids=BAD_KEYS)
def test_function_that_makes_no_key_fails_the_call(key_fn: Callable[[Any], Any], wording: Wording) -> None:
    """Without a key nothing may run; the message names tool and fault, or is that of a `ToolValidationError`."""
    config = IdempotencyConfig(strategy="custom", key_fn=key_fn)
    with raises(ToolValidationError, wording):
        config.key_for("create_order", Order("1"))
    with raises(ToolValidationError, wording):
        config.effect_key("create_order", Order("1"), session_id="s1")


@pytest.mark.parametrize("key", [7, None, b"x"])
def test_function_that_returns_no_text_is_the_developers_mistake(key: Any, wording: Wording) -> None:
    """Whatever the arguments are: the model can do nothing about it."""
    config = IdempotencyConfig(strategy="custom", key_fn=lambda _: key)
    with raises(InvalidReturnError, wording) as raised:
        config.key_for("create_order", Order("1"))
    assert (raised.value.tool, raised.value.value_type) == ("create_order", type(key))


def test_arguments_without_canonical_form_fail_the_call(wording: Wording) -> None:
    """What cannot be hashed has no key, so nothing may run; the message says what is wrong with it."""
    endless = {"rate": float("inf")}
    for make in (
        lambda: IdempotencyConfig().key_for("pay", endless),
        lambda: IdempotencyConfig().effect_key("pay", endless, session_id="s1"),
        lambda: slot_effect_key(CallRef("r", "7"), endless, session_id="s1"),
    ):
        with raises(ToolValidationError, wording):
            make()


def test_missing_field_is_refused_at_the_call_and_at_registration(wording: Wording) -> None:
    """`param_keys` that name no field are found when the tool is declared; without that, when it is called."""
    config = IdempotencyConfig(strategy="params", param_keys=("order_id", "token"))
    with raises(ToolValidationError, wording):
        config.key_for("create_order", Order("1"))
    with raises(PromptValidationError, wording) as wrong:
        config.check_params_type(Order, tool="create_order")
    assert (wrong.value.tool, wrong.value.dataclass) == ("create_order", Order)
    with raises(PromptValidationError, wording):
        config.check_params_type(None, tool="create_order")
    IdempotencyConfig(strategy="params", param_keys=("amount",)).check_params_type(Order, tool="create_order")
    IdempotencyConfig().check_params_type(None, tool="beep")


def test_decoded_arguments_make_the_same_keys_as_parsed_ones() -> None:
    """Arguments that are a mapping are looked at by its keys, never by the attributes of a mapping."""
    config = IdempotencyConfig(strategy="params", param_keys=("order_id",))
    decoded = {"order_id": "7", "amount": 3}
    assert config.key_for("pay", decoded) == config.key_for("pay", Order("7", 9))
    assert config.key_for("pay", {"order_id": "8"}) != config.key_for("pay", decoded)
    found = config.effect_key("pay", decoded, session_id="s1")
    assert found == EffectKey("s1", cast("str", config.key_for("pay", decoded)), _full_hash(decoded))
    assert IdempotencyConfig().key_for("pay", decoded) == IdempotencyConfig().key_for("pay", Order("7", 3))
    of_method = IdempotencyConfig(strategy="params", param_keys=("items",))
    assert of_method.key_for("pay", {"items": [1]}) != of_method.key_for("pay", {"items": [2]})


def test_decoded_arguments_may_lack_a_key(wording: Wording) -> None:
    """Then there is no key, and nothing may run; one that is there and null is a key."""
    config = IdempotencyConfig(strategy="params", param_keys=("order_id", "items"))
    lacking: list[dict[str, object]] = [{"order_id": "7"}, {"items": []}, {}]
    for params in lacking:
        with raises(ToolValidationError, wording):
            config.effect_key("pay", params, session_id="s1")
    assert config.key_for("pay", {"order_id": None, "items": None}) is not None


@dataclass(frozen=True)
class Login:
    user: str
    password: SecretStr


KEY = b"k" * 32


@pytest.mark.parametrize("strategy", ["auto", "params"])
def test_parameters_with_secrets_are_hashed_with_the_key_of_the_store(strategy: Any) -> None:
    """Over what the secrets hold, in the key and beside it; of the named fields as well if none of them is secret."""
    config = IdempotencyConfig(strategy=strategy, param_keys=("user",) if strategy == "params" else ())
    one, other = Login("ada", SecretStr("one")), Login("ada", SecretStr("two"))
    found, second = (config.effect_key("log_in", each, session_id="s1", hash_key=KEY) for each in (one, other))
    assert found is not None
    assert second is not None
    assert found.params_hash == digest(one, key=KEY) != second.params_hash
    in_key = digest({"user": "ada"} if strategy == "params" else one, key=KEY)
    assert found.key == config.key_for("log_in", one, hash_key=KEY) == f"session:log_in:{in_key[:12]}"
    assert (found.key == second.key) is (strategy == "params")
    assert found != config.effect_key("log_in", one, session_id="s1", hash_key=b"l" * 32)


def test_parameters_with_secrets_have_no_key_without_that_of_the_store(wording: Wording) -> None:
    """A key that the ledger would not find, or that takes two secrets for one, is not made."""
    login = Login("ada", SecretStr("one"))
    custom = IdempotencyConfig(strategy="custom", key_fn=lambda params: params.user)
    assert custom.key_for("log_in", login, hash_key=KEY) == "session:ada"
    with raises(ValueError, wording):
        IdempotencyConfig().key_for("log_in", login)
    with raises(ValueError, wording):
        custom.effect_key("log_in", login, session_id="s1")
    assert IdempotencyConfig(strategy="none").effect_key("log_in", login, session_id="s1") is None


def test_a_slot_of_a_tool_with_secrets_is_hashed_with_the_key_of_the_store() -> None:
    """The model writes the secret in clear, and the hash does not give it away."""
    words = {"user": "ada", "password": "one"}
    slot = slot_effect_key(CallRef("r", "c"), words, session_id="s1", hash_key=KEY)
    assert slot == EffectKey("s1", "call:r/c", digest(words, key=KEY))
    assert slot.params_hash != _full_hash(words)
