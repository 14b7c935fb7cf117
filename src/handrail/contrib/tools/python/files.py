"""The functions for files that code may call, carried out in the call: inside its transaction, on its filesystem.

A file that exists may be written to or removed only if it was read before, as `ReadBeforeWritePolicy` requires it of
the file tools: by this code, or by the model. What code has read or written the model has not seen, so nothing becomes
known to the policy.

Code is not asked about. So what approval rules would ask about is refused here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from handrail.contrib.tools.shell.path_guard import ProgramPaths
from handrail.errors import FilesystemError, PathEscapeError, PathNotFoundError
from handrail.filesystem import FileStat, Filesystem, PathFilter
from handrail.filesystem.path_filters import NOTHING_FILTERED, excluding
from handrail.filesystem.protocol import digest_of
from handrail.prompt import ToolContext
from handrail.prompt.read_before_write import KnownFiles, known_of

MOST_FILE_BYTES = 10_000_000
"""The largest file that code can read or write, in bytes."""

MOST_FILE_CALLS = 10_000
"""How often code may call the functions for files, and look up a name that is not its own."""

MOST_LISTED = 10_000
"""How many files and folders one call can list."""


class _RefusedError(Exception):
    """A call that becomes an exception in the code; `kind` is its type there."""

    def __init__(self, kind: type[Exception], message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class LentFiles:
    """The functions, for one evaluation, which owns the state.

    Attributes:
        filesystem: the files; `None` if there are none.
        context: the call.
        read_first: whether a file must be read before it is written to.
        failure: what a function has raised that is not for the code, such as that the call is over.
    """

    filesystem: Filesystem | None
    context: ToolContext
    read_first: bool
    failure: BaseException | None = None
    _seen: dict[str, str] = field(default_factory=dict[str, str])
    _changed: set[str] = field(default_factory=set[str])

    @property
    def changed(self) -> tuple[str, ...]:
        """The paths that were written to or removed, in order."""
        return tuple(sorted(self._changed))

    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The functions by the names that code calls them by."""
        methods = (self.read_text, self.write_text, self.list_files, self.glob_files, self.exists, self.remove_file)
        return {method.__name__: self._lent(method) for method in methods}

    def _lent(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            try:
                bound = inspect.signature(method).bind(*arguments, **named)
                return method(**{name: _as_text(name, value) for name, value in bound.arguments.items()})
            except _RefusedError as refused:
                raise refused.kind(str(refused)) from None
            except FilesystemError as error:
                raise _kind_of(error)(str(error)) from None
            except TypeError as error:
                raise TypeError(f"{method.__name__}: {error}") from None
            except BaseException as error:
                self.failure = error
                raise

        return call

    @property
    def _files(self) -> Filesystem:
        if self.filesystem is None:
            raise _RefusedError(OSError, "there are no files here; do without the functions for files")
        return self.filesystem

    def read_text(self, path: str) -> str:
        """The text of a file."""
        start = self._files.read_start(path, 0)
        if start.size > MOST_FILE_BYTES:
            raise _RefusedError(OSError, f"{path!r} has {start.size:,} bytes, and {MOST_FILE_BYTES:,} can be read")
        data = self._files.read_bytes(path)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise _RefusedError(ValueError, f"{path!r} is not text in UTF-8") from error
        self._seen[self._files.shortest(path)] = digest_of((data,))
        return text

    def write_text(self, path: str, text: str) -> None:
        """Make or replace a file."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MOST_FILE_BYTES:
            raise _RefusedError(OSError, f"the text has {len(data):,} bytes, and {MOST_FILE_BYTES:,} can be written")
        self._check_known(path)
        self._files.write_text(path, text)
        self._note_change(path)
        self._seen[self._files.shortest(path)] = digest_of((data,))

    def remove_file(self, path: str) -> None:
        """Remove a file."""
        if self._files.stat(path).kind == "folder":
            raise _RefusedError(OSError, f"{path!r} is a folder; remove_file removes files")
        self._check_known(path)
        self._files.remove(path)
        self._note_change(path)

    def list_files(self, path: str = ".") -> list[str]:
        """The paths in a folder; folders end with `/`."""
        return _paths(self._files.list(path))

    def glob_files(self, pattern: str) -> list[str]:
        """The paths that match a pattern."""
        return _paths(self._files.glob(pattern))

    def exists(self, path: str) -> bool:
        """Whether there is anything at a path."""
        return self._files.exists(path)

    def _check_known(self, path: str) -> None:
        if not self.read_first or not self._files.exists(path) or self._files.stat(path).kind == "folder":
            return
        now, shortest = self._files.identity(path), self._files.shortest(path)
        known = known_of(self.context.session[KnownFiles], shortest)
        if self._seen.get(shortest) != now and (known is None or (known.identity, known.shown) != (now, "all")):
            raise _RefusedError(
                PermissionError,
                f"{path!r} exists, and its present content has not been read. Read it with read_text({path!r}) first",
            )

    def _note_change(self, path: str) -> None:
        self._changed.add(self._files.shortest(path))


def files_of(context: ToolContext) -> Filesystem | None:
    """The filesystem of a call, without `.git`, and what a person would be asked about; `None` if there is none."""
    filesystem = context.filesystem
    if filesystem is None:
        return None
    paths = context.resources.get(ProgramPaths, None)
    unseen = NOTHING_FILTERED if paths is None else unasked(paths.path_filter)
    # As for the file tools: what is in a `.git` can name programs, which git outside would run.
    return filesystem.filtered(unseen.plus(excluding(())))


def unasked(path_filter: PathFilter) -> PathFilter:
    """The filter of a caller that no person is asked about: what is left out, or asked about, does not exist."""
    return PathFilter(
        reading=(*path_filter.reading, *path_filter.listing, *path_filter.searching),
        writing=(*path_filter.writing, *path_filter.removing, *path_filter.holding),
    )


def _as_text(parameter: str, value: object) -> str:
    if isinstance(value, PurePath) and parameter != "text":
        return value.as_posix()
    if not isinstance(value, str):
        raise TypeError(f"{parameter} is to be a str, not {type(value).__name__}")
    return value


def _paths(found: tuple[FileStat, ...]) -> list[str]:
    if len(found) > MOST_LISTED:
        raise _RefusedError(OSError, f"there are {len(found):,} files and folders, and {MOST_LISTED:,} can be listed")
    return [f"{stat.path}/" if stat.kind == "folder" else stat.path for stat in found]


def _kind_of(error: FilesystemError) -> type[Exception]:
    if isinstance(error, PathNotFoundError):
        return FileNotFoundError
    return PermissionError if isinstance(error, PathEscapeError) else OSError
