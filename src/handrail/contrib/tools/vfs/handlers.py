"""The handlers of the file tools.

A handler translates the parameters into one or two operations of the filesystem, and their outcome into what the model
reads. `handrail.contrib.tools.vfs.text` makes excerpts and edits, and `search` searches files. The message of a search
that finds much is cut, and the model reads the rest as that of any long result (`handrail.runtime.long_results`).

A file above the size limit is never read whole. The identity of a content is
computed from the bytes that are shown, or before they are read: a change in between counts as unread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import escape
from itertools import accumulate

from handrail.contrib.tools.vfs.files import (
    NOTHING_LEFT_OUT,
    EditFile,
    FileEdited,
    FileExcerpt,
    FileList,
    FileMoved,
    FileRemoved,
    FileWritten,
    LeftOut,
    ListFiles,
    MoveFile,
    ReadFile,
    RemoveFile,
    WriteFile,
    format_entry,
)
from handrail.contrib.tools.vfs.search import FilesFound, GlobFiles, GrepFiles, LinesFound, Search
from handrail.contrib.tools.vfs.text import (
    NotText,
    VfsLimits,
    decode_text,
    excerpt,
    like,
    mark_of,
    replace_exactly,
    too_large,
)
from handrail.errors import FilesystemError, ToolValidationError
from handrail.filesystem import FileStat, Filesystem
from handrail.filesystem.path_filters import PathFilter, Pattern
from handrail.filesystem.paths import parent_folder
from handrail.filesystem.protocol import MOST_HASHED_BYTES, hash_content
from handrail.filesystem.walks import Scan, WalkRequest
from handrail.prompt import FileShown, ToolContext, ToolResult

START_BYTES = 64 * 1024
"""How much of a file is read at first, which is all of most: 64 KiB."""

_SPECIAL = NotText("is a device, socket or pipe, which is neither read nor changed")


@dataclass(frozen=True, slots=True)
class FileHandlers:
    """The handlers, one for each file tool and of the same name.

    Attributes:
        limits: how much one call reads or shows.
        path_filter: which paths exist for the tools, in addition to the filesystem's own filter.
    """

    limits: VfsLimits
    path_filter: PathFilter = field(default_factory=PathFilter)

    def list_files(self, params: ListFiles, *, context: ToolContext) -> ToolResult[FileList]:
        """Show what a folder holds."""
        with self._filesystem(context) as filesystem:
            look = self._look(context, include_ignored=params.include_ignored)
            folder = filesystem.stat(params.path).path
            found = _scanned(filesystem, folder, Pattern("*"), look)
        return ToolResult.ok(FileList(folder, self._shown(found), len(found.entries), LeftOut.of(found)))

    def glob_files(self, params: GlobFiles, *, context: ToolContext) -> ToolResult[FilesFound]:
        """Show what matches."""
        with self._filesystem(context) as filesystem:
            folder = self._folder(filesystem, params.path)
            pattern = _pattern(filesystem, params.pattern, folder)
            look = self._look(context, include_ignored=params.include_ignored)
            found = _scanned(filesystem, folder, pattern, look)
        entries = self._shown(found)
        return ToolResult.ok(FilesFound(params.pattern, folder, entries, len(found.entries), LeftOut.of(found)))

    def grep_files(self, params: GrepFiles, *, context: ToolContext) -> ToolResult[LinesFound]:
        """Show the lines that match."""
        with self._filesystem(context) as filesystem:
            look = self._look(context, include_ignored=params.include_ignored)
            # Before any file is looked at, because it refuses a pattern that is invalid.
            search = Search(params, self.limits, look.is_over)
            there = filesystem.stat(params.path)
            pattern = _pattern(filesystem, params.files, there.path)
            if there.kind == "folder":
                found = _scanned(filesystem, there.path, pattern, look)
                stats = [stat for stat in found.entries if stat.kind == "file"]
                return ToolResult.ok(search.of(filesystem, stats, LeftOut.of(found)))
            by = filesystem.unsearched(there.path)
            if by is not None:
                # Naming a file must not bypass the rules that leave it out of searches.
                raise ToolValidationError(f"$.path: {there.path} is left out of searches, because of {by}.")
            if there.kind == "symlink":
                _refuse_link_to_folder(filesystem, there.path)
            _scanned(filesystem, there.path, None, look)
            return ToolResult.ok(search.of(filesystem, [there], NOTHING_LEFT_OUT))

    def read_file(self, params: ReadFile, *, context: ToolContext) -> ToolResult[FileExcerpt]:
        """Show a part of a file's text, or the kind of a file that is not text."""
        with self._filesystem(context) as filesystem:
            content = content_of(filesystem, params.path, self.limits)
        if isinstance(content.text, NotText):
            shown = FileExcerpt(content.path, "", 0, 0, 0, not_shown=content.text.what)
        else:
            shown = excerpt(content.text, params, self.limits, path=content.path)
        return ToolResult.ok(shown, files_shown=content.shown_in(shown))

    def write_file(self, params: WriteFile, *, context: ToolContext) -> ToolResult[FileWritten]:
        """Make or replace a file."""
        with self._filesystem(context) as filesystem:
            # Before the write, after which the file always exists. No other call can come between: this one holds the
            # turn.
            path = filesystem.shortest(params.path)
            created = not filesystem.exists(path)
            text = params.content if created else like(params.content, _start_of(filesystem, path))
            filesystem.write_text(path, text)
            # The identity is of the text that was written, and not of what is read again: a change in between counts as
            # unread.
            data = text.encode()
            shown = FileShown(path, identity_of(filesystem, path, data))
        return ToolResult.ok(FileWritten(path, created, len(data)), files_shown=(shown,))

    def edit_file(self, params: EditFile, *, context: ToolContext) -> ToolResult[FileEdited]:
        """Replace a piece of a file's text."""
        with self._filesystem(context) as filesystem:
            content = content_of(filesystem, params.path, self.limits)
            path, text = content.path, content.text
            if isinstance(text, NotText):
                raise ToolValidationError(
                    f"{path} {text.what}. edit_file cannot change it, so leave this file as it is; what you write "
                    "belongs in another."
                )
            after = replace_exactly(text, params, path=path)
            written = mark_of(_start_of(filesystem, path)) + after.text
            filesystem.write_text(path, written)
            identity = identity_of(filesystem, path, written.encode())
        return ToolResult.ok(
            FileEdited(path, after.replacements, after.lines), files_shown=(FileShown(path, identity),)
        )

    def remove_file(self, params: RemoveFile, *, context: ToolContext) -> ToolResult[FileRemoved]:
        """Remove a file or folder."""
        with self._filesystem(context) as filesystem:
            # Before the removal, because afterwards there is neither a kind nor a shortest path.
            there = filesystem.stat(params.path)
            held = filesystem.remove(there.path, recursive=params.recursive)
        return ToolResult.ok(FileRemoved(there.path, there.kind, held))

    def move_file(self, params: MoveFile, *, context: ToolContext) -> ToolResult[FileMoved]:
        """Move a file or folder."""
        with self._filesystem(context) as filesystem:
            path = filesystem.stat(params.path).path
            filesystem.move(path, params.new_path)
            return ToolResult.ok(FileMoved(path, filesystem.shortest(params.new_path)))

    def _shown(self, found: Scan) -> tuple[FileStat, ...]:
        """The first entries, as many as one call finds."""
        room, entries = self.limits.search_characters, found.entries
        fit = next((n for n, size in enumerate(accumulate(map(_length, entries)), 1) if size > room), len(entries) + 1)
        return entries[: max(fit - 1, 1)]

    def _look(self, context: ToolContext, *, include_ignored: bool) -> WalkRequest:
        return WalkRequest(include_ignored, self.limits.walked_entries, _time_over(context, self.limits))

    @contextmanager
    def _filesystem(self, context: ToolContext) -> Generator[Filesystem, None, None]:
        """The filesystem of a call, behind the filter; its errors become messages for the model."""
        try:
            yield context.resources.get(Filesystem).filtered(self.path_filter)
        except FilesystemError as error:
            raise ToolValidationError(str(error)) from error

    @staticmethod
    def _folder(filesystem: Filesystem, path: str) -> str:
        there = filesystem.stat(path)
        if there.kind != "folder":
            raise ToolValidationError(
                f"$.path: {there.path} is not a folder but a {there.kind}, and links are not followed. Name a folder."
            )
        return there.path


