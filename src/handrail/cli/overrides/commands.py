"""`handrail overrides seed`, `check`, `diff` and `apply`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Literal

from cyclopts import CycloptsError, Group, Parameter

from handrail.cli.overrides.named_prompt import NamedPrompt, named_prompt
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Debug, Screen, clean_lines, show_traceback
from handrail.cli.table import Column
from handrail.errors import OverridesError
from handrail.prompt.overrides import Override, OverridesReport, PromptOverrides, PromptText, TextKey
from handrail.prompt.overrides.apply import current_overrides, examine, is_edited
from handrail.prompt.overrides.store import read_overrides_file
from handrail.serde.formatting import count_noun

_GROUP = Group("Overrides and output", sort_key=9)
_WIDTH = 79  # of a line of a difference, without the sign before it: 80 columns together
_COLUMNS = (
    Column("text", spare=1),
    Column("state", styles={"applied": "green", "stale": "yellow", "unknown": "red"}),
)

PromptName = Annotated[
    str, Parameter(metavar="PROMPT", help="MODULE:ATTRIBUTE of a PromptTemplate or a Prompt, or an agent file.")
]
"""The prompt or the agent that a command is about."""


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class OverridesOptions:
    """The options of all commands over overrides.

    Attributes:
        folder: the folder with the files; `None` for that of the project, or `overrides`.
        tag: which of the overrides; `None` for those that the agent names, or `stable`.
        format: the output format.
        debug: whether tracebacks are shown.
    """

    folder: Annotated[
        Path | None,
        Parameter(
            metavar="FOLDER",
            help="The folder with the files; else that of the agent's project, or `overrides` in the current folder.",
        ),
    ] = None
    tag: Annotated[
        str | None,
        Parameter(metavar="TAG", help="Which overrides; else those that the agent or its project names, or `stable`."),
    ] = None
    format: Annotated[
        Literal["table", "json"], Parameter(help="`table` for people; `json` for programs: one document.")
    ] = "table"
    debug: Debug = False

    @property
    def as_json(self) -> bool:
        """Whether a program reads the output."""
        return self.format == "json"

    def named(self, prompt: str) -> NamedPrompt:
        """The prompt that a command is about, or the agent.

        Raises:
            CycloptsError: there is no such prompt or file.
            HandrailError: it cannot be used.
        """
        return named_prompt(prompt, self.folder, self.tag)


AS_GIVEN = OverridesOptions()
"""The defaults."""


def seed_file(prompt: PromptName, /, *, options: OverridesOptions = AS_GIVEN) -> int:
    """Write a file with all texts of a prompt that accept overrides, as the code has them, each with its hash.

    If the file exists, what was edited in it stays as it is, texts that it lacks are added, and texts that were never
    edited become those that the code has now.
    """
    named, screen = options.named(prompt), Screen()
    try:
        before = named.read()
        held = () if before is None else before.overrides
        renewed = _renewed(held, named.texts)
        known = {each.key for each in held}
        lacking = [text for key, text in named.texts.items() if key not in known]
        seeded = current_overrides(named.ns, named.key, named.tag, lacking)
        found = replace(seeded, overrides=(*renewed, *seeded.overrides))
        # A file that has all texts already keeps its form.
        if found != before:
            named.files.write(found)
    except OverridesError as error:
        return _failed(screen, error)
    _note_unused(screen, named)
    place, added = named.path, len(seeded.overrides)
    changed = sum(new != old for new, old in zip(renewed, held, strict=True))
    if options.as_json:
        screen.json({"file": str(place), "added": added, "renewed": changed, "kept": len(held) - changed})
    else:
        rest = f"; {count_noun(changed, 'text')} renewed" if changed else ""
        rest += f"; {count_noun(len(held) - changed, 'text')} kept" if len(held) > changed else ""
        screen.say(f"{place}: {count_noun(added, 'text')} added{rest}.")
    return DONE


def check_file(prompt: PromptName, /, *, options: OverridesOptions = AS_GIVEN) -> int:
    """Check that every override of a prompt is applied: none is stale, unknown or invalid.

    An override is stale if the code has another text than the one that it was written for, and unknown if the prompt
    has no such text. A text that was seeded and never edited is that of the code, and not stale. Exit codes: 0 all are
    applied; 1 some are not, or the file cannot be used; 2 the command line is invalid.
    """
    named, screen = options.named(prompt), Screen()
    try:
        found = named.found()
        report, _ = examine(named.texts, found)
    except OverridesError as error:
        return _failed(screen, error)
    _note_unused(screen, named)
    states = _states(report)
    if options.as_json:
        screen.json(
            {
                "file": report.file,
                "ok": report.is_current,
                "texts": [{**_key_json(each.key), "state": states[each.key]} for each in found.overrides],
            }
        )
        return DONE if report.is_current else FAILED
    if found.overrides:
        screen.table(_COLUMNS, [(str(each.key), states[each.key]) for each in found.overrides])
    screen.say(
        f"{count_noun(len(found.overrides), 'override')}: {len(report.applied)} applied, {len(report.stale)} stale, "
        f"{len(report.unknown)} unknown."
    )
    if report.stale:
        screen.remark("handrail overrides diff shows stale overrides beside the texts of the code.")
    return DONE if report.is_current else FAILED


def diff_texts(prompt: PromptName, /, *, options: OverridesOptions = AS_GIVEN) -> int:
    """Show each override that differs from the text of the code, as a unified diff of 80 columns.

    Lines with `-` are those of the code, lines with `+` those of the override; long lines are wrapped.
    """
    named, screen = options.named(prompt), Screen()
    try:
        found = named.found()
        report, _ = examine(named.texts, found)
    except OverridesError as error:
        return _failed(screen, error)
    states, texts = _states(report), {key: text.text for key, text in named.texts.items()}
    changed = [each for each in found.overrides if is_edited(each) and texts.get(each.key) != each.text]
    if options.as_json:
        shown = [
            {**_key_json(each.key), "state": states[each.key], "code": texts.get(each.key), "text": each.text}
            for each in changed
        ]
        screen.json({"file": report.file, "texts": shown})
        return DONE
    for each in changed:
        name = f"{each.key} ({states[each.key]})"
        screen.lines(_difference(name, texts.get(each.key, ""), each.text, named.tag))
    verb = "differs" if len(changed) == 1 else "differ"
    screen.say(f"{len(changed)} of {count_noun(len(found.overrides), 'override')} {verb} from the code.")
    return DONE


def apply_file(
    prompt: PromptName,
    file: Annotated[Path, Parameter(metavar="FILE", help="The file of overrides that is proposed.")],
    /,
    *,
    accept_stale: Annotated[
        bool,
        Parameter(help="Give stale overrides the hash of the text that the code has now; they have been reviewed."),
    ] = False,
    options: OverridesOptions = AS_GIVEN,
) -> int:
    """Install a file of overrides under a tag, if every one of them is applied to the prompt.

    The file that stands there is replaced atomically. A file with stale, unknown or invalid overrides is not installed.
    """
    named, screen = options.named(prompt), Screen()
    if not file.is_file():
        fault = "is not a file" if file.exists() else "does not exist"
        raise CycloptsError(msg=f"the file {file} {fault}; name the file of overrides that is proposed")
    try:
        proposed = read_overrides_file(file)
        _check_head(proposed, named)
        proposed = replace(proposed, tag=named.tag)
        accepted: tuple[TextKey, ...] = ()
        if accept_stale:
            accepted = examine(named.texts, proposed)[0].stale
            proposed = _accepted(proposed, named.texts)
        report, _ = examine(named.texts, proposed)
        if report.is_current:
            named.files.write(proposed)
    except OverridesError as error:
        return _failed(screen, error)
    _note_unused(screen, named)
    place = named.path
    if options.as_json:
        left = {
            "stale": [_key_json(key) for key in report.stale],
            "unknown": [_key_json(key) for key in report.unknown],
        }
        taken = {"accepted": [_key_json(key) for key in accepted]}
        screen.json({"file": str(place), "installed": report.is_current, **left, **taken})
    elif report.is_current:
        if accepted:
            screen.remark(f"Taken as reviewed: {'; '.join(map(str, accepted))}.")
        screen.say(f"{place}: {count_noun(len(report.applied), 'override')} installed.")
    else:
        rows = [(str(key), state) for key, state in _states(report).items() if state != "applied"]
        screen.table(_COLUMNS, rows)
        screen.remark("Not installed. Correct or remove these; --accept-stale takes stale ones as reviewed.")
    return DONE if report.is_current else FAILED


def _note_unused(screen: Screen, named: NamedPrompt) -> None:
    if not named.is_used:
        screen.remark(
            "No run of this agent applies overrides: its project has no [tool.handrail.overrides], and the agent file "
            "no overrides: TAG."
        )


def _check_head(proposed: PromptOverrides, named: NamedPrompt) -> None:
    if (proposed.ns, proposed.key) != (named.ns, named.key):
        raise OverridesError(
            f"the file is of ns {proposed.ns!r}, key {proposed.key!r}; the prompt is ns {named.ns!r}, key "
            f"{named.key!r}",
            file=proposed.file,
        )


def _accepted(found: PromptOverrides, texts: Mapping[TextKey, PromptText]) -> PromptOverrides:
    """The overrides with the hashes of the texts that the code has; those that were never edited have these texts."""
    renewed = _renewed(found.overrides, texts)
    hashed = (replace(each, sha256=texts[each.key].sha256) if each.key in texts else each for each in renewed)
    return replace(found, overrides=tuple(hashed))


def _renewed(overrides: Iterable[Override], texts: Mapping[TextKey, PromptText]) -> tuple[Override, ...]:
    """The overrides; those that were never edited have the texts that the code has now."""
    return tuple(each if is_edited(each) else _of_code(each, texts.get(each.key)) for each in overrides)


def _of_code(override: Override, text: PromptText | None) -> Override:
    if text is None or text.sha256 == override.sha256:
        return override
    return replace(override, text=text.text, sha256=text.sha256)


def _states(report: OverridesReport) -> dict[TextKey, str]:
    return {
        **dict.fromkeys(report.applied, "applied"),
        **dict.fromkeys(report.stale, "stale"),
        **dict.fromkeys(report.unknown, "unknown"),
    }


def _key_json(key: TextKey) -> dict[str, str]:
    return {"owner": key.owner, "name": key.name, "part": key.part, "place": key.place}


def _difference(name: str, code: str, text: str, tag: str) -> Iterator[str]:
    return unified_diff(_wrapped(code), _wrapped(text), f"code: {name}", f"{tag}: {name}", lineterm="")


def _wrapped(text: str) -> list[str]:
    cleaned = clean_lines(text).split("\n") if text else []
    return [piece for line in cleaned for piece in (wrap(line, _WIDTH, replace_whitespace=False) or [""])]


def _failed(screen: Screen, error: OverridesError) -> int:
    """Print an error with all its faults, and return the exit code."""
    show_traceback(screen, error)
    faults: Iterable[OverridesError] = error.problems or (error,)
    for fault in faults:
        screen.problem(str(fault))
    return FAILED
