"""The request of the Python suite, its limits, its result, and how the result is rendered."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias

from handrail.session import stored_as

ValueForm: TypeAlias = Literal["none", "json", "repr"]
"""What the text of a value is: nothing, because there is none; JSON; or a `repr`, of which something may be cut off."""

DEFAULT_TIMEOUT = timedelta(seconds=10)
"""How long code may take, unless the section says otherwise."""

DEFAULT_MEMORY_BYTES = 256 * 1024 * 1024
"""How much memory code may use, unless the section says otherwise: 256 MiB."""

DEFAULT_CHARACTERS = 20_000
"""How much of what code prints is returned, and of its value, unless the section says otherwise."""


@dataclass(frozen=True, slots=True)
class PythonSettings:
    """How code is evaluated.

    Attributes:
        memory_bytes: how much memory it may use.
        seconds: how long it may take.
        most_characters: how much of what it prints is returned, and of its value.
        files: whether it may call the functions for files.
        read_first: whether it must read a file before it writes to it.
    """

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    seconds: float = DEFAULT_TIMEOUT.total_seconds()
    most_characters: int = DEFAULT_CHARACTERS
    files: bool = True
    read_first: bool = True


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


class Printed:
    """The beginning and the end of what code prints."""

    __slots__ = ("_head", "_most_head", "_most_tail", "_tail", "_total")

    def __init__(self, most_characters: int) -> None:
        """Store at most so many characters of it, half of them from its end."""
        self._most_head = most_characters // 2
        self._most_tail = most_characters - self._most_head
        self._head = ""
        self._tail = ""
        self._total = 0

    @property
    def left_out(self) -> int:
        """How many characters are left out."""
        return max(0, self._total - self._most_head - self._most_tail)

    def write(self, text: str) -> None:
        """Add text."""
        self._total += len(text)
        room = self._most_head - len(self._head)
        self._head += text[:room]
        # Cut before it is added: a single text may be as large as the memory allows.
        self._tail += text[room:][-2 * self._most_tail :] if len(text) > room else ""
        if len(self._tail) > 2 * self._most_tail:
            self._tail = self._tail[-self._most_tail :]

    def text(self) -> str:
        """The stored text, with a line for what is left out."""
        if not self.left_out:
            return self._head + self._tail
        return cut_between(f"{self._head}\n", self.left_out, f"\n{self._tail[-self._most_tail :]}")


def elide(text: str, most: int) -> str:
    """A text without its middle, if it is longer than `most`."""
    half = most // 2
    return text if len(text) <= most else cut_between(text[:half], len(text) - 2 * half, text[len(text) - half :])


def cut_between(start: str, left_out: int, end: str) -> str:
    """The beginning and the end of a text, with words between them that say how many characters are left out."""
    return f"{start}[... {left_out:,} characters left out ...]{end}"
