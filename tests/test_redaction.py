"""Secrets are removed from texts, by their values and by their forms."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.redaction import (
    KNOWN_FORMS,
    MASK,
    CallSecrets,
    Redaction,
    SecretForm,
    current_redaction,
    redacted,
    redacted_logger,
    use_redaction,
)
from handrail.serde import schema_masking, type_masking

SECRET = "correct horse \"battery\" 'staple'\n\\ü"  # noqa: S105 - the one that is looked for


@pytest.fixture
def own() -> Iterator[Redaction]:
    """A redaction of the process that knows one secret and one name."""
    before = use_redaction(Redaction(values=frozenset({SECRET}), names=frozenset({"iban", "api-key"})))
    yield current_redaction()
    use_redaction(before)


@pytest.mark.parametrize(
    "spelled",
    [
        *(SECRET, repr(SECRET), repr({"k": SECRET}), json.dumps(SECRET), json.dumps([SECRET], ensure_ascii=False)),
        *(ascii(SECRET), repr(SECRET.encode()), quote_plus(SECRET), quote(SECRET, safe="").lower()),
    ],
)
def test_a_value_is_found_however_it_is_spelled(spelled: str) -> None:
    """In quotes of Python and in JSON it has escapes."""
    shown = Redaction(values=frozenset({SECRET})).text(f"<{spelled}>")
    assert "staple" not in shown
    assert MASK in shown


def test_a_value_is_found_in_a_url() -> None:
    """There it is quoted, and what has a meaning there may stand."""
    redaction = Redaction(values=frozenset({"p/ss wo@rd"}))
    for safe in ("", "/", "/@"):
        assert redaction.text(f"x/{quote('p/ss wo@rd', safe=safe)}/y") == f"x/{MASK}/y"


def test_the_lines_of_a_value_are_found() -> None:
    """A group of exceptions is written with a margin before each line. A line without letters is often another text."""
    value = "-----KEY-----\n  first line\n        \n----------\nshort\n"
    redaction, secrets = Redaction(values=frozenset({value})), CallSecrets()
    secrets.add(lambda: [value])
    for text in (redaction.text, secrets.text):
        assert text(f"<{value}>") == f"<{MASK}>"
        assert text("  | -----KEY-----\n  |   first line") == f"  | {MASK}\n  |   {MASK}"
        assert text(f"a{' ' * 8}b\n----------\nshort") == f"a{' ' * 8}b\n----------\nshort"


def test_a_long_secret_of_a_call_is_found_in_a_long_text() -> None:
    """It is not prepared for a text that is too short to have it; a line of it may be in one."""
    secret = "first line\n" + "long " * 20_000
    secrets = CallSecrets()
    secrets.add(lambda: [secret])
    assert secrets.text("a short text") == "a short text"
    assert secrets.text("the first line") == f"the {MASK}"
    for spelled in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret)):
        assert secrets.text(f"<{spelled}>") == f"<{MASK}>"
    assert secrets.text(f"<{'x' * 300_000}{secret}>") == f"<{'x' * 300_000}{MASK}>"


@given(st.text(min_size=8, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_no_text_holds_a_value(value: str, before: str, after: str) -> None:
    """Wherever it stands, and however often."""
    shown = Redaction(values=frozenset({value}), forms=()).text(f"{before}{value}{after}{value}")
    assert value not in shown or value in MASK * 2 + before + after


def test_one_secret_may_be_a_part_of_another() -> None:
    """The longest one is replaced first, so that nothing of it is left; short ones are often parts of words."""
    redaction = Redaction(values=frozenset({"password", "password-of-ada", "is"}))
    assert redaction.text("this is password-of-ada, password") == f"this is {MASK}, {MASK}"


TOKENS = (
    *("sk_live_abcdefghijklmn", "ghp_abcdefghijklmnopqrstuvwx", "xoxb-1234567890-abc", "AKIAABCDEFGHIJKLMNOP"),
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
)
HARMLESS = (
    *("http://localhost:8080/users/@me", "sqlite:///desk.db", "postgresql://ada@host:5432/db"),
    *("a task-force, a basic idea, the bearer of news", "$.password: expected a string"),
)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("postgresql://ada:secret@host/db", f"postgresql://ada:{MASK}@host/db"),
        ("postgresql://ada:se:cr@e/t?x@host/db is down", f"postgresql://ada:{MASK}@host/db is down"),
        ("postgresql://host/db?user=ada&password=secret&x=1", f"postgresql://host/db?user=ada&password={MASK}&x=1"),
        ("host=h PASSWORD='a b' dbname=d", f"host=h PASSWORD='{MASK}' dbname=d"),
        ("postgresql://ada:1234?tr0ub@db/desk", f"postgresql://ada:{MASK}@db/desk"),
        ("postgresql://ada:2024/tr0ub@db", f"postgresql://ada:{MASK}@db"),
        ("{'user': 'ada', 'password': 'x'}", f"{{'user': 'ada', 'password': '{MASK}'}}"),
        (r"{\"password\": \"a\\\"b\"}", rf"{{\"password\": \"{MASK}\"}}"),
        ("password: hunter2", f"password: {MASK}"),
        ("passWord=ab;cd1234&x=1", f"passWord={MASK}&x=1"),
        ("Server=h;Pwd=ab,cd;Database=d", f"Server=h;Pwd={MASK};Database=d"),
        ("UID=sa;PWD=abcd;", f"UID=sa;PWD={MASK};"),
        ("{'PWD': '/srv/desk', 'pwd': '/x'}", f"{{'PWD': '/srv/desk', 'pwd': '{MASK}'}}"),
        (r"PWD=C:\desk PWD: abc123", rf"PWD=C:\desk PWD: {MASK}"),
        ("/v1?api_key=ab=cd&client_secret=b", f"/v1?api_key={MASK}&client_secret={MASK}"),
        ("X-Api-Key: k1234567", f"X-Api-Key: {MASK}"),
        ("Authorization: basic YWRhOnB3cHc=", f"Authorization: basic {MASK}"),
        ("https://a1b2c3d4@github.com/x", f"https://{MASK}@github.com/x"),
        ("x://a:b/x://c:d@host", f"x://a:{MASK}@host"),
        (f"x://a:{'long' * 1_000}@host", f"x://a:{MASK}@host"),
        ("http://h:80/x://a:b@host", f"http://h:80/x://a:{MASK}@host"),
        ("my-db_password=x", f"my-db_password={MASK}"),
        ("Authorization: Bearer abc.def-ghi", f"Authorization: Bearer {MASK}"),
        ("the key sk-ant-api03-abcdefghijklmnop is wrong", f"the key {MASK} is wrong"),
        *((token, MASK) for token in TOKENS),
        ("x-eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl, eyJab-cd", f"x-{MASK}, eyJab-cd"),
        *((text, text) for text in HARMLESS),
    ],
)
def test_secrets_are_recognized_by_their_form(text: str, shown: str) -> None:
    """What is beside them stays."""
    assert Redaction().text(text) == shown


def test_a_private_key_is_removed_also_if_it_is_cut_off() -> None:
    """The first lines of a text may be all that is shown."""
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n"
    assert "MIIE" not in Redaction().text(key)
    assert Redaction().text(f"{key}-----END RSA PRIVATE KEY----- x").endswith("-----END RSA PRIVATE KEY----- x")


LONG = 300_000
"""Characters of a long text: what searches it from each of its characters on takes minutes."""

LONG_TEXTS = {
    "a word of letters": "token " + "x" * LONG,
    "a word of a name, again and again": "api_key" * (LONG // 7),
    "a word with hyphens": "secret " + "a-" * (LONG // 2),
    "a long value": "password: " + "y" * LONG,
    "a value without an end": "password='" + "y" * LONG,
    "backslashes around a quote": "password=" + "\\" * (LONG // 2) + "'" + "\\" * (LONG // 2),
    "blanks after a name": "password" + " " * LONG,
    "brackets after a name": "password=" + "(" * LONG,
    "settings without a value": "password=;" + ";a" * (LONG // 2),
    "names and colons": "password : " * (LONG // 11),
    "URLs without an end": "://u:" * (LONG // 5),
    "URLs of the web without an end": "https://u:" * (LONG // 10),
    "URLs with nothing but an @": "://u:@" * (LONG // 6),
    "tokens without a second part": "-eyJ" * (LONG // 4),
    "tokens without a third part": ("-eyJ" * 10 + ".") * (LONG // 41),
    "a key without an end": "-----BEGIN PRIVATE KEY-----" + "-----BEGIN " * (LONG // 11),
    "words that are secrets of the call": "4711 " * (LONG // 5),
    "a word that begins with one": "4711" * (LONG // 4),
    **{f"hints: {form.hints[0]}": "".join(form.hints) * (LONG // len("".join(form.hints))) for form in KNOWN_FORMS},
}


@pytest.mark.short(len(LONG_TEXTS))
@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_the_time_of_a_search_is_linear_in_the_text(kind: str) -> None:
    """A text of an exception may come from a page that a tool has fetched, and no other thread runs meanwhile."""
    secrets = CallSecrets()
    secrets.add(lambda: ["4711", "of the call"])
    search = secrets.join(Redaction(values=frozenset({"of the operator"})))
    end = search(f"{LONG_TEXTS[kind]}\npassword=the-last\n")[-20:]
    assert MASK in end
    assert "the-last" not in end


@given(st.text())
def test_a_text_without_secrets_is_the_same(text: str) -> None:
    """The redaction of no values and no forms changes nothing."""
    assert Redaction(forms=()).text(text) == text


def test_the_environment_says_what_is_secret() -> None:
    """By the names of its variables, and by passwords in URLs."""
    secret = {"STRIPE_API_KEY": "stripe-key", "PGPASSWORD": "pg-password", "my_token": "lower-token"}
    secret |= {"DATABASE_PW": "short-for-word", "APP_JWT": "signed-token"}
    others = {"DATABASE_URL": "postgresql://ada:url-password@h/db", "HANDRAIL_SECRET_NAMES": "iban, api-key,"}
    others |= {"PATH": "/usr/bin/of/nothing", "KEYBOARD": "keyboard-layout"}
    redaction = Redaction.of_environment(secret | others)
    assert redaction.values == {*secret.values(), "url-password"}
    assert redaction.names == {"iban", "api-key"}
    assert "stripe-key" not in repr(redaction)


def test_a_redaction_can_be_extended() -> None:
    """A program adds values, forms and names of its own."""
    of_environment = Redaction.of_environment({"A_TOKEN": "the-token"})
    mine = replace(of_environment, forms=(*KNOWN_FORMS, SecretForm(("X-",), r"X-\d{6}")))
    assert mine.text("the-token X-123456 X-1") == f"{MASK} {MASK} X-1"


def test_one_text_is_not_a_set_of_texts() -> None:
    """Its characters would be taken for secrets."""
    with pytest.raises(TypeError):
        Redaction(values="password")
    with pytest.raises(TypeError):
        Redaction(names="password")


@dataclass(frozen=True)
class Transfer:
    """A value with fields that the operator has listed."""

    iban: str
    API_KEY: str
    cents: int


@pytest.mark.usefixtures("own")
def test_names_of_the_operator_are_secret_in_types_and_schemas() -> None:
    """Without regard to case, `-` and `_`."""
    plain = {"iban": "DE1", "API_KEY": "k", "cents": 5}
    shown = {"iban": MASK, "API_KEY": MASK, "cents": 5}
    assert type_masking(Transfer).mask(plain) == shown
    properties = {"iban": {"type": "string"}, "API_KEY": {}, "cents": {"type": "integer"}}
    assert schema_masking({"type": "object", "properties": properties}).mask(plain) == shown


def test_a_logger_writes_no_secrets(own: Redaction, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the message, nor in its arguments, nor in a traceback."""
    log = redacted_logger("handrail.test-of-redaction")
    assert redacted_logger("handrail.test-of-redaction") is log
    assert len(log.filters) == 1
    log.error("got %s", SECRET)
    error = KeyError({"k": SECRET})
    error.__cause__ = ValueError(SECRET)
    log.error("failed", exc_info=error)
    log.warning("fine: %d", 3, exc_info=ValueError("odd"))
    assert "staple" not in caplog.text
    assert "KeyError" in caplog.text
    assert [record.getMessage() for record in caplog.records] == [f"got {MASK}", "failed", "fine: 3"]
    assert [record.exc_info is None for record in caplog.records] == [True, True, False]
    assert redacted(SECRET) == MASK
    assert own.hides_name("Iban")
    assert logging.getLogger("handrail.test-of-redaction") is log
    assert log.filter(logging.makeLogRecord({"msg": "%d", "args": ("text",)}))  # its handlers report that
