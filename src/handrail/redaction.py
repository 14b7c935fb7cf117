"""Removes secrets from texts that leave the process: messages for a model, logs, events, output, exports.

A handler that fails may put a secret into the text of its exception: `raise KeyError(dict(os.environ))`. Nothing there
says what is secret, so a `Redaction` recognizes it: by its value, if the environment or the operator has stated it, or
by its form. `MASK` replaces it. Stored values are never changed.

Values that a session, the ledger or a handler holds are never changed. Where types say what is secret,
`serde.type_masking` does; the names in `Redaction.names` count there, too. What is secret in the arguments or result
of a call is looked for in all that is said of the call while it runs (`CallSecrets`).

The redaction of a process is made from its environment when this module is imported. `use_redaction` replaces it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, NamedTuple, ParamSpec, Self, TypeVar
from urllib.parse import quote, quote_plus

__all__ = [
    "CALL_SECRETS",
    "KNOWN_FORMS",
    "MASK",
    "CallSecrets",
    "Redaction",
    "SecretForm",
    "current_redaction",
    "redacted",
    "redacted_logger",
    "use_redaction",
]

P = ParamSpec("P")
R = TypeVar("R")

MASK: Final = "**********"
"""The replacement of a secret, whatever its length; it is written as pydantic writes it."""

SHORTEST_VALUE: Final = 8
"""The fewest characters of a value that is looked for: a shorter one is often part of an ordinary word."""

_LONGEST_AT_FIRST: Final = 8192
"""The most characters of a secret of a call that is looked for in a text of fewer characters."""

SHORTEST_WORD: Final = 4
"""The fewest characters of a secret of a call that is looked for, as a whole word."""

NAMES_VARIABLE: Final = "HANDRAIL_SECRET_NAMES"
"""The environment variable that lists `Redaction.names`, separated by commas."""

_TELLING = (
    r"(?i)SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY"
    r"|PASSKEY|WEBHOOK|COOKIE|(?:^|_)(?:KEY|PAT|DSN|AUTH|JWT|SALT|PASS|PW|CREDS?)$|_PWD$"
)
"""The names of environment variables whose values are secret."""

_IN_URL = (
    r"://(?:(?P<web>(?<=http://)|(?<=https://)|(?<=ws://)|(?<=wss://))"
    r"|(?<!http://)(?<!https://)(?<!ws://)(?<!wss://))"
    r"[^\s/?#:@]*:(?(web)(?!\d{1,5}[/?#\s]))(?:(?P<secret>\S+)@|\S+)"
)
"""The password in a URL. In one of the web a number before a slash is a port: an @ may stand in its path."""

_SAFE = ("", "/", "!#$&'()*+,/:;=?@[]~")
"""The characters that a URL may have as they are: none, those that `quote` leaves, those with a meaning there."""

_QUOTE = r"\\{0,31}['\"]"
"""A quotation mark as it is written in texts in texts, up to five deep."""

_NAMED = (
    r"(?i)(?:password|passwd|passphrase|api[_-]?key|access[_-]?token|auth[_-]?token|refresh[_-]?token"
    r"|client[_-]?secret|secret[_-]?key|\bpassfile"
    rf"|\bpwd(?!(?<=(?-i:PWD))(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?(?:/|[a-z]:[\\/])))"
    rf"(?:\\*['\"]?\s*=\s*|\\*['\"]\s*:\s*(?={_QUOTE})|\s*:\s*(?={_QUOTE})|\s*:\s+(?=\S*\d)(?=\S*[a-z])(?=\S{{6}}))"
    rf"(?P<quote>{_QUOTE})?(?P<secret>(?(quote)(?:(?!(?P=quote))(?:\\{{3}}.|\\.|[^\\\n]))+"
    r"|(?:(?![;&,][\w-]+=)[^\s'\"])*[^\s'\"&;,(){}\[\]\\]))"
)
"""The end of a name that says that its value is secret, and the value. Without quotes it ends at a blank; after a colon
it has to look like a password there, because `password: expected a string` is prose. What is JSON stays JSON. A path
after `PWD` is the current folder, as in a dump of the environment."""

_HINTS = (
    *("password", "passwd", "passphrase", "passfile", "pwd", "Password", "Passwd", "Pwd", "PASSW", "PASSPH", "PWD"),
    *("pi_key", "pi-key", "PI_KEY", "PI-KEY", "piKey", "pikey", "APIKEY", "pi-Key", "Key", "secret", "Secret"),
    *("SECRET", "token", "Token", "TOKEN", "passWord"),
)


class SecretForm(NamedTuple):
    """A form of secrets.

    Attributes:
        hints: texts of which each such secret holds one. A text without any is not searched, so that most cost little.
        pattern: a regular expression that finds them. A group `secret` is the part that is replaced, else all is. Its
            time should be linear in the text, because texts of exceptions come from anywhere: what begins at many
            places and may end far away is to match also without its end.
    """

    hints: tuple[str, ...]
    pattern: str


KNOWN_FORMS: Final = (
    SecretForm(("://",), _IN_URL),
    SecretForm(("https://", "http://"), r"\bhttps?://(?P<secret>[^\s/?#:@]{8,})@"),
    SecretForm(_HINTS, _NAMED),
    SecretForm(
        ("earer ", "asic "), r"\b(?:[Bb]earer|Basic|(?i:(?<=authorization: )basic)) (?P<secret>[A-Za-z0-9._~+/-]{8,}=*)"
    ),
    SecretForm(("PRIVATE KEY-----",), r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<secret>.+?)(?=-----END|\Z)"),
    SecretForm(("eyJ",), r"\b(?P<secret>eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)|\beyJ[\w-]*"),
    SecretForm(("sk-",), r"\bsk-[\w-]{16,}"),
    SecretForm(("k_live_", "k_test_"), r"\b[rs]k_(?:live|test)_\w{10,}"),
    SecretForm(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), r"\b(?:gh[pousr]|github_pat)_\w{20,}"),
    SecretForm(("glpat-",), r"\bglpat-[\w-]{16,}"),
    SecretForm(("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), r"\bxox[abprs]-[\w-]{10,}"),
    SecretForm(("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    SecretForm(("AIza",), r"\bAIza[\w-]{35}"),
)
"""Passwords in URLs and connection strings, HTTP credentials, private keys, signed tokens, keys of known services.

