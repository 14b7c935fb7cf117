"""The git command, isolated from all configuration but its own, as the object store of a shadow repository.

Git only stores and reads blobs and trees, and lists what the index of the root's own repository has: no commits, no
references, no hooks, no filters. So nothing in the tree (`.gitattributes`, a `.git` in some folder) changes what is
stored, and a git process that is killed leaves no lock behind, only temporary files, which are removed.

Nothing is synced: the objects survive the death of the process, but perhaps not a power failure.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO, NamedTuple

from handrail.errors import FilesystemError, JournalError
from handrail.filesystem.paths import GIT_FOLDER, ROOT
from handrail.waiting import check_blocking

_AHEAD = 256  # a pipe holds their names, so that git and its reader never wait for each other

CHUNK = 1 << 20
"""Bytes of a file that are in memory at once."""

_SETTINGS = (
    # Syncing each object would be slow; `WholeTree.sync` syncs everything once.
    ("core.fsync", "none"),
    ("core.hooksPath", os.devnull),
    ("core.bigFileThreshold", "16m"),  # above it git streams as well
    ("core.compression", "1"),
    # No reference leads to the objects, so a garbage collection would delete them.
    ("gc.auto", "0"),
)
_READY = "handrail-ready"
_LEFTOVERS = ("objects/pack/tmp_*", "objects/tmp_*", "objects/??/tmp_obj_*", "fast_import_crash_*", "*.lock")


@dataclass(frozen=True, slots=True)
class Pipes:
    """Both ends of a running git."""

    stdin: IO[bytes]
    stdout: IO[bytes]


class ObjectWriter:
    """Writes blobs to a `git fast-import`."""

    def __init__(self, stdin: IO[bytes]) -> None:
        self._stdin = stdin

    def blob(self, source: BinaryIO, size: int) -> str:
        """Stores `size` bytes, and returns their id; `UNREAD` if there are fewer, and the object is useless."""
        self._stdin.write(b"blob\ndata %d\n" % size)
        digest = hashlib.sha1(object_header(b"blob", size), usedforsecurity=False)
        remaining = size
        while remaining:
            if not (chunk := source.read(min(remaining, CHUNK))):
                self._pad(remaining)
                return UNREAD
            digest.update(chunk)
            self._stdin.write(chunk)
            remaining -= len(chunk)
        self._stdin.write(b"\n")
        return digest.hexdigest()

    def _pad(self, remaining: int) -> None:
        while remaining:
            remaining -= self._stdin.write(bytes(min(remaining, CHUNK)))
        self._stdin.write(b"\n")


class ObjectReader:
    """Reads objects from a `git cat-file --batch`."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes

    def tree(self, id: str) -> bytes | None:
        """The content of a tree object, or `None` if there is no tree of this id."""
        self._ask(id)
        kind, size = self._answer()
        content = self._pipes.stdout.read(size)
        # Git ends each content with a line feed; left unread, it would be taken for the next answer.
        self._pipes.stdout.read(1 if kind else 0)
        return content if kind == b"tree" else None

    def blob(self, id: str) -> Iterator[bytes]:
        """The content of a blob, in pieces, all to be consumed; `JournalError` if no blob has this id."""
        return next(self.blobs([id]))

    def blobs(self, ids: Sequence[str]) -> Iterator[Iterator[bytes]]:
        """The contents of blobs, each as by `blob`; git is asked for some ahead."""
        for start in range(0, len(ids), _AHEAD):
            some = ids[start : start + _AHEAD]
            self._ask(*some)
            for blob_id in some:
                yield self._blob(blob_id)

    def _blob(self, id: str) -> Iterator[bytes]:
        kind, remaining = self._answer()
        if kind != b"blob":
            raise objects_missing([id])
        while remaining:
            if not (chunk := self._pipes.stdout.read(min(remaining, CHUNK))):
                raise _ended_early()
            remaining -= len(chunk)
            yield chunk
        self._pipes.stdout.read(1)

    def _ask(self, *ids: str) -> None:
        try:
            self._pipes.stdin.write("".join(f"{object_id}\n" for object_id in ids).encode())
            # Unflushed, the question would not reach git, and reading the answer would wait forever.
            self._pipes.stdin.flush()
        except BrokenPipeError as error:
            raise _ended_early() from error

    def _answer(self) -> tuple[bytes, int]:
        answer = self._pipes.stdout.readline().split()
        if not answer:
            raise _ended_early()
        return (b"", 0) if answer[-1] == b"missing" else (answer[1], int(answer[2]))


