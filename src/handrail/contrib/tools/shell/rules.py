"""The commands that a model may run: rules about the tokens of a command, and the places that its arguments may name.

A command is a program and its arguments as the program gets them; there is no shell. A rule names a program by its bare
name and defines how the command may continue; a command that no rule allows is refused. A program that is allowed can
do whatever the process may do: the security boundary is the isolation of the process, not this module.

What is hidden from a run's file tools, `shell_run` protects from programs too:

| a command | |
|---|---|
| names a protected path, by itself or through a link | is refused |
| reads or may read more than the files that it names | is refused while anything is protected |
| the same, where its `ShellRule` sets `reads_everything` | runs |

A program is not monitored while it runs. Rules about paths cannot control what it does with the files that it is given,
nor the other names of a file on disk (hard links).

The ready rules at the end allow options by name. Left out are options that write elsewhere than in the files that are
named (`find -delete`), start programs (`find -exec`, `rg --pre`), follow links in folders (`grep -R`), read names of
files from a file (`wc --files0-from`), name another configuration, install something, or never end (`tail -f`).
"""

from __future__ import annotations

import os
import posixpath
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, cast

from handrail.errors import PromptValidationError, ToolValidationError
from handrail.filesystem.path_filters import NOTHING_FILTERED, PathFilter, excluding
from handrail.filesystem.paths import MAX_PART_BYTES, MAX_PATH_BYTES, ROOT
from handrail.prompt import ToolContext
from handrail.serde.formatting import shorten

Command = tuple[str, ...]
"""The tokens of a command: a program by its bare name, and its arguments."""

ProgramChanges = Literal["none", "kept", "rolled back", "not rolled back"]
"""The outcome of a program's changes in the folder.

==================  ====================================================================================================
`"none"`            its rule says that it only reads
`"kept"`            the call succeeds, and they stay
`"rolled back"`     the call fails, and they are rolled back, except in `.git` and in files that git ignores
`"not rolled back"`  the call fails, and they stay, because the folder is a plain folder
==================  ====================================================================================================
"""

_TEXTS: dict[ProgramChanges, str] = {
    "kept": " Its changes in the folder are kept.",
    "rolled back": " Its changes in the folder are rolled back, except in .git and in files that git ignores.",
    "not rolled back": " Its changes are not rolled back.",
}
_LONGEST_SHOWN = 100
_HIGHEST = 255  # exit code

# Without a slash: a path would name a file, and a model that can write files could provide it.
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_GLOB = re.compile(r"[*?\[]")

# An absolute path, or a step to the folder above, at the start of a token or of the value of an option or prefix.
_OUTSIDE = re.compile(r"(?:^|[=:,@])/|(?:^|[=:,@/])\.\.(?:/|$)")

_SEPARATOR = re.compile(r"[=:,@]")

_JOINED = re.compile(r"-[^-]")  # a token whose letters are options; a value may follow the last one


@dataclass(frozen=True, slots=True)
class ArgumentPath:
    """The start `folder` of a command, and the `root` that it is confined to, both without links."""

    root: Path
    folder: Path