Each is found in a time that is linear in the text.
"""


def _environment_secrets(environment: Mapping[str, str]) -> Iterable[str]:
    for name, value in environment.items():
        if name != NAMES_VARIABLE and re.search(_TELLING, name):
            yield value
        elif "://" in value:
            yield from (match["secret"] for match in re.finditer(_IN_URL, value) if match["secret"])


def _spellings(value: str) -> Iterable[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield ascii(value)[1:-1]
    yield repr(repr(value))[2:-2]
    yield repr(value.encode(errors="replace"))[2:-1]
    for safe in _SAFE:
        in_url = quote(value, safe=safe, errors="replace")
        yield in_url
        yield re.sub("%..", lambda match: match[0].lower(), in_url)
    yield quote_plus(value, errors="replace")


def _with_lines(value: str) -> Iterable[str]:
    yield value
    for line in map(str.strip, value.splitlines()):
        if len(line) >= SHORTEST_VALUE and any(map(str.isalnum, line)):
            yield line


def _mask_match(match: re.Match[str]) -> str:
    start, end = match.span("secret" if "secret" in match.re.groupindex else 0)
    if start < 0:
        return match[0]
    whole, begin = match[0], match.start()
    return f"{whole[: start - begin]}{MASK}{whole[end - begin :]}"


def _plain_name(name: str) -> str:
    return name.replace("-", "").replace("_", "").casefold()


@dataclass(frozen=True, slots=True)
class Redaction:
    """The secrets of texts of which no type says them.

    Attributes:
        values: secrets. One of fewer than 8 characters is ignored. Each is also found as it is written in JSON, in
            quotes
            of Python, in a URL, and by its lines of 8 characters or more.
        forms: the forms of other secrets.
        names: fields, parameters and columns that are secret in each type and schema, without regard to case, `-` and
            `_`:
            `("iban", "api-key")`. It is read when a type is first used.
        results: whether the result of a tool is redacted, too, before a model reads it. By default only texts of
            exceptions
            are: a model that reads a file and writes it back would write the mask into it.

    Raises:
        TypeError: `values` or `names` is one text instead of several.
    """

    values: Collection[str] = field(default=frozenset(), repr=False)
    forms: tuple[SecretForm, ...] = field(default=KNOWN_FORMS, repr=False)
    names: Collection[str] = frozenset()
    results: bool = False
    _spelled: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _plain_names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or isinstance(self.names, str):
            raise TypeError("values and names are sets of texts: frozenset({'...'})")
        object.__setattr__(self, "values", frozenset(self.values))
        object.__setattr__(self, "names", frozenset(self.names))
        object.__setattr__(self, "_plain_names", frozenset(map(_plain_name, self.names)))
        long = (value for value in self.values if len(value) >= SHORTEST_VALUE)
        spelled = {spelling for value in long for line in _with_lines(value) for spelling in _spellings(line)}
        # The longest first: one value may be a part of another, and a line is one of its value.
        object.__setattr__(self, "_spelled", tuple(sorted(spelled, key=lambda text: (-len(text), text))))

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Self:
        """The redaction of a process: its values are those of the variables whose names say that they are secret.

        These have `SECRET`, `TOKEN`, `PASSWORD`, `PASSWD`, `PASSPHRASE`, `CREDENTIAL`, `API_KEY`, `PRIVATE_KEY`,
        `ACCESS_KEY`, `PASSKEY`, `WEBHOOK` or `COOKIE` in their name, or end with `_KEY`, `_PAT`, `_DSN`, `_AUTH`,
        `_JWT`, `_SALT`, `_PASS`, `_PW`, `_PWD`, `_CRED` or `_CREDS`. Of any other variable the password in a URL
        counts. `HANDRAIL_SECRET_NAMES` lists `names`.
        """
        names = (name.strip() for name in environment.get(NAMES_VARIABLE, "").split(","))
        return cls(values=frozenset(_environment_secrets(environment)), names=frozenset(filter(None, names)))

    def hides_name(self, name: str) -> bool:
        """Returns whether a field, parameter or column of this name is secret."""
        return bool(self._plain_names) and _plain_name(name) in self._plain_names

    def text(self, text: str) -> str:
        """The text with `MASK` in place of each secret; the same object if it has none."""
        for spelling in self._spelled:
            if spelling in text:
                text = text.replace(spelling, MASK)
        for form in self.forms:
            for hint in form.hints:  # not any(...): a generator takes longer than the search
                if hint in text:
                    clean = re.sub(form.pattern, _mask_match, text)
                    text = text if clean == text else clean
                    break
        return text


# Of the process, as its environment and its loggers are.
_current: Redaction = Redaction.of_environment(os.environ)


def current_redaction() -> Redaction:
    """The redaction of this process."""
    return _current


def use_redaction(redaction: Redaction) -> Redaction:
    """Replaces the redaction of this process, and returns the one before. Call it before the first executor is made.

    To add values, make it from the environment: `replace(Redaction.of_environment(os.environ), results=True)`.
    """
    global _current
    before, _current = _current, redaction
    return before


class CallSecrets:
    """The secrets of one call, which its types mark: all that is said of the call is searched for them. Thread-safe.

    `outer` are those of the call that it is made in.

    A secret of fewer than 4 characters is not looked for, one of fewer than 8 only as a whole word: otherwise ordinary
    words would be replaced.
    """

    __slots__ = ("_finders", "_lock", "_longest", "_spelled", "_values", "outer")

    def __init__(self, outer: CallSecrets | None = None) -> None:
        self.outer: CallSecrets | None = outer
        self._lock = threading.RLock()
        self._finders: list[Callable[[], Iterable[str]]] = []
        self._values: set[str] = set()
        self._longest = _LONGEST_AT_FIRST
        self._spelled: tuple[tuple[str, bool], ...] | None = None

    def add(self, find: Callable[[], Iterable[str]]) -> None:
        """Adds secrets; `find` is called when a text is searched first, because most calls have none to search."""
        with self._lock:
            self._finders.append(find)

    def text(self, text: str) -> str:
        """The text with `MASK` in place of each secret of the call; the same object if it has none."""
        for spelled, is_word in self._texts(len(text)):
            if spelled in text:
                text = _words(text, spelled) if is_word else text.replace(spelled, MASK)
        return text if self.outer is None else self.outer.text(text)

    def _texts(self, length: int) -> tuple[tuple[str, bool], ...]:
        with self._lock:
            while self._finders:
                values = (line for value in self._finders.pop()() for line in _with_lines(value))
                self._values.update(value for value in values if value.strip("*"))
                self._spelled = None
            # A secret that is longer than the text is not in it, and the spellings of one of a megabyte take seconds.
            if length > self._longest:
                self._longest, self._spelled = length, None
            if self._spelled is None:
                spelled = {
                    (spelling, len(value) < SHORTEST_VALUE)
                    for value in self._values
                    if SHORTEST_WORD <= len(value) <= self._longest
                    for spelling in _spellings(value)
                }
                # A spelling may be a part of another: a line of it, or what has no quotes.
                self._spelled = tuple(sorted(spelled, key=lambda item: (-len(item[0]), item)))
            return self._spelled

    def join(self, redaction: Redaction) -> Callable[[str], str]:
        """A function that removes these secrets from a text, and those that a redaction recognizes."""
        return lambda text: redaction.text(self.text(text))

    def during(self, act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function, and searches for these secrets in all that is said meanwhile."""
        before = CALL_SECRETS.get()
        CALL_SECRETS.set(self)
        try:
            return act(*args, **kwargs)
        finally:
            CALL_SECRETS.set(before)


def _words(text: str, word: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", MASK, text)


CALL_SECRETS: Final[ContextVar[CallSecrets | None]] = ContextVar("handrail_call_secrets", default=None)
"""The secrets of the call that runs in this context; `None` for none."""


def redacted(text: str) -> str:
    """A text without secrets, by the redaction of this process, and without those of the call that runs."""
    secrets = CALL_SECRETS.get()
    return _current.text(text if secrets is None else secrets.text(text))


def _redact_record(record: logging.LogRecord) -> bool:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - an argument cannot be formatted; the handlers of the record report that
        return True
    clean = redacted(text)
    if clean != text:
        record.msg, record.args = clean, ()
    if record.exc_info and record.exc_info[1] is not None:
        lines = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
        clean = redacted(lines)
        if clean != lines:  # handlers that format the exception themselves have the text alone
            record.exc_info, record.exc_text = None, clean
    return True


def redacted_logger(name: str) -> logging.Logger:
    """The logger of a name; its records are written without secrets, tracebacks included."""
    logger = logging.getLogger(name)
    logger.addFilter(_redact_record)  # a second time it does nothing
    return logger
