"""What a person has found out of an effect: from the command line, or by being asked on a terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from cyclopts import CycloptsError, Parameter

from handrail.cli.screen import Screen
from handrail.prompt.idempotency import DAY
from handrail.runtime.ledger.effects import EffectResult, NotApplied
from handrail.store import EffectRow


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a person says of an effect.

    Attributes:
        happened: whether it has happened; `None` while that is not said.
        message: what the model is told of it, if it has.
        value: its value as JSON text, if it has; `None` if nobody knows it.
        ttl: how long that is replayed.
        why: how it is known that it has not happened.
    """

    happened: Annotated[
        bool | None,
        Parameter(negative="--not-happened", help="Whether the effect has happened. On a terminal you are asked."),
    ] = None
    message: Annotated[
        str | None, Parameter(metavar="TEXT", help="If it has: what a model is told that asks for it again.")
    ] = None
    value: Annotated[
        str | None,
        Parameter(
            metavar="JSON",
            help="If it has: the value of the result, as the tool would return it. Unless given, it counts as lost.",
        ),
    ] = None
    ttl: Annotated[
        timedelta | Literal["never"],
        Parameter(
            metavar="TIME",
            show_choices=False,
            help="If it has: how long until the same call may run again, such as 36h or 30d, or `never`. "
            "A day unless given. The call of an effect without a declared key (`call:...`) never runs again.",
        ),
    ] = DAY
    why: Annotated[str | None, Parameter(metavar="TEXT", help="If it has not: how that is known; for people.")] = None

    def check(self) -> None:
        """Make sure that what was said goes together.

        Raises:
            CycloptsError: it does not, or the value is no JSON.
        """
        if self.why is not None and self.happened:
            raise CycloptsError(msg="--why goes with --not-happened; of what has happened, --message tells")
        for name, given in (("--message", self.message), ("--value", self.value)):
            if given is not None and self.happened is False:
                raise CycloptsError(msg=f"{name} goes with --happened; of what has not happened, --why tells")
        if self.value is not None and (wrong := _fault_of_json(self.value)):
            raise CycloptsError(msg=f"--value is no JSON ({wrong}); text needs quotes of its own: --value '\"text\"'")
        if self.ttl != "never" and self.ttl <= timedelta(0):
            raise CycloptsError(msg=f"--ttl is {self.ttl}; it must be more than zero, or `never`")

    @property
    def lasting(self) -> timedelta | None:
        """How long it is known, as the ledger takes it."""
        return None if self.ttl == "never" else self.ttl

    def of(self, row: EffectRow) -> EffectResult | NotApplied:
        """The finding, as the ledger takes it."""
        if not self.happened:
            return NotApplied(self.why or "a person has found that it did not happen")
        # ASCII: a lone surrogate is JSON, but no UTF-8.
        value = None if self.value is None else json.dumps(json.loads(self.value), separators=(",", ":")).encode()
        return EffectResult(_told(row) if self.message is None else self.message, value)

    def asked(self, screen: Screen, row: EffectRow) -> Finding | None:
        """The finding with what the person answers; `None` if the person decides nothing."""
        answer = (screen.ask("Has it happened? [y = yes, n = no, Enter = leave it as it is]") or "").lower()
        if answer in {"n", "no"}:
            why = self.why or screen.ask("How is that known, for people who look later?")
            return replace(self, happened=False, why=why)
        if answer not in {"y", "yes"}:
            return None
        message = self.message or screen.ask(f'What is a model told that asks again? [Enter = "{_told(row)}"]')
        value = self.value
        while value is None or _fault_of_json(value):
            value = screen.ask("The value of its result, as JSON? [Enter = nobody knows it]")
            if not value:
                break
        return replace(self, happened=True, message=message or None, value=value or None)


UNSAID = Finding()
"""Nothing said on the command line."""


def _told(row: EffectRow) -> str:
    return f"{row.tool} has been carried out; a person has confirmed it."


def _fault_of_json(text: str) -> str:
    """Why a text is no JSON; empty if it is."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        return str(error)
    return ""


def _no_constant(name: str) -> Any:  # noqa: ANN401 - the signature that `json` asks for
    raise ValueError(f"{name} is no number of JSON")