class Git:
    """The objects of one git dir, which `prepare` makes; methods raise `FilesystemError` if git is missing or fails."""

    def __init__(self, git_dir: Path, command: str) -> None:
        self.git_dir = git_dir
        self._command = command

    def prepare(self, root: Path) -> None:
        """Makes the git dir if it does not exist, and removes temporary files of a killed git.

        The packs of the repository that `root` lies in are hard-linked, so that their content is not stored twice. The
        links remain even if that repository, which is only read, is removed.
        """
        if not (self.git_dir / _READY).exists():
            # It holds contents of files, also if other users may read the folder around it.
            self.git_dir.mkdir(mode=stat.S_IRWXU, exist_ok=True)
            # The template of the user's git could contain hooks and exclusions.
            self.run("init", "--quiet", "--bare", "--template=", os.fspath(self.git_dir))
            self._link_packs(root)
            # Last: if the process dies before this line, the next one repeats the steps.
            (self.git_dir / _READY).touch()
        # The caller holds the lock of the git dir, so none of them belongs to a snapshot that is being taken.
        for pattern in _LEFTOVERS:
            for leftover in self.git_dir.glob(pattern):
                leftover.unlink(missing_ok=True)

    def store_bytes(self, content: bytes) -> str:
        """Stores a blob, and returns its id."""
        return self.run("hash-object", "-w", "--stdin", stdin=content).decode().strip()

    @contextmanager
    def write_blobs(self) -> Generator[ObjectWriter]:
        """Stores blobs; they are stored when the block has ended, and perhaps not if it raised."""
        with self._stream("fast-import", "--quiet", "--done", "--depth=0") as pipes:
            yield ObjectWriter(pipes.stdin)
            # If the block raises, this line is missing, and with `--done` git treats the stream as truncated.
            pipes.stdin.write(b"done\n")

    def store_trees(self, trees: Sequence[tuple[str, bytes]]) -> None:
        """Stores trees, each by its id and its lines."""
        output = self.run("mktree", "-z", "--batch", "--missing", stdin=b"".join(lines + b"\0" for _, lines in trees))
        # The ids were computed here, with modes that git itself does not use. A git that rewrites modes makes other
        # trees, and a restore could not find these.
        if output.decode().split() != [tree_id for tree_id, _ in trees]:
            msg = f"{self._command!r} did not store the folders as they are, so nothing has been done; use another git"
            raise FilesystemError(msg, path=ROOT)

    def sizes(self, ids: Iterable[str]) -> dict[str, int]:
        """The sizes of the objects with these ids, as far as there are any."""
        query = "".join(f"{object_id}\n" for object_id in ids).encode()
        answers = self.run("cat-file", "--batch-check", stdin=query).decode().splitlines() if query else []
        return {row[0]: int(row[2]) for row in map(str.split, answers) if row[-1] != "missing"}

    def tracked(self, root: Path) -> frozenset[str]:
        """The paths that the index of a root's own repository has, and the folders that hold them.

        Only the index is read: the configuration of a repository can name programs that git starts. An index that git
        cannot read counts as empty.
        """
        own = root / GIT_FOLDER
        with suppress(OSError):
            if own.is_file():  # a linked worktree
                own = root / os.fsdecode(own.read_bytes().removeprefix(b"gitdir:").strip())
        index = own / "index"
        # Reading from a pipe that a model has made in its place would not end.
        if not index.is_file():
            return frozenset()
        index_entries = self._run(("ls-files", "-z"), environment={"GIT_INDEX_FILE": os.fspath(index)})
        paths = set[str]()
        for line in () if index_entries.returncode else index_entries.stdout.split(b"\0"):
            path = os.fsdecode(line)
            while path and path not in paths:
                paths.add(path)
                path = path.rpartition("/")[0]
        return frozenset(paths)

    @contextmanager
    def read(self) -> Generator[ObjectReader]:
        """Reads objects."""
        with self._stream("cat-file", "--batch") as pipes:
            yield ObjectReader(pipes)

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """The output of a git command."""
        done = self._run(arguments, stdin)
        if done.returncode:
            raise _failed(arguments[0], done.returncode, done.stderr)
        return done.stdout

    def _run(
        self, arguments: Sequence[str], stdin: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        check_blocking("git", arguments[0])
        try:
            return subprocess.run(  # noqa: S603 - git, with arguments of this module
                self._line(arguments),
                input=stdin,
                capture_output=True,
                env=self._environment() | dict(environment or {}),
                check=False,
            )
        except OSError as error:
            raise self._cannot_start(error) from error

    @contextmanager
    def _stream(self, *arguments: str) -> Generator[Pipes]:
        check_blocking("git", arguments[0])
        # A pipe that nothing reads would block git as soon as it is full.
        with TemporaryFile() as complaints:
            try:
                process = subprocess.Popen(  # noqa: S603 - git, with arguments of this module
                    self._line(arguments),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    env=self._environment(),
                )
            except OSError as error:
                raise self._cannot_start(error) from error
            with _closing(process) as pipes:
                cause = None
                try:
                    yield pipes
                    pipes.stdin.close()
                except BrokenPipeError as error:
                    # Git died: its exit status and what it wrote to stderr say why.
                    cause = error
                code = process.wait()
            if code or cause:
                complaints.seek(0)
                raise _failed(arguments[0], code, complaints.read()) from cause

    def _line(self, arguments: Sequence[str]) -> list[str]:
        return [self._command, *(part for key, value in _SETTINGS for part in ("-c", f"{key}={value}")), *arguments]

    def _environment(self) -> dict[str, str]:
        return _isolated() | {"GIT_DIR": os.fspath(self.git_dir)}

    def _cannot_start(self, error: OSError) -> FilesystemError:
        cure = "install git, or give the path of its command as git=..."
        msg = f"git is needed to save whole trees, and {self._command!r} cannot be run ({error.strerror}); {cure}"
        return FilesystemError(msg, path=ROOT)

    def _link_packs(self, root: Path) -> None:
        question = ("-C", os.fspath(root), "rev-parse", "--show-object-format", "--git-path", "objects")
        query = subprocess.run(  # noqa: S603 - git, with arguments of this module
            [self._command, *question], capture_output=True, env=_isolated(), check=False
        )
        kind, _, objects = os.fsdecode(query.stdout).removesuffix("\n").partition("\n")
        # Ids are computed as SHA-1 here, so packs of another object format are of no use.
        if query.returncode or kind != "sha1":
            return
        with suppress(OSError):  # another disk, or no permission: only costs more
            for pack in sorted((root / objects / "pack").glob("pack-*.pack")):
                for part in (pack, pack.with_suffix(".idx")):  # git searches for the index, so it is linked last
                    (self.git_dir / "objects" / "pack" / part.name).hardlink_to(part)


def objects_missing(ids: Iterable[str]) -> JournalError:
    """The error for a snapshot whose objects are missing."""
    msg = f"the shadow repository has lost what the snapshot needs (git object {min(ids)}), so it cannot be restored"
    return JournalError(msg, path=ROOT)


@contextmanager
def _closing(process: subprocess.Popen[bytes]) -> Generator[Pipes]:
    if process.stdin is None or process.stdout is None:  # pragma: no cover - both were requested
        raise AssertionError
    try:
        yield Pipes(process.stdin, process.stdout)
    finally:
        # Killed before its pipes are closed: closing flushes, and would wait for a git that no longer reads.
        process.kill()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def _ended_early() -> BrokenPipeError:
    return BrokenPipeError(errno.EPIPE, "git ended before its work was done")


def _isolated() -> dict[str, str]:
    # In a git hook, GIT_DIR and GIT_INDEX_FILE name the user's repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return environment | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def _failed(command: str, code: int, complaints: bytes) -> FilesystemError:
    text = complaints.decode(errors="replace").strip() or "no error output"
    return FilesystemError(f"git {command} failed with exit status {code}: {text}", path=ROOT)


UNREAD = "0" * 40
"""The id of a file that has not been read yet, or that changed while it was."""


class TreeEntry(NamedTuple):
    """One line of a tree object."""

    mode: int
    name: str
    id: str


def decode_tree(content: bytes) -> Iterator[TreeEntry]:
    """The entries of a tree object."""
    at = 0
    while at < len(content):
        space = content.index(b" ", at)
        # The id follows as the 20 bytes of a SHA-1, which may contain any byte.
        end = content.index(b"\0", space)
        yield TreeEntry(
            int(content[at:space], 8), os.fsdecode(content[space + 1 : end]), content[end + 1 : end + 21].hex()
        )
        at = end + 21


def object_header(kind: bytes, size: int) -> bytes:
    """The bytes before the content of a git object in its digest."""
    return b"%s %d\0" % (kind, size)


def object_id(kind: bytes, size: int, chunks: Iterable[bytes]) -> str:
    """The id of a git object: the digest of its header and its content."""
    digest = hashlib.sha1(object_header(kind, size), usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def dump_left_out(paths: Iterable[str]) -> bytes:
    """Paths as the content of a blob."""
    return b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))


def load_left_out(content: bytes) -> frozenset[str]:
    """The inverse of `dump_left_out`."""
    return frozenset(os.fsdecode(path) for path in content.split(b"\0") if path)
