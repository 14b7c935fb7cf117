"""The shell suite: one tool that runs programs in a folder, as far as rules allow, and the guidance for it.

`handrail.contrib.tools.shell.rules` decides what may be run, when the command runs and not when it is approved;
`process` runs and ends a program, and `handler` is the handler.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from handrail.contrib.tools.section_options import also_bound, limit_faults, timeout_faults
from handrail.contrib.tools.shell.handler import ProgramEnded, ShellHandler, ShellRun, ShellSettings
from handrail.contrib.tools.shell.rules import ShellRule, describe_rules, rules_of
from handrail.errors import PromptValidationError
from handrail.filesystem import HostFilesystem
from handrail.prompt import External, Section, Tool, ToolExample
from handrail.prompt.tool_declaration import MIN_RESULT_CHARS

# Not the `PATH` of this process: it may have relative folders, or ones that the user of the process can write to.
PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where programs are searched for, unless `environment` says otherwise."""

MAX_KEPT_BYTES = 1_000_000
"""How much of the output of a program its result holds by default: a build log, and not a stream without end."""

_TEXT = """\
Run programs with `shell_run`, one program a call. There is no shell: give the name of the program and each argument as
a string of its own. Quotes, `*`, `$`, `|` and `>` mean nothing but what the program itself makes of them.

**What may be run**

{allowed}

**Rules**

- A program starts in `folder`, and paths are relative to it.{confined}
- Give the value of an option as the next string: `"-n", "5"`. Options of one letter may be joined: `-la`.
- A program that ends with another exit code than 0 has failed; some say so that they have found nothing.
- No person answers a program, and there is no terminal. It reads `input`, and then the end of its input.
- A program may take {seconds:g} s. Whatever it leaves running is killed. Of a long output the middle is left
  out, and the message says how it is read.
{undoing}"""

_CONFINED = " Absolute paths, `..` and links that lead out are refused."

_UNDONE = """\
- What a program that fails has changed in the folder is undone. What it has done in `.git`, and in large folders that
  git ignores, is not undone, but the message names it. What it does outside is neither undone nor named."""

_NOT_UNDONE = "- Nothing that a program does is undone, also if it fails: look before you run it again."

_NOTHING = "- Nothing: every program is refused. Do without."

_ONLY_READS = "- Nothing is ever changed here: these programs only look."


@dataclass(frozen=True, kw_only=True, eq=False)
class ShellToolsSection(Section[None]):
    """A section with a tool that runs programs: `ShellToolsSection(filesystem, allow=[("make", "test"), *READING])`.

    There is no shell. A command that no rule allows is refused, so without rules nothing is allowed. A program runs in
    the folder or one below it, with an environment of its own, and everything it has started is killed when it ends.

    Over a `HostFilesystem` a program's changes in the folder are rolled back if it fails, or if the call does. Over a
    plain folder nothing on disk is rolled back. Changes outside the folder are rolled back in neither case.

    Attributes:
        folder: where programs run: a folder, or the `HostFilesystem` over it, which the section then binds.
        allow: what may be run: rules, or the tokens that a command must begin with. Programs are searched for only
            when the section is made.
        timeout: how long a program may take; then it is killed, and the call fails.
        max_output_bytes: how much of its output the model is shown: the beginning and the end. Less than 1,000 is as
            1,000.
        max_kept_bytes: how much of a longer output the result holds, so that `read_result` reads it.
        environment: added to the environment of every program, which is `PATH`, `LANG` and settings that confine git to
            the folder. `PATH` is also where programs are searched for.
        accepts_overrides: whether the description of the tool may be replaced when a prompt is tuned.
        missing: the programs that rules allow, and that are not installed; the guidance leaves them out.

    Raises:
        DuplicateBindingError: `resources` binds a `HostFilesystem` too.
        PromptValidationError: a declaration is invalid; the message names every fault.
    """

    folder: str | os.PathLike[str] | HostFilesystem = field(kw_only=False)
    allow: Sequence[ShellRule | Sequence[str]] = ()
    timeout: timedelta = timedelta(seconds=60)
    max_output_bytes: int = 20_000
    max_kept_bytes: int = MAX_KEPT_BYTES
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    accepts_overrides: bool = False
    title: str = "Programs"
    key: str = "shell"
    tools: Sequence[Tool[Any, Any]] = field(init=False)
    missing: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        shell = self._shell()
        set_field(self, "allow", shell.rules)
        # Not a fault: a rule for a program that is not installed permits nothing.
        missing = (name for name, path in shell.programs.items() if path is None)
        set_field(self, "missing", frozenset(missing))
        set_field(self, "environment", dict(self.environment))
        shown = max(self.max_output_bytes, MIN_RESULT_CHARS)
        set_field(self, "tools", (_tool(shell, accepts_overrides=self.accepts_overrides, max_result_chars=shown),))
        if shell.filesystem is not None:
            # Bound, so that it takes part in the transactions of calls: its changes are then rolled back with them.
            set_field(self, "resources", also_bound(self.resources, {HostFilesystem: shell.filesystem}))
        Section.__post_init__(self)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance: what may be run, and whether its changes are rolled back."""
        rules = cast("tuple[ShellRule, ...]", self.allow)  # `__post_init__` has made it so
        there = tuple(rule for rule in rules if rule.program not in self.missing)
        return shell_guidance(
            there, seconds=self.timeout.total_seconds(), undoes=isinstance(self.folder, HostFilesystem)
        )

    def _shell(self) -> ShellHandler:
        faults: list[str] = []
        filesystem = self.folder if isinstance(self.folder, HostFilesystem) else None
        root: Path = Path()
        rules: tuple[ShellRule, ...] = ()
        try:
            # Resolved once: rules compare real paths with it, and a link that is changed later must not move the root.
            root = filesystem.root if filesystem else Path(cast("str", self.folder)).resolve(strict=True)
            if not root.is_dir():
                faults.append(f"folder {str(root)!r} is not a folder; give one, or a HostFilesystem over one")
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            faults.append(
                f"folder {self.folder!r} cannot be used ({error}); give a folder, or a HostFilesystem over one"
            )
        try:
            rules = rules_of(self.allow)
        except PromptValidationError as error:
            faults.append(str(error))
        faults += timeout_faults(self.timeout, usual=60)
        faults += limit_faults("max_output_bytes", self.max_output_bytes, unit="bytes")
        faults += limit_faults("max_kept_bytes", self.max_kept_bytes, unit="bytes")
        faults += faults_of_environment(self.environment)
        if faults:
            raise PromptValidationError("; ".join(faults), section_path=(self.key,))
        environment = _environment(root) | dict(self.environment)
        path = environment["PATH"]
        # Searched for once: a file that is put on the `PATH` later is not run in place of the one that was found now.
        programs = {rule.program: shutil.which(rule.program, path=path) for rule in rules}
        terms = ShellSettings(
            self.timeout.total_seconds(),
            max(self.max_output_bytes, self.max_kept_bytes),
            environment,
            new_id=lambda: uuid4().hex,
        )
        return ShellHandler(root, filesystem, rules, programs, terms)


def _environment(root: Path) -> dict[str, str]:
    """The environment of every program, independent of this process's own environment."""
    return {
        "PATH": PROGRAM_PATH,
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        # Without it, git would search the parents of the root for a repository.
        "GIT_CEILING_DIRECTORIES": os.fspath(root.parent),
        "GIT_NO_LAZY_FETCH": "1",
        # `git status` would otherwise write to the index, so a command that only reads would change the folder.
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }


