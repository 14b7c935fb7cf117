"""Removes secrets from texts that leave the process: messages for a model, logs, events, output, exports.

A handler that fails may put a secret into the text of its exception: `raise KeyError(dict(os.environ))`. Nothing there
says what is secret, so a `Redaction` recognizes it: by its value, if the environment or the operator has stated it, or
by its form. What is found is replaced by `MASK`.

Values that a session, the ledger or a handler holds are never changed. Where types say what is secret,
`serde.is_secret` does; the names in `Redaction.names` count there, too.

The redaction of a process is made from its environment when this module is imported. `use_redaction` replaces it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import traceback
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple, Self
from urllib.parse import quote

__all__ = [
    "KNOWN_FORMS",
    "MASK",
    "Redaction",
    "SecretForm",
    "current_redaction",
    "redacted",
    "redacted_logger",
    "use_redaction",
]

MASK: Final = "**********"
"""What replaces a secret, whatever its length; it is written as pydantic writes it."""

SHORTEST_VALUE: Final = 8
"""The fewest characters of a value that is looked for: a shorter one is often part of an ordinary word."""

NAMES_VARIABLE: Final = "HANDRAIL_SECRET_NAMES"
"""The environment variable that lists `Redaction.names`, separated by commas."""

_TELLING = (
    r"(?i)SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY"
    r"|(?:^|_)(?:KEY|PAT|DSN|AUTH|SALT)$"
)
"""The names of environment variables whose values are secret."""

_IN_URL = r"://[^\s/?#:@]*:(?!\d+[/?#\s])(?P<secret>\S+)@"
"""The password in a URL; a number before a slash is a port."""


class SecretForm(NamedTuple):
    """Secrets that are recognized by their form.

    Attributes:
        hints: texts of which each such secret holds one. A text without any is not searched, so that most cost little.
        pattern: a regular expression that finds them. A group `secret` is the part that is replaced, else all is.
    """

    hints: tuple[str, ...]
    pattern: str


KNOWN_FORMS: Final = (
    SecretForm(("://",), _IN_URL),
    SecretForm(
        ("password=", "PASSWORD=", "Password=", "passwd=", "PASSWD=", "passfile="),
        r"(?i)(?:password|passwd|passfile)=(?P<secret>'(?:[^'\\]|\\.)+'|\"[^\"]+\"|[^\s&;,'\"]+)",
    ),
    SecretForm(("Bearer ", "bearer ", "Basic "), r"\b(?:[Bb]earer|Basic) (?P<secret>[A-Za-z0-9._~+/-]{8,}=*)"),
    SecretForm(("PRIVATE KEY-----",), r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<secret>.+?)(?=-----END|\Z)"),
    SecretForm(("eyJ",), r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    SecretForm(("sk-",), r"\bsk-[\w-]{16,}"),
    SecretForm(("k_live_", "k_test_"), r"\b[rs]k_(?:live|test)_\w{10,}"),
    SecretForm(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), r"\b(?:gh[pousr]|github_pat)_\w{20,}"),
    SecretForm(("glpat-",), r"\bglpat-[\w-]{16,}"),
    SecretForm(("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), r"\bxox[abprs]-[\w-]{10,}"),
    SecretForm(("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    SecretForm(("AIza",), r"\bAIza[\w-]{35}"),
)
"""Passwords in URLs and connection strings, HTTP credentials, private keys, signed tokens, keys of known services."""


def _secrets_of(environment: Mapping[str, str]) -> Iterable[str]:
    for name, value in environment.items():
        if name != NAMES_VARIABLE and _compiled(_TELLING).search(name):
            yield value
        elif "://" in value:
            yield from (found["secret"] for found in _compiled(_IN_URL).finditer(value))


def _spellings(value: str) -> Iterable[str]:
    """A value as texts show it: as it is, in JSON, in quotes of Python, and in a URL."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield quote(value, safe="", errors="replace")