@dataclass(frozen=True, slots=True)
class ShellRule:
    """Commands that may be run: those that begin with `prefix`, unless the other fields forbid them.

    `ShellRule(("git", "log"), options=("-p", "--oneline"))` allows `git log -p src`, and no other option. An argument
    that begins with `@`, which some programs expand to the arguments that a file holds, must stand in the prefix as it
    is.

    Attributes:
        prefix: the program by its bare name, then globs, each for one token that must follow.
        options: the only options that may follow, such as `("-l", "-a", "--all", "-name")`; single letters may be
            joined (`-la`), with digits (`-n5`). A long option may have a value (`--all=x`), and may not be shortened.
            `None` for any option.
        exact: whether nothing may follow the prefix.
        confined: whether arguments that lead out of the root are refused: absolute paths, `..`, and links.
        reads: whether such a command changes nothing anywhere. Then the tree is not saved before it.
        runs: the tokens that are run in place of the prefix, for options that must always be there; by default the
            prefix itself.
        reads_named: whether such a command reads only files that its arguments name, as `cat` does. Most programs read
            others, too: one that lists folders, and one that runs code.
        reads_everything: whether such a command may run although files are protected from the run's programs
            (see above).
        commit_on: the exit codes with which the call succeeds and the program's changes stay: `(0, 1)` for a program
            that ends with 1 when it has found or fixed something. 0 is always among them.

    Raises:
        PromptValidationError: a field is invalid; the message names what is valid.
    """

    prefix: Command
    options: tuple[str, ...] | None = None
    exact: bool = False
    confined: bool = True
    reads: bool = False
    runs: Command = ()
    reads_named: bool = False
    reads_everything: bool = False
    commit_on: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for name in ("prefix", "options", "runs"):
            value = getattr(self, name)
            # A string is a sequence of its letters, each of which would be a token.
            if isinstance(value, str):
                raise PromptValidationError(
                    f"{name} of a shell rule is {value!r}; write a tuple: {tuple(value.split())!r}"
                )
            object.__setattr__(self, name, None if value is None else tuple(value))
        object.__setattr__(self, "commit_on", _exit_codes(self.commit_on))
        # The program that is run may differ from the one in the prefix, and must be a bare name too.
        for name, program in (("prefix", self.prefix[:1]), ("runs", self.runs[:1] or self.prefix[:1])):
            if not program or not _PROGRAM.fullmatch(program[0]):
                text = repr(program[0]) if program else "nothing"
                raise PromptValidationError(
                    f"{name} of a shell rule begins with the bare name of a program, such as 'git', and not with "
                    f"{text}: a rule is for the one program that is found under the name"
                )
        if self.runs and any(map(_GLOB.search, self.prefix)):
            raise PromptValidationError(
                "a shell rule with runs cannot have globs in its prefix: what they match would be lost"
            )
        for option in self.options or ():
            if not option.startswith("-") or option in {"-", "--"}:
                raise PromptValidationError(
                    f"options of a shell rule holds {option!r}; an option begins with '-', such as '-l'"
                )

    @property
    def program(self) -> str:
        """The bare name of the program that is run."""
        return (self.runs or self.prefix)[0]

    @property
    def label(self) -> str:
        """The start of the commands, for messages."""
        return f"`{' '.join(self.prefix)}`{' and nothing more' if self.exact else ''}"

    @property
    def limits(self) -> str:
        """The tokens that may follow the start, in words, and when changes stay; empty without limits."""
        text = ""
        if self.options is not None and not self.exact:
            text = f", with these options only: {' '.join(self.options)}" if self.options else ", without options"
        others = [str(code) for code in self.commit_on if code]
        return text + (f"; with exit code {' or '.join(others)} its changes are kept, too" if others else "")

    def fits(self, command: Command) -> bool:
        """Returns whether this rule applies to a command."""
        return len(command) >= len(self.prefix) and all(map(fnmatchcase, command, self.prefix))

    def line(self, command: Command) -> Command:
        """The tokens that are run for a matching command."""
        return (*self.runs, *command[len(self.prefix) :]) if self.runs else command

    def fault(self, command: Command, place: ArgumentPath) -> str | None:
        """The reason why a matching command must not run, in words; `None` if it may."""
        following = len(self.prefix)
        if self.exact and len(command) > following:
            return f"nothing may follow `{' '.join(self.prefix)}`, so leave out {format_command(command[following])}"
        for number, token in enumerate(command[1:], 1):
            # The tokens of the prefix are checked too: a glob in it may match a path.
            refusal = self._token_fault(token, is_following=number >= following, place=place)
            # Some programs expand it to the arguments in that file, which the model may have written, and no rule sees.
            if token.startswith("@") and not (refusal or self.prefix[number : number + 1] == (token,)):
                path = format_command(f"./{token}")
                refusal = f"{format_command(token)} may name a file of arguments; write {path}, or '[@]' in a pattern"
            if refusal:
                return f"$.command[{number}]: {refusal}"
        return None

    def _token_fault(self, token: str, *, is_following: bool, place: ArgumentPath) -> str | None:
        if is_following and self.options is not None and not _is_among(self.options, token):
            options = " ".join(self.options)
            return (
                f"{format_command(token)} is not one of the options allowed with {self.label}: "
                f"{options or 'there are none'}. Give the value of an option with one letter as the next token, and a "
                "file whose name begins with '-' as './-name'"
            )
        return _leads_out(token, place) if self.confined else None


