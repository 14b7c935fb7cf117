"""The file suite: tools over any `Filesystem`, the guidance for them, and the policy that requires reading first.

A handler translates the parameters into one or two operations of the filesystem, and their outcome into what the model
reads. The message of a search that finds much is cut, and the model reads the rest as that of any long result.

A file above the size limit is never read whole. The identity of a content is computed from the bytes that are shown, or
before they are read: a change in between counts as unread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import Parameter
from itertools import accumulate
from typing import Any, cast

from handrail.contrib import also_bound, example, suite_tool
from handrail.contrib.tools.vfs.search import (
    NOTHING_LEFT_OUT,
    FileList,
    FilesFound,
    GlobFiles,
    GrepFiles,
    LeftOut,
    LinesFound,
    ListFiles,
    Search,
    format_entry,
)
from handrail.contrib.tools.vfs.text import (
    EditFile,
    FileEdited,
    FileExcerpt,
    FileMoved,
    FileRemoved,
    FileWritten,
    MoveFile,
    NotText,
    ReadFile,
    RemoveFile,
    VfsLimits,
    WriteFile,
    byte_order_mark,
    decode_text,
    excerpt,
    like,
    replace_exactly,
    too_large,
)
from handrail.errors import FilesystemError, ToolValidationError
from handrail.filesystem import FileStat, Filesystem, InMemoryFilesystem
from handrail.filesystem.path_filters import PathFilter, Pattern, excluding
from handrail.filesystem.protocol import MOST_HASHED_BYTES, hash_content
from handrail.filesystem.walks import Scan, WalkRequest
from handrail.prompt import FileShown, ReadBeforeWritePolicy, Section, Tool, ToolContext, ToolPolicy, ToolResult
from handrail.prompt.function_signature import InjectedParameter
from handrail.prompt.tool_declaration import MIN_RESULT_CHARS
from handrail.prompt.tool_definition import MAX_RESULT_CHARS, PlainOptions
from handrail.resources import Binding, ResourceRegistry

_LOOKING = """\
{purpose} A path is relative to the root of the filesystem, with forward slashes, such as
`notes/plan.md`; `.` is the root.

**Tools to look with**

- `list_files` shows what a folder holds.
- `glob_files` finds files and folders by a pattern of their path: `*.md` in the folder itself, `**/*.md` at any depth.
- `grep_files` finds lines by a regular expression; `files` says in which files, `context` how many lines around each to
  show. It reads each line by itself, and knows no look-around and no backreferences.
- `read_file` shows the text of a file. The first line of the result says which part of the file follows and how to go
  on; it is not in the file. Everything below that line is the file's text, exactly."""
_CHANGING = """

**Tools to change with**

- `write_file` makes a file, or replaces all that is in it.
- `edit_file` replaces one piece of text and leaves the rest of the file as it is. To change a part of a file, prefer it
  to `write_file`.
- `remove_file` removes a file or folder, `move_file` gives one another path and replaces nothing.

**Rules**

{find}{read_first}\
- Copy `old` exactly from what `read_file` shows, with its spaces and line breaks, and take enough of it
  that it occurs only once in the file. To change every occurrence, set `replace_all`.
- Line ends are shown as LF. `edit_file` keeps those that the file has.
- A call that fails has changed nothing. Its message says what to do instead."""
_READ_FIRST = """\
- Read a file before you write to it or remove it, and again if it has changed since; what `grep_files` shows of it does
  not count. For `edit_file` it is enough to have read a part; for `write_file` and `remove_file` read all of it. A new
  file you may write at once, and what you have written yourself you need not read. To move a file you need not read it.
"""
_FIND = "- Find what you need with `glob_files` and `grep_files` and read that; you seldom need to read everything.\n"
_ONLY_LOOKING = """
- Nothing is ever changed here: there are no tools to write with.
- Line ends are shown as LF.
- A call that fails says what to do instead."""


