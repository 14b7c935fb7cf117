"""What ignore files hide from listings and searches: `.ignore`, `.gitignore`, and `.git/info/exclude`.

They hide, they do not protect: what they name can be read by its path. Which file decides, the first that says
something: the `.ignore` files, from the nearest folder to the root; the `.gitignore` files, in the same order; the
`info/exclude` of the repository. What lies in a hidden folder is hidden, whatever is said of it. In a folder with a
`.git` of its own, what git files above it say does not count.

`IgnoreRules` is the state of one folder. A walk goes from state to state, so each file is read once, and no path is
taken apart twice. Files above the root, git's settings of the user, and what git has been told to track are not looked
at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from handrail.filesystem.ignore_patterns import IgnoreFile, read_ignore_file
from handrail.filesystem.names import to_bytes
from handrail.filesystem.path_filters import GIT_FOLDER
from handrail.filesystem.patterns import Places

_IGNORE_FILE: Final = ".ignore"
_GITIGNORE_FILE: Final = ".gitignore"
_EXCLUDE_FILE: Final = ".git/info/exclude"
"""Where the patterns stand, relative to a folder."""

RULE_NAMES: Final = frozenset({_IGNORE_FILE, _GITIGNORE_FILE, GIT_FOLDER})
"""The names by which a folder shows that it has rules of its own."""

MOST_RULE_BYTES: Final = 1 << 20
"""An ignore file that is larger says nothing."""

ReadRuleFile: TypeAlias = Callable[[str], bytes | None]
"""The content of an ignore file, by its path relative to the folder; `None` if there is none that counts."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One ignore file, and where its patterns stand in a folder."""

    file: IgnoreFile
    places: dict[int, Places]

    def entered(self, name: bytes) -> _Source:
        after = self.file.entered(name, self.places)
        return self if after == self.places else _Source(self.file, after)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """What the ignore files say in one folder. A new one says nothing.

    Attributes:
        ignore: from the `.ignore` files, the nearest first.
        gitignore: from the `.gitignore` files, the nearest first.
        exclude: from `info/exclude`.
    """

    ignore: tuple[_Source, ...] = ()
    gitignore: tuple[_Source, ...] = ()
    exclude: tuple[_Source, ...] = ()

    def hides(self, name: str, *, is_folder: bool) -> bool:
        """Whether what is called `name` in this folder is hidden."""
        if not (self.ignore or self.gitignore or self.exclude):
            return False
        data = to_bytes(name)
        for source in (*self.ignore, *self.gitignore, *self.exclude):
            verdict = source.file.verdict(data, source.places, is_folder=is_folder)
            if verdict is not None:
                return verdict.hides
        return False

    def entered(self, name: str) -> IgnoreRules:
        """What the files above say in the folder `name` of this one."""
        if not (self.ignore or self.gitignore or self.exclude):
            return self
        data = to_bytes(name)
        return IgnoreRules(
            tuple(source.entered(data) for source in self.ignore),
            tuple(source.entered(data) for source in self.gitignore),
            tuple(source.entered(data) for source in self.exclude),
        )

    def with_files(self, present: Collection[str], read: ReadRuleFile) -> IgnoreRules:
        """What is said once the folder's own files are read, too.

        Args:
            present: which of `RULE_NAMES` the folder has.
            read: reads a file of the folder.
        """
        ignore, gitignore, exclude = self.ignore, self.gitignore, self.exclude
        if not present:
            return self
        if GIT_FOLDER in present:
            gitignore, exclude = (), _read(_EXCLUDE_FILE, read)
        if _GITIGNORE_FILE in present:
            gitignore = (*_read(_GITIGNORE_FILE, read), *gitignore)
        if _IGNORE_FILE in present:
            ignore = (*_read(_IGNORE_FILE, read), *ignore)
        return IgnoreRules(ignore, gitignore, exclude)


def _read(name: str, read: ReadRuleFile) -> tuple[_Source, ...]:
    data = read(name)
    if data is None or len(data) > MOST_RULE_BYTES:
        return ()
    file = read_ignore_file(data)
    return (_Source(file, file.start),)