def match_command(
    rules: Sequence[ShellRule],
    command: Command,
    place: ArgumentPath,
    also: Callable[[ShellRule, Command, ArgumentPath], str | None] | None = None,
) -> ShellRule:
    """The rule that allows a command."""
    # The longest prefix first: a rule for `git log` precedes one for `git`, and its refusal is the more precise one.
    fitting = sorted((rule for rule in rules if rule.fits(command)), key=lambda rule: -len(rule.prefix))
    faults: list[str] = []
    for rule in fitting:
        fault = rule.fault(command, place) or (also and also(rule, command, place))
        if fault is None:
            return rule
        faults.append(fault)
    # Only the most precise refusal is shown.
    if faults:
        raise ToolValidationError(f"{faults[0]}.")
    if not rules:
        raise ToolValidationError("no program may be run here. Do without.")
    allowed = ", ".join(rule.label for rule in rules)
    raise ToolValidationError(f"{format_command(' '.join(command))} is not among what may be run here: {allowed}.")


def describe_rules(rules: Sequence[ShellRule]) -> list[str]:
    """The commands that rules allow, in words: programs to which the same applies are described together."""
    together: dict[str, list[str]] = {}
    for number, rule in enumerate(rules):
        # Without limits there is nothing to say once for several, so each has a line of its own.
        together.setdefault(rule.limits or str(number), []).append(rule.label)
    return [f"{', '.join(labels)}{'' if key.isdecimal() else key}" for key, labels in together.items()]


def format_command(token: str) -> str:
    """A token as messages quote it, shortened if it is long."""
    return repr(shorten(token, _LONGEST_SHOWN))


def parse_shell_rules(allow: Sequence[ShellRule | Sequence[str]]) -> tuple[ShellRule, ...]:
    """The declared rules, each given as a `ShellRule` or as the tokens of its prefix."""
    if isinstance(allow, str):
        raise PromptValidationError(f"allow is {allow!r}; write a list of commands: [{tuple(allow.split())!r}]")
    return tuple(rule if isinstance(rule, ShellRule) else ShellRule(cast("Command", rule)) for rule in allow)


def _exit_codes(codes: Sequence[int]) -> tuple[int, ...]:
    if 0 not in codes or not all(0 <= code <= _HIGHEST for code in codes):
        raise PromptValidationError(
            f"commit_on of a shell rule is {codes!r}; write exit codes from 0 to {_HIGHEST}, 0 among them: (0, 1)"
        )
    return tuple(sorted({*codes}))


def _is_among(options: Sequence[str], token: str) -> bool:
    if not token.startswith("-") or token in {"-", "--"}:
        return True
    letters = {option[1] for option in options if re.fullmatch(r"-[^-]", option)}
    words = [option for option in options if not re.fullmatch(r"-[^-]", option)]
    name = token.partition("=")[0] if token.startswith("--") else token
    if any(fnmatchcase(name, word) for word in words):
        return True
    # Digits may follow a letter, as in `-n5`.
    return not token.startswith("--") and all(letter in letters or letter in "0123456789" for letter in token[1:])


def _leads_out(token: str, place: ArgumentPath) -> str | None:
    if _OUTSIDE.search(token) or (_JOINED.match(token) and ("/" in token or ".." in token)):
        return (
            f"{format_command(token)} may lead out of the folder. Paths are relative to `folder`, without '..', and "
            "stand in tokens of their own; in a pattern write '[/]' for a slash at its start"
        )
    folder = os.fspath(place.folder)
    for path in paths_in(token):
        # Without this test, each token would cost several system calls. `lexists` also finds links that lead to
        # nothing.
        is_there = os.path.lexists(f"{folder}/{path.partition('/')[0]}")  # most are not paths
        if is_there and not Path(os.path.realpath(f"{folder}/{path}")).is_relative_to(place.root):
            text = "is or goes through a link that leads out of the folder. Give a path without it"
            return f"{format_command(token)} {text}"
    return None