@dataclass(frozen=True, kw_only=True, eq=False)
class VfsToolsSection(Section[None]):
    """A section with file tools: `VfsToolsSection(filesystem)`.

    The tools work on a folder on disk, or on files in memory::

        VfsToolsSection(HostFilesystem("project", exclude=("*.key",)))
        VfsToolsSection(InMemoryFilesystem({"notes/plan.md": "buy milk"}))

    Paths that `exclude` matches, and `.git`, do not exist for the tools. Paths that `.gitignore` and other ignore files
    match are left out of lists and searches, but can be read.

    Attributes:
        filesystem: the files; the section binds them as its resource `Filesystem`. Without it the tools work on the
            `Filesystem` that the prompt binds, or else in memory, on files that each prompt has for itself: these are
            lost with the process, also if the session is stored.
        exclude: patterns of paths that do not exist for the tools, nor for other users of the bound `Filesystem`; see
            `handrail.filesystem.path_filters.ExcludedPaths`.
        policies: judge the calls; by default a file must be read before it is written to or removed.
        read_only: whether there are only the tools that read; then a `ReadBeforeWritePolicy` is dropped.

    Raises:
        DuplicateBindingError: `resources` binds a `Filesystem` too.
        PathEscapeError: a pattern in `exclude` is not one inside the root.
        WrongResourceError: `filesystem` is not a `Filesystem`.
        TypeError: `exclude` is one string.
    """

    filesystem: Filesystem | None = field(default=None, kw_only=False)
    exclude: Sequence[str] = ()
    show_git: bool = False
    policies: Sequence[ToolPolicy] = field(default_factory=lambda: (ReadBeforeWritePolicy(),))
    limits: VfsLimits = field(default_factory=VfsLimits)
    read_only: bool = False
    accepts_overrides: bool = False
    title: str = "Files"
    key: str = "files"
    tools: Sequence[Tool[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        path_filter = excluding(self.exclude, show_git=self.show_git)
        # The handlers filter too, because without `filesystem` the prompt binds one that this section does not filter.
        files = FileHandlers(self.limits, path_filter)
        tools = (*_looking(files), *(() if self.read_only else _changing(files)))
        tools = tuple(replace(tool, accepts_overrides=self.accepts_overrides) for tool in tools)
        set_field(self, "tools", tuple(map(_with_files, tools)))
        # The filter is applied to the bound filesystem, so that other tools of the prompt do not see excluded paths
        # either.
        if isinstance(self.filesystem, Filesystem):
            set_field(self, "filesystem", self.filesystem.filtered(path_filter))
        if self.filesystem is not None:
            set_field(self, "resources", also_bound(self.resources, {Filesystem: self.filesystem}))
        Section.__post_init__(self)
        # By a provider: each prompt has files of its own.
        own = Binding(Filesystem, lambda _: InMemoryFilesystem().filtered(path_filter))
        set_field(self, "usual_resources", ResourceRegistry.build({Filesystem: own}))
        # The policy must use the same filter: otherwise its message could reveal an excluded path.
        policies = tuple(_behind(policy, path_filter) for policy in self.policies)
        if self.read_only:
            # Its `scope_fault` accepts a section without write tools, but the policy would record reads that nothing
            # asks about.
            policies = tuple(policy for policy in policies if not isinstance(policy, ReadBeforeWritePolicy))
        set_field(self, "policies", policies)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance; it covers writing and reading first only where they apply."""
        if self.read_only:
            looking = _LOOKING.format(purpose="Look at files with these tools.")
            return f"{looking}\n\n**Rules**\n\n{_FIND.rstrip()}{_ONLY_LOOKING}"
        read_first = any(isinstance(policy, ReadBeforeWritePolicy) for policy in self.policies)
        rules = _CHANGING.format(find=_FIND, read_first=_READ_FIRST if read_first else "")
        return _LOOKING.format(purpose="Work on files with these tools.") + rules


def _behind(policy: ToolPolicy, path_filter: PathFilter) -> ToolPolicy:
    if not isinstance(policy, ReadBeforeWritePolicy):
        return policy
    return replace(policy, path_filter=policy.path_filter.plus(path_filter))


def _looking(files: FileHandlers) -> Iterator[Tool[Any, Any]]:
    # What a file's excerpt shows has a limit of its own, and a policy relies on it: nothing must be left out of the
    # message. That of a search is cut.
    longest = max(MAX_RESULT_CHARS, files.limits.characters * 3 // 2)
    most = max(MIN_RESULT_CHARS, files.limits.characters)
    plan, looks = FileStat("notes/plan.md", "file", 31), PlainOptions(effect="read", max_result_chars=most)
    grep = GrepFiles("buy (milk|bread)", "notes", "**/*.md")
    yield suite_tool(
        files.list_files,
        "List what a folder holds.",
        example("All that a folder holds", ListFiles("notes"), FileList("notes", (plan,), 1)),
        **looks,
    )
    yield suite_tool(
        files.glob_files,
        "Find files and folders by a pattern of their path, at any depth.",
        example(
            "All Markdown files below a folder",
            GlobFiles("**/*.md", "notes"),
            FilesFound("**/*.md", "notes", (plan,), 1),
        ),
        **looks,
    )
    yield suite_tool(
        files.grep_files,
        "Find the lines of files that match a regular expression, with their files and numbers.",
        example(
            "Where the Markdown files below a folder mention milk or bread",
            grep,
            LinesFound(grep, ("notes/plan.md:2: - buy milk",), matches=1, files=1, searched=1),
        ),
        **looks,
    )
    yield suite_tool(
        files.read_file,
        "Show the text of a file, or a part of it. The first line of the result names the part.",
        example(
            "The first two lines of a file",
            ReadFile("notes/plan.md", limit=2),
            FileExcerpt("notes/plan.md", "# Plan\n- buy milk", 1, 2, 3),
        ),
        effect="read",
        max_result_chars=longest,
    )


def _changing(files: FileHandlers) -> Iterator[Tool[Any, Any]]:
    yield suite_tool(
        files.write_file,
        "Make a text file, or replace all of its content. Folders are made as needed.",
        example(
            "Make a file",
            WriteFile("notes/plan.md", "# Plan\n- buy milk\n- sell bread\n"),
            FileWritten("notes/plan.md", created=True, size=31),
        ),
    )
    yield suite_tool(
        files.edit_file,
        "Replace a piece of text in a file by another, exactly. The rest of the file stays as it is.",
        example(
            "Change one line",
            EditFile("notes/plan.md", "- buy milk\n", "- buy oat milk\n"),
            FileEdited("notes/plan.md", 1, (2,)),
        ),
    )
    yield suite_tool(
        files.remove_file,
        "Remove a file or an empty folder, or with recursive a folder and everything in it.",
        example(
            "Remove a folder with everything in it",
            RemoveFile("notes/old", recursive=True),
            FileRemoved("notes/old", "folder", 2),
        ),
    )
    yield suite_tool(
        files.move_file,
        "Give a file, or a folder with everything in it, another path. Nothing is ever replaced.",
        example(
            "Move a file into a folder", MoveFile("draft.md", "notes/plan.md"), FileMoved("draft.md", "notes/plan.md")
        ),
    )


def _with_files(tool: Tool[Any, Any]) -> Tool[Any, Any]:
    changed: Any = replace  # checkers do not see the field
    need = InjectedParameter("context.filesystem", Filesystem, Parameter.empty)
    return cast("Tool[Any, Any]", changed(tool, given_injected=(need,)))


START_BYTES = 64 * 1024
"""How much of a file is read at first, which is all of most: 64 KiB."""

_SPECIAL = NotText("is a device, socket or pipe, which is neither read nor changed")


@dataclass(frozen=True, slots=True)
class FileHandlers:
    """The handlers, one for each file tool and of the same name.

    Attributes:
        path_filter: which paths exist for the tools, in addition to the filesystem's own filter.
    """

    limits: VfsLimits
    path_filter: PathFilter = field(default_factory=PathFilter)

    def list_files(self, params: ListFiles, *, context: ToolContext) -> ToolResult[FileList]:
        """Shows the entries of a folder."""
        with self._filesystem(context) as filesystem:
            look = self._look(context, include_ignored=params.include_ignored)
            folder = filesystem.stat(params.path).path
            scan = _scan(filesystem, folder, Pattern("*"), look)
        return ToolResult.ok(FileList(folder, self._first_entries(scan), len(scan.entries), LeftOut.from_scan(scan)))

    def glob_files(self, params: GlobFiles, *, context: ToolContext) -> ToolResult[FilesFound]:
        """Shows the matching files and folders."""
        with self._filesystem(context) as filesystem:
            folder = self._folder(filesystem, params.path)
            pattern = _pattern(filesystem, params.pattern, folder)
            scan = _scan(filesystem, folder, pattern, self._look(context, include_ignored=params.include_ignored))
        entries = self._first_entries(scan)
        return ToolResult.ok(FilesFound(params.pattern, folder, entries, len(scan.entries), LeftOut.from_scan(scan)))

    def grep_files(self, params: GrepFiles, *, context: ToolContext) -> ToolResult[LinesFound]:
        """Shows the matching lines."""
        with self._filesystem(context) as filesystem:
            look = self._look(context, include_ignored=params.include_ignored)
            # Before any file is looked at, because it refuses a pattern that is invalid.
            search = Search(params, self.limits, look.is_over)
            there = filesystem.stat(params.path)
            pattern = _pattern(filesystem, params.files, there.path)
            if there.kind == "folder":
                scan = _scan(filesystem, there.path, pattern, look)
                stats = [stat for stat in scan.entries if stat.kind == "file"]
                return ToolResult.ok(search.run(filesystem, stats, LeftOut.from_scan(scan)))
            if (by := filesystem.unsearched(there.path)) is not None:
                # Naming a file must not bypass the rules that leave it out of searches.
                raise ToolValidationError(f"$.path: {there.path} is left out of searches, because of {by}.")
            # Ignore files hide it from searches of its folder, and not from one that names it, as from `read_file`.
            return ToolResult.ok(search.run(filesystem, [there], NOTHING_LEFT_OUT))

    def read_file(self, params: ReadFile, *, context: ToolContext) -> ToolResult[FileExcerpt]:
        """Shows a part of the text of a file, or the kind of a file that is not text."""
        with self._filesystem(context) as filesystem:
            content = read_content(filesystem, params.path, self.limits)
        if isinstance(content.text, NotText):
            part = FileExcerpt(content.path, "", 0, 0, 0, not_shown=content.text.what)
        else:
            part = excerpt(content.text, params, self.limits, path=content.path)
        return ToolResult.ok(part, files_shown=content.shown_in(part))

    def write_file(self, params: WriteFile, *, context: ToolContext) -> ToolResult[FileWritten]:
        """Creates or replaces a file."""
        with self._filesystem(context) as filesystem:
            # Before the write, after which the file always exists. No other call can come between: this one holds the
            # turn.
            path = filesystem.shortest(params.path)
            created = not filesystem.exists(path)
            text = params.content if created else like(params.content, _read_head(filesystem, path))
            filesystem.write_text(path, text)
            # The identity is of the text that was written, and not of what is read again: a change in between counts as
            # unread.
            data = text.encode()
            display = FileShown(path, identify_content(filesystem, path, data))
        return ToolResult.ok(FileWritten(path, created, len(data)), files_shown=(display,))

    def edit_file(self, params: EditFile, *, context: ToolContext) -> ToolResult[FileEdited]:
        """Replaces a piece of a file's text."""
        with self._filesystem(context) as filesystem:
            content = read_content(filesystem, params.path, self.limits)
            path, text = content.path, content.text
            if isinstance(text, NotText):
                raise ToolValidationError(
                    f"{path} {text.what}. edit_file cannot change it, so leave this file as it is; what you write "
                    "belongs in another."
                )
            after = replace_exactly(text, params, path=path)
            new_text = byte_order_mark(_read_head(filesystem, path)) + after.text
            filesystem.write_text(path, new_text)
            identity = identify_content(filesystem, path, new_text.encode())
        return ToolResult.ok(
            FileEdited(path, after.replacements, after.lines), files_shown=(FileShown(path, identity),)
        )

    def remove_file(self, params: RemoveFile, *, context: ToolContext) -> ToolResult[FileRemoved]:
        """Removes a file or folder."""
        with self._filesystem(context) as filesystem:
            # Before the removal, because afterwards there is neither a kind nor a shortest path.
            there = filesystem.stat(params.path)
            entries = filesystem.remove(there.path, recursive=params.recursive)
        return ToolResult.ok(FileRemoved(there.path, there.kind, entries))

    def move_file(self, params: MoveFile, *, context: ToolContext) -> ToolResult[FileMoved]:
        """Moves a file or folder."""
        with self._filesystem(context) as filesystem:
            path = filesystem.stat(params.path).path
            filesystem.move(path, params.new_path)
            return ToolResult.ok(FileMoved(path, filesystem.shortest(params.new_path)))

    def _first_entries(self, scan: Scan) -> tuple[FileStat, ...]:
        room, entries = self.limits.search_characters, scan.entries
        fit = next((n for n, size in enumerate(accumulate(map(_length, entries)), 1) if size > room), len(entries) + 1)
        return entries[: max(fit - 1, 1)]

    def _look(self, context: ToolContext, *, include_ignored: bool) -> WalkRequest:
        return WalkRequest(include_ignored, self.limits.walked_entries, _time_over(context, self.limits))

    @contextmanager
    def _filesystem(self, context: ToolContext) -> Generator[Filesystem, None, None]:
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
    if pattern.startswith("/"):
        pattern = filesystem.shortest(pattern).removeprefix(f"{folder}/")
    return Pattern(pattern)


def _read_head(filesystem: Filesystem, path: str) -> bytes:
    return filesystem.read_start(path, START_BYTES).data if filesystem.exists(path) else b""


def _length(entry: FileStat) -> int:
    return len(format_entry(entry)) + 1  # and the line end


def _scan(filesystem: Filesystem, path: str, pattern: Pattern, look: WalkRequest) -> Scan:
    scan = filesystem.scan(path, pattern, look)
    if scan.start_ignored:
        raise ToolValidationError(
            f"$.path: {path} is hidden by ignore files (such as .gitignore). Set include_ignored to true to look at it."
        )
    return scan


def _time_over(context: ToolContext, limits: VfsLimits) -> Callable[[], bool]:
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
    """The content of a file, by its shortest path.

    Attributes:
        text: its text, or what it is instead.
        identity: the result of `Filesystem.identity`; empty for a special file, which has none.
    """

    path: str
    text: str | NotText
    identity: str

    def shown_in(self, excerpt: FileExcerpt) -> tuple[FileShown, ...]:
        """The part of the file that an excerpt shows."""
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


def read_content(filesystem: Filesystem, path: str, limits: VfsLimits) -> Content:
    """The content at a path; links are followed."""
    stat = filesystem.stat(path)
    # A pipe or device could block the read, or never end.
    if stat.kind == "special":
        return Content(stat.path, _SPECIAL, "")
    start = filesystem.read_start(path, START_BYTES)
    if (larger := too_large(start.size, limits)) is not None:
        return Content(stat.path, NotText(larger), filesystem.identity(path))
    # Most files are this small, and then the first read was the only one.
    if start.size <= len(start.data):
        return Content(stat.path, decode_text(start.data), identify_content(filesystem, path, start.data))
    if start.size > MOST_HASHED_BYTES:
        identity = filesystem.identity(path)
        return Content(stat.path, decode_text(filesystem.read_bytes(path)), identity)
    # The size may have changed since `read_start`; the digest is that of the bytes which are decoded.
    data = filesystem.read_bytes(path)
    return Content(stat.path, decode_text(data), hash_content((data,)))


def identify_content(filesystem: Filesystem, path: str, data: bytes) -> str:
    """The identity of a file whose content is given; for a large one from its status."""
    return hash_content((data,)) if len(data) <= MOST_HASHED_BYTES else filesystem.identity(path)
