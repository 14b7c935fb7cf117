"""The file suite: four tools over any `Filesystem`, the guidance for them, and the policy that has files read first.

A handler translates: from the parameters to one or two operations of the filesystem, and from what it says to what the
model reads. What part of a text is shown stands in `vfs_text`, how a text is edited in `vfs_edit`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import escape
from typing import Any

from handrail.contrib.tools.vfs_edit import edited
from handrail.contrib.tools.vfs_files import (
    EditFile,
    FileEdited,
    FileExcerpt,
    FileList,
    FileWritten,
    ListFiles,
    ReadFile,
    WriteFile,
    counted,
    entry_line,
)
from handrail.contrib.tools.vfs_guidance import guidance
from handrail.contrib.tools.vfs_text import VfsLimits, decoded, excerpt
from handrail.errors import FilesystemError, ToolValidationError
from handrail.filesystem import FileStat, Filesystem
from handrail.prompt import ReadBeforeWritePolicy, Section, Tool, ToolContext, ToolExample, ToolPolicy, ToolResult
from handrail.resources import ResourceRegistry


@dataclass(frozen=True, kw_only=True, eq=False)
class VfsToolsSection(Section[None]):
    """A section with the tools by which a model works on files: `VfsToolsSection(filesystem)`.

    Attributes:
        filesystem: the files; the section binds them as its resource `Filesystem`. Without it the tools work on the
            `Filesystem` that the prompt binds, as they do when `Prompt.bind` binds another one.
        policies: what judges the calls; by default a file must be read before it is written to.
        limits: how much one call takes or shows.
        accepts_overrides: whether the descriptions of the tools may be replaced when a prompt is tuned.

    Raises:
        DuplicateBindingError: `resources` binds a `Filesystem` too.
        ProviderError: `filesystem` is none.
    """

    filesystem: Filesystem | None = field(default=None, kw_only=False)
    policies: Sequence[ToolPolicy] = field(default_factory=lambda: (ReadBeforeWritePolicy(),))
    limits: VfsLimits = field(default_factory=VfsLimits)
    accepts_overrides: bool = False
    title: str = "Files"
    key: str = "files"
    tools: Sequence[Tool[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", _tools(_Files(self.limits), accepts_overrides=self.accepts_overrides))
        if self.filesystem is not None:
            object.__setattr__(self, "resources", _with_filesystem(self.resources, self.filesystem))
        Section.__post_init__(self)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance; it speaks of reading first only where a policy asks for it."""
        return guidance(read_first=any(isinstance(policy, ReadBeforeWritePolicy) for policy in self.policies))


def _with_filesystem(
    resources: ResourceRegistry | Mapping[type[Any], object] | None, filesystem: Filesystem
) -> ResourceRegistry:
    declared = resources if isinstance(resources, ResourceRegistry) else ResourceRegistry.build(resources or {})
    return ResourceRegistry.of(*declared, *ResourceRegistry.build({Filesystem: filesystem}))


