"""`TaintPolicy`: what a tainted session may do, and what of the arguments of a call is compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import Field, SecretStr

from handrail import tool
from handrail.errors import PromptValidationError
from handrail.prompt import ApprovalRequest
from handrail.redaction import MASK
from handrail.runtime import Session, ToolCall
from handrail.serde import dump, parse, schema
from handrail.session.calls import CallRef
from handrail.taint import Sanitized, TaintPolicy, taint_by_answer
from handrail.taint.policy import JudgedArguments
from tests.taint.desk import call, desk
from tests.wording import Wording

STOLEN = "DE89370400440532013000"


@tool(effect="read", untrusted=True)
def page(url: str) -> str:
    """Read a page."""
    return f"page {url[0]} is here"


@tool(effect="external")
def send(to: str, headers: dict[str, str | None]) -> str:
    """Send a mail."""
    return f"sent to {to} with {headers}"


@dataclass(frozen=True)
class Login:
    """A login, one secret of which has a type of its own."""

    user: str
    token: SecretStr
    pin: Annotated[str, Field(json_schema_extra={"writeOnly": True})]


@tool(effect="read", sanitizes=True)
def login() -> Login:
    """The login of the desk."""
    return Login("ada", SecretStr("good"), "1234")


@tool(effect="external")
def upload(user: str, token: SecretStr, pin: Annotated[str, Field(json_schema_extra={"writeOnly": True})]) -> str:
    """Upload the orders."""
    return f"uploaded for {user}"


class Asked:
    """An approver that answers yes, and keeps the questions."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, request: ApprovalRequest) -> bool:
        self.texts += [each.text for each in request.questions]
        return True


def test_the_question_names_the_source(wording: Wording) -> None:
    """An external effect is asked about, and a read is not."""
    asked = Asked()
    executor = desk(Session(), TaintPolicy(), approver=asked)
    assert call(executor, "pay", iban=STOLEN, cents=5).success
    assert asked.texts == []
    call(executor, "read_mail", "c", "r", number=1)
    call(executor, "list_orders")
    call(executor, "pay", iban=STOLEN, cents=5)
    assert "\n".join(asked.texts) == wording


def test_the_policy_denies_and_guards_what_it_is_given(wording: Wording) -> None:
    """Tools beside those with an external effect are named by globs."""
    asked = Asked()
    executor = desk(Session(), TaintPolicy(on_tainted="deny", tools=["list_*"]), approver=asked)
    assert call(executor, "list_orders").success
    call(executor, "read_mail", "c", "r", number=1)
    refused = [call(executor, "list_orders"), call(executor, "pay", iban=STOLEN, cents=5)]
    assert [each.success for each in refused] == [False, False]
    assert "\n".join(each.content for each in refused) == wording
    assert asked.texts == []


def test_child_and_parent_are_judged_by_what_the_other_has_read() -> None:
    """The task of a child comes from its parent, and the answer of a child goes there."""
    parent = Session()
    child, sibling = parent.child(), parent.child()
    call(desk(child), "read_mail", "inner", "r", number=1)
    judged = [desk(each, TaintPolicy()) for each in (parent, sibling)]
    assert all(call(each, "pay", iban="x", cents=1).success for each in judged)
    taint_by_answer(parent, child, tool="research", ref=CallRef("r", "c"), arguments="{}")
    assert not any(call(each, "pay", iban="x", cents=1).success for each in judged)


def test_values_of_a_sanitizer_are_used_without_asking() -> None:
    """All values of the call must be such values, and each is recorded with its tool."""
    session = Session()
    executor = desk(session, TaintPolicy())
    call(executor, "read_mail", number=1)
    assert not call(executor, "pay", iban="DE02120300000000202051", cents=5).success
    call(executor, "known_account", "s", "r", name="ACME")
    assert session[Sanitized].all() == (Sanitized("known_account", "r", "s", ("DE02120300000000202051",)),)
    # The amount was not extracted.
    assert not call(executor, "pay", iban="DE02120300000000202051", cents=5).success
    session[Sanitized].append(Sanitized("amount", None, "", ("5",)))
    assert call(executor, "pay", iban="DE02120300000000202051", cents=5).success
    assert not call(executor, "pay", iban=STOLEN, cents=5).success


def test_the_question_names_the_newest_sources_and_cuts_their_arguments(wording: Wording) -> None:
    """Of calls of one name each is a source."""
    asked = Asked()
    executor = desk(Session(), TaintPolicy(), tools=[page], approver=asked)
    for number in range(7):
        executor.execute(ToolCall("call_0", "page", {"url": f"{number}{'x' * 200}"}))
    call(executor, "pay", iban=STOLEN, cents=5)
    assert asked.texts[0] == wording