def faults_of_environment(given: object) -> list[str]:
    """What is wrong with an environment for programs, each as a clause."""
    if not isinstance(given, Mapping):
        return [f"environment is of type {type(given).__name__}; write environment={{'HOME': '/tmp'}}"]
    faults: list[str] = []
    for name, value in cast("Mapping[object, object]", given).items():
        if not isinstance(name, str) or not name or set(name) & {"=", "\0"}:
            faults.append(f"environment holds the invalid name {name!r}")
        elif not isinstance(value, str) or "\0" in value:
            faults.append(f"environment[{name!r}] is {value!r}; give a string without NUL")
        # A relative folder of `PATH` is searched relative to where the program starts, which the model can write to.
        elif name == "PATH" and not all(Path(part).is_absolute() for part in value.split(os.pathsep)):
            faults.append(
                f"environment['PATH'] is {value!r}; give absolute folders, so that a program cannot be planted"
            )
    return faults


def _tool(shell: ShellHandler, *, accepts_overrides: bool, max_result_chars: int) -> Tool[Any, Any]:
    # The example must be a command that is allowed; a prefix with globs is not a command.
    plain = (rule.prefix for rule in shell.rules if not any(set(token) & set("*?[") for token in rule.prefix))
    command = next(plain, ("ls",))
    return Tool[ShellRun, ProgramEnded](
        name="shell_run",
        description="Run one program and show what it writes. There is no shell: give name and arguments apart.",
        handler=shell.run,
        examples=(
            ToolExample(
                description="Run a program in a folder",
                input=ShellRun(command, "notes"),
                output=ProgramEnded(command, "notes", 0, "plan.md\n"),
            ),
        ),
        accepts_overrides=accepts_overrides,
        max_result_chars=max_result_chars,
        effect=External(repeat_unknown="allow"),  # before a repetition, another command can show what happened
    )


def shell_guidance(rules: tuple[ShellRule, ...], *, seconds: float, undoes: bool) -> str:
    """The text of the shell section, as Markdown.

    Args:
        rules: what may be run.
        seconds: how long a program may take.
        undoes: whether a program's changes are rolled back when it fails.
    """
    allowed = "\n".join(f"- {line}" for line in describe_rules(rules)) or _NOTHING
    undoing = _ONLY_READS if all(rule.reads for rule in rules) else _UNDONE if undoes else _NOT_UNDONE
    confined = _CONFINED if any(rule.confined for rule in rules) else ""
    return _TEXT.format(allowed=allowed, confined=confined, seconds=seconds, undoing=undoing)