def _pattern(filesystem: Filesystem, pattern: str, folder: str) -> Pattern:
    """A pattern relative to a folder, which may be absolute."""
    if pattern.startswith("/"):
        pattern = filesystem.shortest(pattern).removeprefix(f"{folder}/")
    return Pattern(pattern)


def _start_of(filesystem: Filesystem, path: str) -> bytes:
    """The start of what is replaced; nothing of the target of a link that does not exist."""
    exists = filesystem.exists(filesystem.resolve(path))
    return filesystem.read_start(path, START_BYTES).data if exists else b""


def _length(entry: FileStat) -> int:
    return len(format_entry(entry)) + 1  # and the line end


def _refuse_link_to_folder(filesystem: Filesystem, path: str) -> None:
    """Check that a link leads to a file.

    Raises:
        FilesystemError: it leads to nothing, or out of the root.
        ToolValidationError: it leads to a folder.
    """
    if filesystem.stat(filesystem.resolve(path)).kind == "folder":
        raise ToolValidationError(
            f"$.path: {path} is a link to a folder, and links to folders are not followed. Name the folder itself."
        )


def _scanned(filesystem: Filesystem, path: str, pattern: Pattern | None, look: WalkRequest) -> Scan:
    """What a walk finds in a folder, or of one file if there is no pattern.

    Raises:
        ToolValidationError: ignore files hide the path.
    """
    if pattern is None:
        name = path.rpartition("/")[2]
        # The name is escaped, so that `*`, `[` or `{` in it is not a pattern.
        found = filesystem.scan(parent_folder(path), escape(name).replace("{", "[{]"), look)
        hidden = found.start_ignored or found.ignored > 0
    else:
        found = filesystem.scan(path, pattern, look)
        hidden = found.start_ignored
    if hidden:
        raise ToolValidationError(
            f"$.path: {path} is hidden by ignore files (such as .gitignore). Set include_ignored to true to look at it."
        )
    return found


