"""A request to run a command in a sandbox, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from handrail.contrib.tools.shell.outcome import ProgramChanges, end_of, text_of
from handrail.session import stored_as


@stored_as("handrail.shell_execute")
@dataclass(frozen=True, slots=True)
class ShellExecute:
    """A request to run a command in the sandbox.

    Attributes:
        command: a line for the shell, or a program and its arguments.
        folder: where it starts, relative to the workspace.
        input: what it reads from its input.
    """

    command: str | tuple[str, ...] = field(
        metadata={"description": "A line for `sh -c`, or a list of a program and its arguments, which no shell reads."}
    )
    folder: str = field(default=".", metadata={"description": "The folder to start in, such as 'notes'."})
    input: str = field(default="", metadata={"description": "What the command reads from its standard input."})

    @property
    def line(self) -> tuple[str, ...]:
        """The program inside, and its arguments."""
        return ("/bin/sh", "-c", self.command) if isinstance(self.command, str) else self.command


@stored_as("handrail.shell_executed")
@dataclass(frozen=True, slots=True)
class ShellExecuted:
    """A command in the sandbox has ended.

    Attributes:
        command: a line for the shell, or a program and its arguments.
        folder: where it was started.
        code: its exit code; for a program that a signal has ended, 128 and the number of the signal.
        stdout: its output, of which the model is shown the beginning and the end.
        stderr: its error output, the same.
        stdout_left_out: how many bytes in the middle of its output are left out.
        stderr_left_out: the same of its error output.
        changes: whether its changes in the workspace are kept.
        not_restored: what it has changed there and the rollback does not restore, each as a sentence.
    """

    command: str | tuple[str, ...]
    folder: str
    code: int
    stdout: str
    stderr: str = ""
    stdout_left_out: int = 0
    stderr_left_out: int = 0
    changes: ProgramChanges = "kept"
    not_restored: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the command is called in messages."""
        return "The command" if isinstance(self.command, str) else self.command[0]

    def render(self) -> str:
        """Both outputs, after the exit code if it is not 0 and the changes are kept all the same."""
        parts = [self.stdout] if self.stdout else []
        if self.stderr:
            parts.append(f"Error output:\n{self.stderr}")
        output = "\n".join(part.rstrip("\n") for part in parts) or f"{self.name} wrote nothing."
        if not self.code or self.changes != "kept":
            return output
        return f"{end_of(self.name, self.code)}.{text_of(self.changes, ())}\n{output}"