def paths_in(token: str) -> Iterator[str]:
    """The parts of a token that a program may treat as a path."""
    yield token
    # A part that is longer than the longest path cannot name a file; without a bound, a token of a megabyte would take
    # quadratic time.
    for separator in _SEPARATOR.finditer(token, max(0, len(token) - MAX_PATH_BYTES)):
        yield token[separator.end() :]
    if _JOINED.match(token):
        # The value of a joined option may begin after any letter: `-xfile` may be `-x file` or `-x -f ile`.
        yield from (token[start:] for start in range(max(2, len(token) - MAX_PART_BYTES), len(token)))


def describe_changes(changes: ProgramChanges) -> str:
    """The outcome of the changes, as a sentence that follows others; may be empty."""
    return _TEXTS.get(changes, "")


def describe_end(name: str, code: int) -> str:
    """The end of a program as the beginning of a sentence; a negative code is the signal that killed it."""
    if code >= 0:
        return f"{name} has ended with exit code {code}"
    return f"{name} was ended by signal {-code} ({signal.strsignal(-code)})"


@dataclass(frozen=True, slots=True)
class ProgramPaths:
    """The paths protected from the programs of a run's calls. A run of an agent binds it for every toolset.

    Attributes:
        path_filter: the filter of the run's file tools.
        show_git: whether `.git` may be named to a program, as it exists for the file tools.
        kept_in: the additional filter of the run's toolsets, for a folder in which programs run.
    """

    path_filter: PathFilter
    show_git: bool
    kept_in: Callable[[Path], PathFilter]


@dataclass(frozen=True, slots=True)
class ProgramReach:
    """The files that one command may access.

    Attributes:
        name_filter: the same, and paths that must not be named.
    """

    path_filter: PathFilter = NOTHING_FILTERED
    name_filter: PathFilter = NOTHING_FILTERED

    @classmethod
    def from_call(cls, context: ToolContext, root: Path) -> ProgramReach:
        """The reach of a call that runs programs in the folder `root`: everything if nothing is bound."""
        if (paths := context.resources.get(ProgramPaths, None)) is None:
            return cls()
        path_filter = paths.path_filter.plus(paths.kept_in(root))
        return cls(path_filter, path_filter.plus(excluding((), show_git=paths.show_git)))

    def fault(self, rule: ShellRule, command: Command, place: ArgumentPath) -> str | None:
        """The reason why a command that a rule allows must not run, in words; `None` if it may."""
        if not self.name_filter:
            return None
        # The starting folder is checked as well: a program may read it without naming a path.
        by = self._keeps(os.path.relpath(place.folder, place.root), changes=not rule.reads)
        if by is not None:
            return f"$.folder: it is out of reach here, because of {by}"
        for number, token in enumerate(command[1:], 1):
            for path in _paths_named(token, place):
                if (by := self._keeps(path, changes=not rule.reads)) is not None:
                    return f"$.command[{number}]: {format_command(token)} is out of reach here, because of {by}"
        # After the named paths: `reads_everything` permits what is not named, and a protected path that is named is
        # refused nevertheless.
        if rule.reads_everything or rule.reads_named:
            return None
        # The programs' own reading cannot be observed, so a command that may read more is refused as a whole.
        if self.path_filter.is_partial(changes=not rule.reads):
            return (
                f"{rule.label} reads files that its arguments do not name, and some of them are out of reach here. Use "
                "the file tools, or a program that reads only the files that are named to it"
            )
        return None

    def _keeps(self, path: str, *, changes: bool) -> str | None:
        # The root itself is the starting folder of most commands; what it contains is checked by name.
        return None if path == ROOT else self.name_filter.keeps(path, changes=changes)


def _paths_named(token: str, place: ArgumentPath) -> Iterator[str]:
    folder = os.fspath(place.folder)
    for candidate in paths_in(token):
        whole = candidate if candidate.startswith("/") else f"{folder}/{candidate}"
        # Both forms are checked: `a/../b` is another file than `b` if `a` is a link.
        for path in dict.fromkeys((os.path.normpath(whole), os.path.realpath(whole))):
            if Path(path).is_relative_to(place.root):
                yield posixpath.relpath(path, place.root)


