"""How the root's own git dir has changed, in words, and the commands that take it back.

The commands are for a tree whose files have been restored: none of them touches a file, but for `git checkout` between
two branches that are at the same commit. Run in their order they take back HEAD, then the references, then the index.

============================  ==========================================================================================
what differs                  the command
============================  ==========================================================================================
HEAD, at the same commit      `git checkout main`, or `git checkout --detach COMMIT`, if no hook runs then
HEAD, otherwise               `git symbolic-ref HEAD refs/heads/main`, or `git update-ref --no-deref HEAD COMMIT`
a new branch, tag, other one  `git branch -D NAME`, `git tag -d NAME`, `git update-ref -d REFERENCE`
a reference moved or deleted  `git update-ref REFERENCE COMMIT`
the index, in a few paths     `git update-index --add --cacheinfo ...` or `--force-remove` for each
a merge under way             `git merge --quit`, and the same for the others
a lock of the index is left   `rm .git/index.lock`
the index, in many paths      none: `git reset` stages what HEAD has, and what was staged besides must be staged again
`config`                      none
============================  ==========================================================================================
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from handrail.filesystem.own_git.index import index_entries
from handrail.filesystem.own_git.state import UNDER_WAY, GitDirState

_BRANCH: Final = "refs/heads/"
_TAG: Final = "refs/tags/"
_SYMBOLIC: Final = "ref: "
_MOST_REFERENCES: Final = 8
_MOST_STAGED: Final = 5
_SHORT: Final = 10

# What git takes for the name of a reference, without signs that could confuse a reader. Other names are not shown: they
# come from files that a program may have written.
_NAME: Final = re.compile(r"refs/[^\x00-\x20\x7f-\x9f~^:?*\[\\\ud800-\udfff]{1,400}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

_QUIT: Final = {
    "MERGE_HEAD": ("a merge", "git merge --quit"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "git cherry-pick --quit"),
    "REVERT_HEAD": ("a revert", "git revert --quit"),
    "rebase-merge": ("a rebase", "git rebase --quit"),
    "rebase-apply": ("a rebase", "git rebase --quit"),
    "BISECT_LOG": ("a bisection", "git bisect reset HEAD"),
}


@dataclass(frozen=True, slots=True)
class GitChange:
    """One difference between two states of a git dir.

    Attributes:
        text: what differs, in words.
        command: the shell command that takes it back; empty if there is none.
    """

    text: str
    command: str = ""


def git_changes(before: GitDirState | None, now: GitDirState | None) -> tuple[GitChange, ...]:
    """How a git dir has changed, in the order in which to take it back.

    Args:
        before: its state before; `None` if there was none.
        now: its state now; `None` if there is none.
    """
    if before is None or now is None:
        if before is now:
            return ()
        return (GitChange("a repository was made" if now else "the repository was removed or damaged"),)
    return (
        *_under_way(before, now),
        *_head(before, now),
        *_references(before, now),
        *_index(before, now),
        *([GitChange("config was changed")] if before.config != now.config else []),
    )


def _head(before: GitDirState, now: GitDirState) -> Iterator[GitChange]:
    if before.head == now.head:
        return
    old, new = _text_of(before.head), _text_of(now.head)
    text = f"HEAD was {_shown(old)}, is {_shown(new)}"
    # Resolved with the references of now: a checkout compares what the two are at this moment.
    is_same = _resolved(old, now) == _resolved(new, now) is not None
    target = old.removeprefix(_SYMBOLIC)
    if old.startswith(_SYMBOLIC + _BRANCH) and _NAME.fullmatch(target):
        branch = target.removeprefix(_BRANCH)
        symbolic = f"git symbolic-ref HEAD {shlex.quote(target)}"
        # A hook that fails would end the chain of commands, and git refuses a name that is also that of a file.
        is_plain = is_same and not now.has_checkout_hook and not branch.startswith("-") and not now.has_path(branch)
        yield GitChange(text, f"git checkout {shlex.quote(branch)}" if is_plain else symbolic)
    elif _COMMIT.fullmatch(old):
        is_plain = is_same and not now.has_checkout_hook
        yield GitChange(text, f"git checkout --detach {old}" if is_plain else f"git update-ref --no-deref HEAD {old}")
    else:
        yield GitChange(text)


def _references(before: GitDirState, now: GitDirState) -> Iterator[GitChange]:
    if (before.packed, before.loose) == (now.packed, now.loose):
        return
    old, new = before.references, now.references
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    for name in islice(names, _MOST_REFERENCES):
        yield _reference(name, old.get(name), new.get(name))
    if len(names) > _MOST_REFERENCES:
        yield GitChange(f"{len(names) - _MOST_REFERENCES} more references differ")


def _reference(name: str, old: str | None, new: str | None) -> GitChange:
    if not _NAME.fullmatch(name):
        return GitChange("a reference with an unusual name differs")
    kind, short = "reference", name
    for prefix, noun in ((_BRANCH, "branch"), (_TAG, "tag")):
        if name.startswith(prefix):
            kind, short = noun, name.removeprefix(prefix)
    if old is None:
        commands = {"branch": "git branch -D", "tag": "git tag -d"}
        # What begins with a dash would be taken for an option.
        plain = kind in commands and not short.startswith("-")
        command = f"{commands[kind]} {shlex.quote(short)}" if plain else f"git update-ref -d {shlex.quote(name)}"
        return GitChange(f"new {kind} {short}", command)
    change = (
        f"deleted {kind} {short}, which was {_shown(old)}"
        if new is None
        else (f"{kind} {short} was {_shown(old)}, is {_shown(new)}")
    )
    return GitChange(change, f"git update-ref {shlex.quote(name)} {old}" if _COMMIT.fullmatch(old) else "")


def _index(before: GitDirState, now: GitDirState) -> Iterator[GitChange]:
    if before.index == now.index:
        return
    old, new = index_entries(before.index), index_entries(now.index)
    if old is None or new is None:
        yield GitChange("the index was written")
        return
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    if not keys:  # only the status of files was refreshed
        return
    paths = sorted({path for path, _ in keys})
    count = "1 path is" if len(paths) == 1 else f"{len(paths):,} paths are"
    is_simple = len(paths) <= _MOST_STAGED and all(path.isprintable() and not stage for path, stage in keys)
    if not is_simple:
        yield GitChange(f"{count} staged differently")
        return
    commands: list[str] = []
    for path in paths:
        entry = old.get((path, 0))
        quoted = shlex.quote(path)
        commands.append(
            f"git update-index --force-remove -- {quoted}"
            if entry is None
            else f"git update-index --add --cacheinfo {entry.mode:o},{entry.id},{quoted}"
        )
    yield GitChange(f"{count} staged differently: {', '.join(paths)}", " && ".join(commands))


def _under_way(before: GitDirState, now: GitDirState) -> Iterator[GitChange]:
    for name in UNDER_WAY:
        if name in now.under_way and name not in before.under_way:
            if name in _QUIT:
                noun, command = _QUIT[name]
                yield GitChange(f"{noun} is under way", command)
            else:
                yield GitChange("a lock of the index is left behind", f'rm "{_lock(now)}"')
        elif name in before.under_way and name not in now.under_way and name in _QUIT:
            yield GitChange(f"{_QUIT[name][0]} is no longer under way")


def _lock(state: GitDirState) -> str:
    # The path of a linked worktree's git dir leads out of the root, and is not shown.
    return ".git/index.lock" if state.git_dir == state.common_dir else "$(git rev-parse --git-dir)/index.lock"


def _text_of(head: bytes) -> str:
    return head.decode(errors="replace").strip()


def _resolved(head: str, state: GitDirState) -> str | None:
    """The commit of a HEAD."""
    return state.references.get(head.removeprefix(_SYMBOLIC)) if head.startswith(_SYMBOLIC) else head


def _shown(value: str) -> str:
    """A HEAD or an object for people."""
    name = value.removeprefix(_SYMBOLIC)
    if _COMMIT.fullmatch(name):
        return name[:_SHORT]
    return name.removeprefix(_BRANCH) if _NAME.fullmatch(name) else "unreadable"
