"""The request of the Python suite, its result, and how the result is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from handrail.session import stored_as

ValueForm: TypeAlias = Literal["none", "json", "repr"]
"""What the text of a value is: nothing, because there is none; JSON; or a `repr`, of which something may be cut off."""

_MOST_ERROR = 4_000


@stored_as("handrail.evaluate_python")
@dataclass(frozen=True, slots=True)
class EvaluatePython:
    """A request to evaluate code.

    Attributes:
        code: the code.
    """

    code: str = field(
        metadata={"description": "Python code. The value of its last line, if that is an expression, is returned."}
    )


@dataclass(frozen=True, slots=True)
class PythonFault:
    """Why code has not run to its end.

    Attributes:
        type: the name of the exception, such as `ZeroDivisionError`.
        message: its text.
        line: the line of the code where it was raised, from 1; `None` if that is not known.
    """

    type: str
    message: str
    line: int | None = None

    @property
    def sentence(self) -> str:
        """The fault in words, as models read it."""
        where = "" if self.line is None else f" in line {self.line}"
        return f"{self.type}{where}: {self.message.rstrip('.') or 'no message'}."


@stored_as("handrail.python_evaluated")
@dataclass(frozen=True, slots=True)
class PythonEvaluated:
    """Code has been evaluated, or has failed.

    Attributes:
        value: the value of its last line, as text; empty for none.
        value_form: what that text is.
        printed: what it has printed.
        left_out: how many characters in the middle of that are left out.
        changed: the files that it has written or removed, in the order of their paths; of code that has failed they are
            rolled back.
        fault: why it has failed; `None` if it has not.
    """

    value: str = ""
    value_form: ValueForm = "none"
    printed: str = ""
    left_out: int = 0
    changed: tuple[str, ...] = ()
    fault: PythonFault | None = None

    @classmethod
    def of(cls, result: Mapping[str, Any], changed: tuple[str, ...], most_characters: int) -> PythonEvaluated:
        """What a worker has answered; its text is not believed to be as short as it was asked to be.

        Raises:
            ValueError: it is not a result.
        """
        most = 2 * most_characters + _MOST_ERROR
        error: object = result.get("error")
        fault = None if error is None else _fault_of(error)
        form, left_out = result.get("form", "none"), result.get("left_out", 0)
        if form not in ("none", "json", "repr") or type(left_out) is not int or left_out < 0:
            raise ValueError("it has a value or an output that is not one")
        return cls(_text(result, "value", most), form, _text(result, "printed", most), left_out, changed, fault)

    def render(self) -> str:
        """What was printed, which files were changed, and the value; for code that has failed what was printed."""
        printed = self.printed.removesuffix("\n")
        if self.fault is not None:
            return f"Printed before that:\n{printed}" if self.printed else ""
        parts = [printed] if self.printed else []
        if self.changed:
            parts.append(f"Files changed: {', '.join(self.changed)}.")
        if self.value_form != "none":
            parts.append(f"Value: {self.value}")
        return "\n".join(parts) or "The code has printed nothing, and its last line has no value."


def _fault_of(error: object) -> PythonFault:
    if not isinstance(error, dict):
        raise ValueError("it has an error that is not one")  # noqa: TRY004 - as any other fault of a result
    found = cast("Mapping[str, Any]", error)
    line: object = found.get("line", 0)
    if line is not None and (not isinstance(line, int) or line < 1):
        raise ValueError("it has an error that is not one")
    return PythonFault(_text(found, "type", _MOST_ERROR), _text(found, "message", _MOST_ERROR), line)


def _text(found: Mapping[str, Any], key: str, most: int) -> str:
    text = found.get(key, "")
    if not isinstance(text, str) or len(text) > most:
        raise ValueError(f"its {key} is not text, or too long")
    return text