_FIND = (
    "-name -iname -path -ipath -regex -iregex -regextype -type -size -empty -newer -mtime -mmin -maxdepth -mindepth "
    "-not -o -or -a -and -prune -depth -print -printf -ls -quit -true -false -samefile -links -xdev -[0-9]*"
)
_GREP = (
    "-r -n -i -v -w -x -c -l -L -o -h -H -E -F -G -P -e -m -A -B -C -a -I -s -q --recursive --line-number "
    "--ignore-case --include --exclude --exclude-dir --max-count --count --files-with-matches --files-without-match "
    "--only-matching --word-regexp --invert-match --fixed-strings --extended-regexp --context --after-context "
    "--before-context"
)
_RG = (
    "-n -N -i -s -S -v -w -x -c -l -o -F -P -e -m -A -B -C -g -t -T -U --files --hidden --no-ignore --glob --iglob "
    "--type --type-not --type-list --line-number --ignore-case --smart-case --fixed-strings --max-count --count "
    "--count-matches --files-with-matches --files-without-match --only-matching --word-regexp --invert-match "
    "--multiline --context --after-context --before-context --max-depth --sort --stats --json"
)
# Without `--format`: `%G` in one checks signatures, which starts the program that the configuration names for it.
_GIT_HISTORY = (
    "-n -p -s -w -b -M -C -U -S -G -i -E -F --oneline --stat --shortstat --numstat --name-only --name-status --summary "
    "--patch --no-patch --graph --all --branches --tags --since --until --after --before --author --committer --grep "
    "--merges --no-merges --first-parent --follow --reverse --max-count --skip --date --decorate "
    "--no-decorate --abbrev-commit --diff-filter --find-renames --unified --ignore-all-space --ignore-space-change "
    "--word-diff --cached --staged --merge-base --color --no-color"
)
_GIT_STATUS = "-s -b -u --short --branch --porcelain --long --untracked-files --ignored --no-renames"
_GIT_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.attributesFile", os.devnull),
    ("core.pager", "cat"),
    ("log.showSignature", "false"),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
    ("status.submoduleSummary", "false"),
)

# Given on the command line, which overrides the configuration of the repository: a model that can write files may have
# written that.
_GIT = ("git", "--no-pager", *(part for key, value in _GIT_SETTINGS for part in ("-c", f"{key}={value}")))

# External diffs and text conversions are programs that a repository's configuration names.
_PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")


def _looking(*prefix: str, options: str, runs: tuple[str, ...] = (), named: bool = False) -> ShellRule:
    return ShellRule(prefix, options=tuple(options.split()), reads=True, runs=runs, reads_named=named)


READING: tuple[ShellRule, ...] = (
    _looking("ls", options="-l -a -A -R -h -t -S -r -1 -d -F -i -p -n --all --almost-all --recursive --reverse --sort"),
    _looking("cat", options="-n -b -s -A -E -T -v --number --show-all", named=True),
    _looking("head", options="-n -c -q -v --lines --bytes", named=True),
    _looking("tail", options="-n -c -q -v --lines --bytes", named=True),
    _looking("wc", options="-l -w -c -m -L --lines --words --bytes --chars", named=True),
    _looking("grep", options=_GREP),
    _looking("rg", options=_RG),
    _looking("find", options=_FIND),
)
"""Programs that show and find files, without git; see `GIT_READING`."""

GIT_READING: tuple[ShellRule, ...] = (
    _looking("git", "status", options=_GIT_STATUS, runs=(*_GIT, "status", "--ignore-submodules=all")),
    *(
        _looking("git", what, options=_GIT_HISTORY, runs=(*_GIT, what, *_PLAIN_DIFF))
        for what in ("log", "diff", "show")
    ),
)
"""`git status`, `log`, `diff` and `show`, without pager, hooks, external diffs and signatures.

Only for repositories whose `.git` is written only by trusted users, and never by the model: a repository's own
configuration can name programs as filters, which git starts when it compares files; these rules cannot prevent it.
"""
