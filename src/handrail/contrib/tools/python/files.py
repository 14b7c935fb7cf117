"""The functions for files that code may call, carried out in the call: inside its transaction, on its filesystem.

A file that exists may be written to or removed only if it was read before, as `ReadBeforeWritePolicy` requires it of
the file tools: by this code, or by the model. What code has read or written the model has not seen, so nothing becomes
known to the policy.

Code is not asked about. So what approval rules would ask about is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from handrail.contrib.tools.shell.path_guard import ProgramPaths
from handrail.errors import FilesystemError, PathEscapeError, PathNotFoundError
from handrail.filesystem import FileStat, Filesystem, PathFilter
from handrail.filesystem.path_filters import NOTHING_FILTERED, excluding
from handrail.filesystem.paths import normalise
from handrail.filesystem.protocol import digest_of
from handrail.prompt import ToolContext
from handrail.prompt.known_files import KnownFiles, known_of
from handrail.python_worker.channel import WorkerMessage
from handrail.python_worker.lent import FUNCTIONS

MOST_FILE_BYTES = 10_000_000
"""The largest file that code can read or write, in bytes."""

MOST_FILE_CALLS = 10_000
"""How often code may call the functions for files."""

MOST_LISTED = 10_000
"""How many files and folders one call can list."""


class _RefusedError(Exception):
    """A call that becomes an exception in the code; `kind` is the name of its type there."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class LentFiles:
    """The functions, for one evaluation, which owns the state.

    Attributes:
        filesystem: the files; `None` if there are none.
        context: the call.
        read_first: whether a file must be read before it is written to.
    """

    filesystem: Filesystem | None
    context: ToolContext
    read_first: bool
    _seen: dict[str, str] = field(default_factory=dict[str, str])
    _changed: set[str] = field(default_factory=set[str])
    _calls: int = 0

    @property
    def changed(self) -> tuple[str, ...]:
        """The paths that were written to or removed, in order."""
        return tuple(sorted(self._changed))

    def answer(self, name: str, arguments: object) -> WorkerMessage:
        """Carry out a call of a function, and return the message that answers it.

        Raises:
            ValueError: it is not a call that the functions make.
            ModelVisibleError: the call of the tool may not write, or is over.
        """
        parameters = FUNCTIONS.get(name)
        given = _texts(arguments)
        if parameters is None or given is None or len(given) != len(parameters):
            raise ValueError("it has called what is not a function for files")
        self._calls += 1
        if self._calls > MOST_FILE_CALLS:
            return _raises("OSError", f"the functions for files can be called {MOST_FILE_CALLS:,} times")
        if self.filesystem is None:
            return _raises("OSError", "there are no files here; do without the functions for files")
        function = cast("Callable[..., object]", getattr(self, f"_{name}"))
        try:
            return {"returns": function(self.filesystem, *given)}
        except _RefusedError as refused:
            return _raises(refused.kind, str(refused))
        except FilesystemError as error:
            return _raises(_kind_of(error), str(error))

    def _read_text(self, files: Filesystem, path: str) -> str:
        start = files.read_start(path, 0)
        if start.size > MOST_FILE_BYTES:
            raise _RefusedError("OSError", f"{path!r} has {start.size:,} bytes, and {MOST_FILE_BYTES:,} can be read")
        data = files.read_bytes(path)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise _RefusedError("ValueError", f"{path!r} is not text in UTF-8") from error
        self._seen[normalise(path)] = digest_of((data,))
        return text

    def _write_text(self, files: Filesystem, path: str, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MOST_FILE_BYTES:
            raise _RefusedError("OSError", f"the text has {len(data):,} bytes, and {MOST_FILE_BYTES:,} can be written")
        self._check_known(files, path)
        files.write_text(path, text)
        self._note_change(path)
        self._seen[normalise(path)] = digest_of((data,))

    def _remove_file(self, files: Filesystem, path: str) -> None:
        if files.stat(path).kind == "folder":
            raise _RefusedError("OSError", f"{path!r} is a folder; remove_file removes files")
        self._check_known(files, path)
        files.remove(path)
        self._note_change(path)

    def _list_files(self, files: Filesystem, path: str) -> list[str]:
        return _paths(files.list(path))

    def _glob_files(self, files: Filesystem, pattern: str) -> list[str]:
        return _paths(files.glob(pattern))

    def _exists(self, files: Filesystem, path: str) -> bool:
        return files.exists(path)

    def _check_known(self, files: Filesystem, path: str) -> None:
        if not self.read_first or not files.exists(path) or files.stat(path).kind == "folder":
            return
        now, shortest = files.identity(path), normalise(path)
        known = known_of(self.context.session[KnownFiles], shortest)
        if self._seen.get(shortest) != now and (known is None or (known.identity, known.shown) != (now, "all")):
            raise _RefusedError(
                "PermissionError",
                f"{path!r} exists, and its present content has not been read. Read it with read_text({path!r}) first",
            )

    def _note_change(self, path: str) -> None:
        self._changed.add(normalise(path))


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


def _texts(arguments: object) -> list[str] | None:
    """Arguments that are text, as all are; `None` for anything else."""
    if not isinstance(arguments, list):
        return None
    found = [each for each in cast("list[object]", arguments) if isinstance(each, str)]
    return found if len(found) == len(cast("list[object]", arguments)) else None


def _raises(kind: str, message: str) -> WorkerMessage:
    """The message for an exception in the code."""
    return {"raises": [kind, message]}


def _paths(found: tuple[FileStat, ...]) -> list[str]:
    if len(found) > MOST_LISTED:
        raise _RefusedError("OSError", f"there are {len(found):,} files and folders, and {MOST_LISTED:,} can be listed")
    return [f"{stat.path}/" if stat.kind == "folder" else stat.path for stat in found]


def _kind_of(error: FilesystemError) -> str:
    if isinstance(error, PathNotFoundError):
        return "FileNotFoundError"
    return "PermissionError" if isinstance(error, PathEscapeError) else "OSError"