def test_a_key_of_an_object_is_a_value_of_the_call() -> None:
    """What is written there acts as what is written elsewhere."""
    executor = desk(Session(), TaintPolicy(), tools=[send])
    call(executor, "read_mail", number=1)
    call(executor, "known_account", name="ACME")
    known = "DE02120300000000202051"
    assert not call(executor, "send", to=known, headers={f"Bcc: {STOLEN}": known}).success
    assert not call(executor, "send", to=known, headers={"x": None}).success
    assert call(executor, "send", to=known, headers={known: known}).success


def test_a_secret_is_never_the_value_of_a_sanitizer() -> None:
    """All secrets have one mask, so one of them would vouch for another. None is stored."""
    session = Session()
    executor = desk(session, TaintPolicy(), tools=[login, upload])
    call(executor, "login", "s", "r")
    assert session[Sanitized].all() == (Sanitized("login", "r", "s", ("user", "ada", "token", "pin")),)
    call(executor, "read_mail", number=1)
    for secret in ("evil", "good"):
        assert not call(executor, "upload", user="ada", token=secret, pin="1234").success


def test_a_sanitizer_that_fails_clears_nothing() -> None:
    """Its record says that it failed."""
    session = Session()
    executor = desk(session)
    assert not call(executor, "known_account", name="nobody").success
    assert session[Sanitized].all() == ()


def test_a_policy_that_would_guard_nothing_is_refused(wording: Wording) -> None:
    """`"allow"` would be no policy, and a text would be globs of one letter."""
    faults: list[str] = []
    wrong: list[dict[str, Any]] = [{"on_tainted": "allow"}, {"tools": "read_keys"}, {"tools": [3]}]
    for options in wrong:
        with pytest.raises(PromptValidationError) as raised:
            TaintPolicy(**options)
        faults.append(str(raised.value))
    assert "\n".join(faults) == wording


DEFAULT = SecretStr("default")


@dataclass(frozen=True)
class Address:
    """A nested value with a default."""

    street: str
    country: str = "DE"


@dataclass(frozen=True)
class Letter:
    """Parameters with defaults in all places."""

    to: Address
    others: list[Address] = field(default_factory=list[Address])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    copies: float = 1
    note: str | None = None
    urgent: bool = False
    token: SecretStr = DEFAULT
    after: Address | None = None


@pytest.mark.parametrize(
    "given, chosen",
    [
        ({}, set[str]()),
        ({"others": []}, {"[]"}),
        ({"headers": {}}, {"{}"}),
        ({"headers": {"Bcc": "x"}}, {"Bcc", "x"}),
        ({"headers": {"street": "x"}}, {"x"}),
        ({"copies": 2.0}, {"2"}),
        ({"copies": 2.5, "note": "null", "urgent": True}, {"2.5", "null", "true"}),
        ({"others": [{"street": "b", "country": "FR"}], "after": {"street": "c", "country": "DE"}}, {"b", "FR", "c"}),
    ],
    ids=["defaults", "no items", "no keys", "a key", "a declared key", "whole", "scalars", "nested"],
)
def test_every_text_that_the_model_has_chosen_counts(given: dict[str, Any], chosen: set[str]) -> None:
    """Keys, `null` and empty containers included; names that the schema declares, and defaults, are not chosen.

    A default that a factory makes is not declared.
    """
    letter = parse(Letter, {"to": {"street": "a"}, **given})
    values: Any = {**dump(letter), "token": ""}
    for made in ("others", "headers"):
        if made not in given:
            del values[made]
    assert JudgedArguments(values, schema(Letter)).texts() == {"a", "", *chosen}


def test_a_secret_is_not_equal_to_its_default() -> None:
    """Both have the same mask."""
    values = dump(parse(Letter, {"to": {"street": "a"}, "token": "evil"}))
    assert MASK in JudgedArguments(values, schema(Letter)).texts()


def test_a_call_with_nothing_but_defaults_has_chosen_nothing() -> None:
    """As one without arguments."""
    described = {"type": "object", "properties": {"limit": {"type": "integer", "default": 5}}}
    assert JudgedArguments({"limit": 5}, described).texts() == frozenset()
    assert JudgedArguments({"limit": True}, {"properties": {"limit": {"default": 1}}}).texts() == {"true"}


def test_a_schema_of_a_server_may_refer_to_what_is_not_there() -> None:
    """Or to itself; what it declares is found beside that."""
    described = {
        "$defs": {"loop": {"$ref": "#/$defs/loop"}},
        "allOf": [{"$ref": "#/definitions/none"}, {"$ref": "#/$defs/loop"}, {"$ref": "http://example.com/x"}, True],
        "properties": {"to": {"$ref": "#/$defs/loop", "default": "a"}},
    }
    assert JudgedArguments({"to": "a", "more": "b"}, described).texts() == {"more", "b"}