def _masked(found: re.Match[str]) -> str:
    start, end = found.span("secret" if "secret" in found.re.groupindex else 0)
    whole, begin = found[0], found.start()
    return f"{whole[: start - begin]}{MASK}{whole[end - begin :]}"


def _plain_name(name: str) -> str:
    return name.replace("-", "").replace("_", "").casefold()


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(frozen=True, slots=True)
class Redaction:
    """What is secret in a text of which no type says it.

    Attributes:
        values: secrets. One of fewer than 8 characters is ignored. Each is also found as it is written in JSON, in
            quotes of Python, and in a URL.
        forms: how other secrets are recognized.
        names: fields, parameters and columns that are secret in each type and schema, without regard to case, `-` and
            `_`: `("iban", "api-key")`. It is read when a type is first used.
        results: whether what a tool returns is redacted, too, before a model reads it. By default only texts of
            exceptions are: a model that reads a file and writes it back would write the mask into it.

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
        long = [value for value in self.values if len(value) >= SHORTEST_VALUE]
        spelled = {spelling for value in long for spelling in _spellings(value)}
        # The longest first: one value may be a part of another.
        object.__setattr__(self, "_spelled", tuple(sorted(spelled, key=lambda text: (-len(text), text))))

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Self:
        """The redaction of a process: its values are those of the variables whose names say that they are secret.

        These have `SECRET`, `TOKEN`, `PASSWORD`, `PASSWD`, `PASSPHRASE`, `CREDENTIAL`, `API_KEY`, `PRIVATE_KEY` or
        `ACCESS_KEY` in their name, or end with `_KEY`, `_PAT`, `_DSN`, `_AUTH` or `_SALT`. Of any other variable the
        password in a URL counts. `HANDRAIL_SECRET_NAMES` lists `names`.

        Args:
            environment: as `os.environ`.
        """
        names = (name.strip() for name in environment.get(NAMES_VARIABLE, "").split(","))
        return cls(values=frozenset(_secrets_of(environment)), names=frozenset(filter(None, names)))

    def hides_name(self, name: str) -> bool:
        """Whether a field, parameter or column of this name is secret."""
        return bool(self._plain_names) and _plain_name(name) in self._plain_names

    def text(self, text: str) -> str:
        """The text with `MASK` in place of each secret; the same object if it has none."""
        for spelled in self._spelled:
            if spelled in text:
                text = text.replace(spelled, MASK)
        for form in self.forms:
            for hint in form.hints:  # not any(...): a generator takes longer than the search
                if hint in text:
                    text = _compiled(form.pattern).sub(_masked, text)
                    break
        return text


_current: Redaction = Redaction.of_environment(os.environ)


def current_redaction() -> Redaction:
    """The redaction of this process."""
    return _current


def use_redaction(redaction: Redaction) -> Redaction:
    """Replace the redaction of this process, and return the one before. Call it before the first executor is made.

    To add values, make it from the environment: `replace(Redaction.of_environment(os.environ), results=True)`.
    """
    global _current
    before, _current = _current, redaction
    return before


def redacted(text: str) -> str:
    """A text without secrets, by the redaction of this process."""
    return _current.text(text)


class _RecordsWithoutSecrets(logging.Filter):
    """Removes secrets from the records of a logger, before any handler has them."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except Exception:  # noqa: BLE001 - an argument cannot be formatted; the handlers of the record report that
            return True
        shown = redacted(said)
        if shown != said:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[1] is not None:
            lines = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            shown = redacted(lines)
            if shown != lines:  # handlers that format the exception themselves have the text alone
                record.exc_info, record.exc_text = None, shown
        return True


_FILTER: Final = _RecordsWithoutSecrets()


def redacted_logger(name: str) -> logging.Logger:
    """The logger of a name. What is logged by it is written without secrets, tracebacks included."""
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)  # a second time it does nothing
    return logger
