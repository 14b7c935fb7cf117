"""A plan that a dry run makes: its calls, the replies that ask for them, and the versions of what they depend on.

The token is a digest over all of it. A plan whose token does not fit is not executed, and neither is one if anything
has changed since.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import unified_diff
from json import dumps
from pathlib import Path
from typing import Any, Final, Literal

from pydantic_core import from_json, to_json

from handrail.errors import ParseError, PlanRefusedError
from handrail.readable import format_call
from handrail.serde import codec, digest, dump
from handrail.serde.json_schema import is_object
from handrail.serde.json_values import walk_value

MOST_DIFF_LINES: Final = 40
"""How many lines of a difference are shown at most."""

_WORD, _ADDRESS = (re.compile(rf"\w+(?:[{joints}]+\w+)*") for joints in ("-._", "-._/:@#"))
_WHOLE: Final = (r"(?<!\w)(?<!\w[-._])", r"(?![-._]*\w)")  # B-100 is neither in B-1001 nor in B-100-2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call of a plan, in the order in which calls begin.

    Attributes:
        conversation: which agent of the run asks for it; empty for the first.
        id: its id, behind those of the calls that it is nested in.
        tool: the name of its tool.
        effect: how it changes the world.
        arguments: its parsed arguments, as JSON.
        versions: digests of its tool, its policies, the tools offered, and files in memory that it uses first.
        is_preview: the preview of its tool ran in place of the handler.
        asks: what policies have asked about it.
        reads: digests of the rows that it has read from the database of the store.
        success: whether it succeeded.
        replayed: whether the ledger had its result.
        message: the text of its result.
        value: the value of its result, as JSON.
    """

    conversation: str
    id: str
    tool: str
    effect: str
    arguments: Any
    versions: Mapping[str, str]
    is_preview: bool
    asks: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    success: bool = False
    replayed: bool = False
    message: str = ""
    value: Any = None

    @property
    def text(self) -> str:
        """The call in words."""
        return format_call(self.tool, self.arguments if is_object(self.arguments) else {})


@dataclass(frozen=True, slots=True)
class PlannedReply:
    """A reply of a model.

    Attributes:
        conversation: which agent of the run it is of.
        request: digests of the parts of the request that it answers, by their names.
        message: the reply, as JSON.
    """

    conversation: str
    request: Mapping[str, str]
    message: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunPlan:
    """What a run would do: `dry_run` makes it, and `apply_plan` executes it.

    Attributes:
        input: the input of the run.
        session: its session.
        versions: what the run began with, by names: digests, and the agent, the store and the version of Handrail.
        calls: its calls.
        replies: the replies of the models.
        ends: why the plan ends before the run would; empty for a complete one.
        output: the answer of the run.
        origin: how the plan was made, for who executes it.
        token: the digest over all of this.
    """

    input: str | None
    session: str
    versions: Mapping[str, str]
    calls: tuple[PlannedCall, ...] = ()
    replies: tuple[PlannedReply, ...] = ()
    ends: str = ""
    output: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])
    format: Literal["handrail.plan/1"] = "handrail.plan/1"
    token: str = ""

    @property
    def questions(self) -> tuple[PlannedCall, ...]:
        """The calls about which policies ask; an approval of the plan covers them."""
        return tuple(call for call in self.calls if call.asks)

    def with_token(self) -> DryRunPlan:
        """The same plan with its token."""
        return replace(self, token=self._digest())

    def check_token(self) -> None:
        """Raises `PlanRefusedError` if the plan was changed since it was made."""
        if self.token != self._digest():
            raise PlanRefusedError("the plan was changed since it was made: its token does not fit; make it anew")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file that only its owner may read, or replaces that; `OSError` if it cannot."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    @staticmethod
    def load(path: str | os.PathLike[str]) -> DryRunPlan:
        """The plan of a file.

        Raises:
            PlanRefusedError: the file cannot be read, is not a plan, or was changed since it was written.
        """
        try:
            plan = codec(DryRunPlan).parse_json(Path(path).read_bytes())
        except (OSError, ParseError) as error:
            raise PlanRefusedError(f"{os.fspath(path)} cannot be read as a plan: {error}") from error
        plan.check_token()
        return plan

    def _digest(self) -> str:
        return digest({one.name: getattr(self, one.name) for one in fields(self) if one.name != "token"})


# ------------------------------------------------------------------------------------------------- what is compared


def changed_names(planned: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """The names under which two mappings have something else, or only one has something."""
    return [name for name in dict.fromkeys((*planned, *actual)) if planned.get(name) != actual.get(name)]


def json_diff(planned: object, actual: object, names: tuple[str, str] = ("planned", "actual")) -> str:
    """How two values of JSON differ, as a diff of lines."""
    ones, others = (
        dumps(value, indent=1, ensure_ascii=False, sort_keys=True).splitlines() for value in (planned, actual)
    )
    return "\n".join(list(unified_diff(ones, others, *names, lineterm="", n=1))[:MOST_DIFF_LINES])


def texts_in(value: object) -> Iterator[str]:
    """The texts and numbers in a value of JSON, at any depth, as texts."""
    for _, item in walk_value(value):
        if isinstance(item, str | int | float) and not isinstance(item, bool):
            yield str(int(item) if isinstance(item, float) and item.is_integer() else item)


@dataclass(frozen=True, slots=True)
class Names:
    """The names in a value of JSON, by which a call refers to what an earlier one has returned.

    Attributes:
        text: all texts, numbers and keys of the value, and a text beside it.
        words: the words of the text, such as `B-100`.
        leaves: each of the texts, numbers and keys of the value.
        names: these, and the words and addresses with a digit in them.
    """

    text: str
    words: frozenset[str]
    leaves: frozenset[str]
    names: frozenset[str]

    @staticmethod
    def read(value: object, beside: str = "") -> Names:
        """The names in a value, and in a text beside it."""
        keys = (key for path, _ in walk_value(value) for key in path[-1:] if isinstance(key, str))
        leaves = frozenset(leaf.strip() for leaf in (*texts_in(value), *keys)) - {""}
        text = "\0".join((*leaves, beside))
        words = frozenset(_WORD.findall(text))
        numbered = (word for word in words.union(_ADDRESS.findall(text)) if re.search(r"\d", word))
        return Names(text, words, leaves, leaves.union(numbered))

    def has(self, name: str) -> bool:
        """True if a name stands in the text, and not inside a longer one."""
        if _WORD.fullmatch(name):
            return name in self.words
        return name in self.text and re.search(re.escape(name).join(_WHOLE), self.text) is not None

    def in_common(self, result: Names, own: Names, besides: Iterable[str] = ()) -> set[str]:
        """The names of a result that a later call with these arguments was made with.

        Those of the arguments that the result is from (`own`) do not count, but for those `besides`.
        """
        names = {name for name in self.names if result.has(name) and not own.has(name)}
        return names.union(name for name in besides if self.has(name))


def plain_value(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as decoded JSON; of one that JSON cannot represent the name of its class."""
    try:
        return from_json(to_json(dump(value)))
    except Exception:  # noqa: BLE001 - whatever a tool takes or returns
        return type(value).__qualname__
