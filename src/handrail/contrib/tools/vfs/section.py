"""The file suite: tools over any `Filesystem`, the guidance for them, and the policy that requires reading first.

The tools are declared here: name, description, effect, and an example. `handrail.contrib.tools.vfs.handlers` implements
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter
from typing import Any, cast

from handrail.contrib.tools.section_options import also_bound, suite_tool
from handrail.contrib.tools.vfs.files import (
    EditFile,
    FileEdited,
    FileExcerpt,
    FileList,
    FileMoved,
    FileRemoved,
    FileWritten,
    ListFiles,
    MoveFile,
    ReadFile,
    RemoveFile,
    WriteFile,
)
from handrail.contrib.tools.vfs.handlers import FileHandlers
from handrail.contrib.tools.vfs.search import FilesFound, GlobFiles, GrepFiles, LinesFound
from handrail.contrib.tools.vfs.text import VfsLimits
from handrail.filesystem import FileStat, Filesystem, InMemoryFilesystem
from handrail.filesystem.path_filters import PathFilter, excluding
from handrail.prompt import ReadBeforeWritePolicy, Section, Tool, ToolExample, ToolPolicy
from handrail.prompt.function_signature import InjectedParameter
from handrail.prompt.tool_declaration import MIN_RESULT_CHARS
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
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

    The tools work on a folder on disk, or in memory on a copy of one::

        VfsToolsSection(HostFilesystem("project", exclude=("*.key",)))

        files = InMemoryFilesystem()
        files.copy_in("project", include=("src/**",))
        VfsToolsSection(files)

    Paths that `exclude` matches, and `.git`, do not exist for the tools. Paths that `.gitignore` and other ignore files
    match are left out of lists and searches, but can be read.

    Attributes:
        filesystem: the files; the section binds them as its resource `Filesystem`. Without it the tools work on the
            `Filesystem` that the prompt binds, or else in memory, on files that each prompt has for itself: these are
            lost with the process, also if the session is stored.
        exclude: patterns of paths that do not exist for the tools, nor for other users of the bound `Filesystem`; see
            `handrail.filesystem.path_filters.ExcludedPaths`.
        show_git: whether `.git` exists for them.
        policies: judge the calls; by default a file must be read before it is written to or removed.
        limits: how much one call reads or shows.
        read_only: whether there are only the tools that read; then a `ReadBeforeWritePolicy` is dropped.
        accepts_overrides: whether the descriptions of the tools may be replaced when a prompt is tuned.

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
        kept = tuple(_behind(policy, path_filter) for policy in self.policies)
        if self.read_only:
            # Its `scope_fault` accepts a section without write tools, but the policy would record reads that nothing
            # asks about.
            kept = tuple(policy for policy in kept if not isinstance(policy, ReadBeforeWritePolicy))
        set_field(self, "policies", kept)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance; it covers writing and reading first only where they apply."""
        if self.read_only:
            looking = _LOOKING.format(purpose="Look at files with these tools.")
            return f"{looking}\n\n**Rules**\n\n{_FIND.rstrip()}{_ONLY_LOOKING}"
        read_first = any(isinstance(policy, ReadBeforeWritePolicy) for policy in self.policies)
        rules = _CHANGING.format(find=_FIND, read_first=_READ_FIRST if read_first else "")
        return _LOOKING.format(purpose="Work on files with these tools.") + rules


def _behind(policy: ToolPolicy, path_filter: PathFilter) -> ToolPolicy:
    """The policy behind the same filter as the tools."""
    if not isinstance(policy, ReadBeforeWritePolicy):
        return policy
    return replace(policy, path_filter=policy.path_filter.plus(path_filter))


def _looking(files: FileHandlers) -> Iterator[Tool[Any, Any]]:
    # What a file's excerpt shows has a limit of its own, and a policy relies on it: nothing must be left out of the
    # message. That of a search is cut.
    longest = max(MAX_RESULT_CHARS, files.limits.characters * 3 // 2)
    most = max(MIN_RESULT_CHARS, files.limits.characters)
    plan = FileStat("notes/plan.md", "file", 31)
    grep = GrepFiles("buy (milk|bread)", "notes", "**/*.md")
    yield suite_tool(
        files.list_files,
        "List what a folder holds.",
        ToolExample(
            description="All that a folder holds", input=ListFiles("notes"), output=FileList("notes", (plan,), 1)
        ),
        effect="read",
        max_result_chars=most,
    )
    yield suite_tool(
        files.glob_files,
        "Find files and folders by a pattern of their path, at any depth.",
        ToolExample(
            description="All Markdown files below a folder",
            input=GlobFiles("**/*.md", "notes"),
            output=FilesFound("**/*.md", "notes", (plan,), 1),
        ),
        effect="read",
        max_result_chars=most,
    )
    yield suite_tool(
        files.grep_files,
        "Find the lines of files that match a regular expression, with their files and numbers.",
        ToolExample(
            description="Where the Markdown files below a folder mention milk or bread",
            input=grep,
            output=LinesFound(grep, ("notes/plan.md:2: - buy milk",), matches=1, files=1, searched=1),
        ),
        effect="read",
        max_result_chars=most,
    )
    yield suite_tool(
        files.read_file,
        "Show the text of a file, or a part of it. The first line of the result names the part.",
        ToolExample(
            description="The first two lines of a file",
            input=ReadFile("notes/plan.md", limit=2),
            output=FileExcerpt("notes/plan.md", "# Plan\n- buy milk", 1, 2, 3),
        ),
        effect="read",
        max_result_chars=longest,
    )


def _changing(files: FileHandlers) -> Iterator[Tool[Any, Any]]:
    yield suite_tool(
        files.write_file,
        "Make a text file, or replace all of its content. Folders are made as needed.",
        ToolExample(
            description="Make a file",
            input=WriteFile("notes/plan.md", "# Plan\n- buy milk\n- sell bread\n"),
            output=FileWritten("notes/plan.md", created=True, size=31),
        ),
    )
    yield suite_tool(
        files.edit_file,
        "Replace a piece of text in a file by another, exactly. The rest of the file stays as it is.",
        ToolExample(
            description="Change one line",
            input=EditFile("notes/plan.md", "- buy milk\n", "- buy oat milk\n"),
            output=FileEdited("notes/plan.md", 1, (2,)),
        ),
    )
    yield suite_tool(
        files.remove_file,
        "Remove a file or an empty folder, or with recursive a folder and everything in it.",
        ToolExample(
            description="Remove a folder with everything in it",
            input=RemoveFile("notes/old", recursive=True),
            output=FileRemoved("notes/old", "folder", 2),
        ),
    )
    yield suite_tool(
        files.move_file,
        "Give a file, or a folder with everything in it, another path. Nothing is ever replaced.",
        ToolExample(
            description="Move a file into a folder",
            input=MoveFile("draft.md", "notes/plan.md"),
            output=FileMoved("draft.md", "notes/plan.md"),
        ),
    )


def _with_files(tool: Tool[Any, Any]) -> Tool[Any, Any]:
    """The tool, in no run without files."""
    changed: Any = replace  # checkers do not see the field
    need = InjectedParameter("context.filesystem", Filesystem, Parameter.empty)
    return cast("Tool[Any, Any]", changed(tool, given_injected=(need,)))