@contextmanager
def _filesystem(context: ToolContext) -> Generator[Filesystem, None, None]:
    """The filesystem of a call; what it refuses to do is told to the model."""
    filesystem = context.filesystem
    if filesystem is None:
        raise ToolValidationError(
            "there are no files here: the program binds no Filesystem. It can do so by VfsToolsSection(filesystem) or "
            "by prompt.bind(resources={Filesystem: filesystem}). Do without the file tools."
        )
    try:
        yield filesystem
    except FilesystemError as error:
        raise ToolValidationError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Files:
    """The handlers.

    Attributes:
        limits: how much one call takes or shows.
    """

    limits: VfsLimits

    def list_files(self, params: ListFiles, *, context: ToolContext) -> ToolResult[FileList]:
        with _filesystem(context) as filesystem:
            entries = filesystem.list(params.path)
            folder = filesystem.stat(params.path).path
            if params.pattern is not None:
                entries = filesystem.glob(_below(folder, params.pattern))
        if params.offset > max(len(entries), 1):
            there = counted(len(entries), "entry", "entries")
            raise ToolValidationError(f"$.offset: there are {there}, so there is none at {params.offset:,}.")
        shown = self._fitting(entries[params.offset - 1 :])
        return ToolResult.ok(FileList(folder, params.pattern, shown, params.offset, len(entries)))

    def read_file(self, params: ReadFile, *, context: ToolContext) -> ToolResult[FileExcerpt]:
        with _filesystem(context) as filesystem:
            path, text = self._text(filesystem, params.path)
        return ToolResult.ok(excerpt(text, params, self.limits, path=path))

    def write_file(self, params: WriteFile, *, context: ToolContext) -> ToolResult[FileWritten]:
        with _filesystem(context) as filesystem:
            created = not filesystem.exists(params.path)
            filesystem.write_text(params.path, params.content)
            now = filesystem.stat(params.path)
        return ToolResult.ok(FileWritten(now.path, created, now.size))

    def edit_file(self, params: EditFile, *, context: ToolContext) -> ToolResult[FileEdited]:
        with _filesystem(context) as filesystem:
            path, text = self._text(filesystem, params.path)
            after = edited(text, params, path=path)
            filesystem.write_text(path, after.text)
        return ToolResult.ok(FileEdited(path, after.replacements, after.lines))

    def _text(self, filesystem: Filesystem, path: str) -> tuple[str, str]:
        """The shortest form of a path, and the text of the file there."""
        stat = filesystem.stat(path)
        if stat.size > self.limits.file_bytes:
            raise ToolValidationError(
                f"{stat.path} has {counted(stat.size, 'byte', 'bytes')}, and the file tools take files of at most "
                f"{self.limits.file_bytes:,}. Leave this file alone."
            )
        return stat.path, decoded(filesystem.read_bytes(path), path=stat.path)

    def _fitting(self, entries: tuple[FileStat, ...]) -> tuple[FileStat, ...]:
        """As many entries as one result may show; one at least, if there is one."""
        room = self.limits.characters
        for number, entry in enumerate(entries[: self.limits.entries]):
            room -= len(entry_line(entry)) + 1
            if room < 0 and number:
                return entries[:number]
        return entries[: self.limits.entries]


def _below(folder: str, pattern: str) -> str:
    """A pattern over paths from the root that fits what the pattern fits in a folder."""
    return pattern if folder == "." else f"{escape(folder)}/{pattern}"


def _tools(files: _Files, *, accepts_overrides: bool) -> tuple[Tool[Any, Any], ...]:
    return (
        Tool[ListFiles, FileList](
            name="list_files",
            description="List what a folder holds, or what fits a pattern in it at any depth.",
            handler=files.list_files,
            examples=(_LIST_EXAMPLE,),
            accepts_overrides=accepts_overrides,
            effect="read",
        ),
        Tool[ReadFile, FileExcerpt](
            name="read_file",
            description="Show the text of a file, or a part of it. The first line of the result tells which part.",
            handler=files.read_file,
            examples=(_READ_EXAMPLE,),
            accepts_overrides=accepts_overrides,
            effect="read",
        ),
        Tool[WriteFile, FileWritten](
            name="write_file",
            description="Make a text file, or replace all of its content. Folders are made as needed.",
            handler=files.write_file,
            examples=(_WRITE_EXAMPLE,),
            accepts_overrides=accepts_overrides,
        ),
        Tool[EditFile, FileEdited](
            name="edit_file",
            description="Replace a piece of text in a file by another, exactly. The rest of the file stays as it is.",
            handler=files.edit_file,
            examples=(_EDIT_EXAMPLE,),
            accepts_overrides=accepts_overrides,
        ),
    )


_LIST_EXAMPLE = ToolExample(
    description="All Markdown files below a folder",
    input=ListFiles("notes", "**/*.md"),
    output=FileList("notes", "**/*.md", (FileStat("notes/plan.md", "file", 31),), 1, 1),
)
_READ_EXAMPLE = ToolExample(
    description="The first two lines of a file",
    input=ReadFile("notes/plan.md", limit=2),
    output=FileExcerpt("notes/plan.md", "# Plan\n- buy milk", 1, 2, 3),
)
_WRITE_EXAMPLE = ToolExample(
    description="Make a file",
    input=WriteFile("notes/plan.md", "# Plan\n- buy milk\n- sell bread\n"),
    output=FileWritten("notes/plan.md", created=True, size=31),
)
_EDIT_EXAMPLE = ToolExample(
    description="Change one line",
    input=EditFile("notes/plan.md", "- buy milk\n", "- buy oat milk\n"),
    output=FileEdited("notes/plan.md", 1, (2,)),
)
