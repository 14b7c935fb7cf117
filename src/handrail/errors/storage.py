"""The errors of stores, of ledgers, of sessions, and of filesystems."""

from __future__ import annotations

from typing import ClassVar

from handrail.errors.outcomes import DeveloperMistake, HandrailError


class StoreError(HandrailError):
    """A store cannot do what it is asked; `store` is its URL, without any password."""

    text_for_model: ClassVar[str] = "the store does not do it"

    def __init__(self, message: str, *, store: str, **attributes: object) -> None:
        super().__init__(message, **attributes)
        self.store = store


# Not a DeveloperMistake, unlike `StoreClosedError`: the program is not at fault, and a later attempt may succeed.
class StoreUnavailableError(StoreError):
    """The store does not answer, is busy for too long, or its disk is full. It may be tried again.

    Attributes:
        in_doubt: whether the connection was lost in the very moment of a commit, so that it is unknown here whether it
            took
            place. In any other case nothing was written.
        connection_lost: whether an open connection has ended; the store may answer on another one.
        waited: whether the store was waited for as long as it may be (`busy`), so that it is not tried again at once.
    """

    text_for_model: ClassVar[str] = "the store does not answer"

    in_doubt: bool = False
    connection_lost: bool = False
    waited: bool = False


class StoreClosedError(StoreError, DeveloperMistake):
    """The program has closed the store, and uses it again."""

    text_for_model: ClassVar[str] = DeveloperMistake.text_for_model


class StoreCorruptError(StoreError):
    """The content of the store cannot be read: it is not a database, is cut short, or another program changed a row."""

    text_for_model: ClassVar[str] = "the store cannot be read"


class StoreReadOnlyError(StoreError):
    """The store can be read, but not written to."""

    text_for_model: ClassVar[str] = "the store cannot be written to"


class StoreVersionError(StoreError):
    """The tables of the store have a `version` that is not the `supported_version` of this Handrail."""

    text_for_model: ClassVar[str] = "the store is of another version"

    version: int
    supported_version: int


class LedgerError(HandrailError):
    """The effect `key` has a state, `status`, that does not allow what was asked of it. Nothing was changed."""

    key: str
    status: str


class SessionError(HandrailError):
    """A session that was used against its rules; `session_id` is empty if it is not known."""

    session_id: str = ""


# Not a DeveloperMistake: it is raised outside a call, on the thread of the program that wrote, which may retry.
class SessionBusyError(SessionError):
    """A write to a session from outside, while a call holds its turn. Nothing was written."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id} is in use by a call, so a write from outside it was refused. Write inside the "
            "call (start a handler's own threads with contextvars.copy_context().run), or after it has ended.",
            session_id=session_id,
        )


class SessionUseError(SessionError, DeveloperMistake):
    """A session was asked for what it cannot do: to take from a LOG, to store what has no form in JSON, ..."""


class ReducerError(SessionError, DeveloperMistake, TypeError):
    """Reducers that clash, or a reducer that returned something that no slice can become."""


class SnapshotError(SessionError, ValueError):
    """A snapshot that belongs to another owner, is out of date, or cannot be read."""


class UndoRefusedError(SessionError):
    """A `plan` of calls to be undone that is not applied; nothing was undone."""

    plan: object


class SessionNotFoundError(SessionError, LookupError):
    """The store has no session of that id."""


class SessionLockedError(SessionError):
    """Another process, or another `Session` of this one, writes to the session."""


class SessionLostError(SessionError):
    """The session has passed to another process; what this one has of it is out of date. Open it again."""


# Also a LookupError: the stable name is looked up among the types that the program has imported.
class UnknownTypeError(SessionError, LookupError):
    """A store holds values of a type, `type_name`, that this program does not know, or not in that version."""

    type_name: str


# Not a ModelVisibleError: raised by a handler it becomes a failed result anyway, and a program that uses a filesystem
# without a model catches it too.
class FilesystemError(HandrailError):
    """A file operation that cannot be done; `path` is the path as it was given."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


# Also the exception of Python, so that code written for `open` handles it unchanged.
class PathNotFoundError(FilesystemError, FileNotFoundError):
    """No such file or folder."""


class PathConflictError(FilesystemError):
    """A file where a folder is needed, a folder where a file is, or a target that exists already."""


class PathEscapeError(FilesystemError, ValueError):
    """A path that leaves the root of the filesystem, or that is not a path at all."""


# Not a PathNotFoundError, which callers take for a file that is not there yet and may be made.
class RootMissingError(FilesystemError):
    """The folder that a filesystem was opened on is no longer there, or was replaced by another one."""

    text_for_model: ClassVar[str] = "the folder of the files is gone"


class JournalError(FilesystemError):
    """The record of what to restore on disk cannot be read or written, or belongs to something else."""

    text_for_model: ClassVar[str] = "what would have to be undone cannot be recorded on disk"


class FilesystemBusyError(FilesystemError):
    """Another process works on the same root."""

    text_for_model: ClassVar[str] = "another process works on the files"