def _time_over(context: ToolContext, limits: VfsLimits) -> Callable[[], bool]:
    """Whether the time for a search is over: its own, or that of the run."""
    seconds = float(limits.search_seconds)
    if context.deadline is not None:
        # So that the search ends with what it has found; a deadline that passes in the handler would end the run with
        # nothing.
        seconds = min(seconds, context.deadline.remaining().total_seconds())
    # Measured in monotonic time, so that setting the clock of the machine does not end or prolong a search.
    now, end = context.clock.monotonic, context.clock.monotonic() + seconds
    return lambda: now() >= end


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file.

    Attributes:
        path: its path, in shortest form.
        text: its text, or what it is instead.
        identity: the result of `Filesystem.identity`; empty for a special file, which has none.
    """

    path: str
    text: str | NotText
    identity: str

    def shown_in(self, excerpt: FileExcerpt) -> tuple[FileShown, ...]:
        """How much of the file an excerpt shows."""
        if not self.identity:
            return ()
        if isinstance(self.text, NotText):
            return (FileShown(self.path, self.identity, "nothing"),)
        if not excerpt.total_lines:
            return (FileShown(self.path, self.identity),)
        return (
            FileShown(
                self.path,
                self.identity,
                "part",
                first_line=excerpt.first_line,
                last_line=excerpt.last_line,
                total_lines=excerpt.total_lines,
                column=excerpt.column,
                next_column=excerpt.next_column,
            ),
        )


def content_of(filesystem: Filesystem, path: str, limits: VfsLimits) -> Content:
    """The content at a path; links are followed.

    Raises:
        FilesystemError: there is no file, or it cannot be read.
    """
    stat = filesystem.stat(path)
    # A pipe or device could block the read, or never end.
    if stat.kind == "special":
        return Content(stat.path, _SPECIAL, "")
    start = filesystem.read_start(path, START_BYTES)
    larger = too_large(start.size, limits)
    if larger is not None:
        return Content(stat.path, NotText(larger), filesystem.identity(path))
    # Most files are this small, and then the first read was the only one.
    if start.size <= len(start.data):
        return Content(stat.path, decode_text(start.data), identity_of(filesystem, path, start.data))
    if start.size > MOST_HASHED_BYTES:
        identity = filesystem.identity(path)
        return Content(stat.path, decode_text(filesystem.read_bytes(path)), identity)
    # The size may have changed since `read_start`; the digest is that of the bytes which are decoded.
    data = filesystem.read_bytes(path)
    return Content(stat.path, decode_text(data), hash_content((data,)))


def identity_of(filesystem: Filesystem, path: str, data: bytes) -> str:
    """The identity of a file whose content is given; for a large one from its status."""
    return hash_content((data,)) if len(data) <= MOST_HASHED_BYTES else filesystem.identity(path)
