"""What a file tool gets of a file: its text or what it is instead, and what identifies the content.

A file that is larger than the tools take is described from its first bytes, and never read whole. What identifies a
content is taken of the very bytes that are shown, or else before they are read: what changes in between is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from handrail.contrib.tools.vfs.files import FileExcerpt
from handrail.contrib.tools.vfs.vfs_text import NoText, VfsLimits, decoded, described
from handrail.filesystem import Filesystem
from handrail.filesystem.protocol import MOST_HASHED_BYTES, digest_of
from handrail.prompt import FileShown

START_BYTES = 64 * 1024
"""So many bytes at the start of a file that is too large say what it is: 64 KiB."""

_SPECIAL = NoText("is a device, socket or pipe, which is neither read nor changed")


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds.

    Attributes:
        path: its path, in shortest form.
        text: its text, or what it is instead.
        identity: what `Filesystem.identity` says of it; empty for something special, which has none.
    """

    path: str
    text: str | NoText
    identity: str

    def shown_in(self, excerpt: FileExcerpt) -> tuple[FileShown, ...]:
        """How much of the file an excerpt shows."""
        if not self.identity:
            return ()
        if isinstance(self.text, NoText):
            return (FileShown(self.path, self.identity, "nothing" if self.text.has_lines else "all"),)
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
    """What there is at a path where a file is to be read; links are followed.

    Raises:
        FilesystemError: there is no file, or it cannot be read.
    """
    stat = filesystem.stat(path)
    if stat.kind == "special":
        return Content(stat.path, _SPECIAL, "")
    start = filesystem.read_start(path, START_BYTES)
    if start.size > limits.file_bytes:
        identity = filesystem.identity(path)
        return Content(stat.path, described(filesystem.read_start(path, START_BYTES), limits), identity)
    if start.size <= len(start.data):
        return Content(stat.path, decoded(start.data), identity_of(filesystem, path, start.data))
    if start.size > MOST_HASHED_BYTES:
        identity = filesystem.identity(path)
        return Content(stat.path, decoded(filesystem.read_bytes(path)), identity)
    data = filesystem.read_bytes(path)
    return Content(stat.path, decoded(data), digest_of((data,)))


def identity_of(filesystem: Filesystem, path: str, data: bytes) -> str:
    """What identifies a file whose content is known; a large one is looked at."""
    return digest_of((data,)) if len(data) <= MOST_HASHED_BYTES else filesystem.identity(path)
