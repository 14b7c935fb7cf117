"""The file tools as they are declared: name, description, effect, and an example that is right."""

from __future__ import annotations

from typing import Any

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
from handrail.contrib.tools.vfs.overflow import KeptExcerpt, ReadKept
from handrail.contrib.tools.vfs.search import FilesFound, GlobFiles, GrepFiles, LinesFound
from handrail.filesystem import FileStat
from handrail.prompt import Tool, ToolExample


def file_tools(files: FileHandlers, *, accepts_overrides: bool) -> tuple[Tool[Any, Any], ...]:
    """The file tools, those that only look first.

    Args:
        files: what the tools do.
        accepts_overrides: whether their descriptions may be replaced when a prompt is tuned.
    """
    looking = looking_tools(files, accepts_overrides=accepts_overrides)
    return (*looking, *_changing(files, accepts_overrides=accepts_overrides))


def looking_tools(files: FileHandlers, *, accepts_overrides: bool) -> tuple[Tool[Any, Any], ...]:
    """The file tools that only look; the arguments are those of `file_tools`."""
    return (
        Tool[ListFiles, FileList](
            name="list_files",
            description="List what a folder holds.",
            handler=files.list_files,
            examples=(_LIST_EXAMPLE,),
            accepts_overrides=accepts_overrides,
            effect="read",
        ),
        Tool[GlobFiles, FilesFound](
            name="glob_files",
            description="Find files and folders by a pattern of their path, at any depth.",
            handler=files.glob_files,
            examples=(_GLOB_EXAMPLE,),
            accepts_overrides=accepts_overrides,
            effect="read",
        ),
        Tool[GrepFiles, LinesFound](
            name="grep_files",
            description="Find the lines of files that match a regular expression, with their files and numbers.",
            handler=files.grep_files,
            examples=(_GREP_EXAMPLE,),
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
        Tool[ReadKept, KeptExcerpt](
            name="read_kept",
            description="Go on in a result that was too long to be shown whole, with the key that it told.",
            handler=files.read_kept,
            examples=(_KEPT_EXAMPLE,),
            accepts_overrides=accepts_overrides,
            effect="read",
        ),
    )


def _changing(files: FileHandlers, *, accepts_overrides: bool) -> tuple[Tool[Any, Any], ...]:
    return (
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
        Tool[RemoveFile, FileRemoved](
            name="remove_file",
            description="Remove a file or an empty folder, or with recursive a folder and everything in it.",
            handler=files.remove_file,
            examples=(_REMOVE_EXAMPLE,),
            accepts_overrides=accepts_overrides,
        ),
        Tool[MoveFile, FileMoved](
            name="move_file",
            description="Give a file, or a folder with everything in it, another path. Nothing is ever replaced.",
            handler=files.move_file,
            examples=(_MOVE_EXAMPLE,),
            accepts_overrides=accepts_overrides,
        ),
    )


_LIST_EXAMPLE = ToolExample(
    description="All that a folder holds",
    input=ListFiles("notes"),
    output=FileList("notes", None, (FileStat("notes/plan.md", "file", 31),), 1, 1),
)
_GLOB_EXAMPLE = ToolExample(
    description="All Markdown files below a folder",
    input=GlobFiles("**/*.md", "notes"),
    output=FilesFound("**/*.md", "notes", (FileStat("notes/plan.md", "file", 31),), 1),
)
_GREP = GrepFiles("buy (milk|bread)", "notes", "**/*.md")
_GREP_EXAMPLE = ToolExample(
    description="Where the Markdown files below a folder speak of milk or bread",
    input=_GREP,
    output=LinesFound(_GREP, ("notes/plan.md:2: - buy milk",), matches=1, files=1, searched=1),
)
_READ_EXAMPLE = ToolExample(
    description="The first two lines of a file",
    input=ReadFile("notes/plan.md", limit=2),
    output=FileExcerpt("notes/plan.md", "# Plan\n- buy milk", 1, 2, 3),
)
_KEPT_EXAMPLE = ToolExample(
    description="Go on where a long result was cut",
    input=ReadKept("3f9a0c12", offset=501),
    output=KeptExcerpt(
        "3f9a0c12", "grep_files", FileExcerpt("kept result of grep_files", "a.py:1: x = 1", 501, 501, 501)
    ),
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
_REMOVE_EXAMPLE = ToolExample(
    description="Remove a folder with everything in it",
    input=RemoveFile("notes/old", recursive=True),
    output=FileRemoved("notes/old", "folder", 2),
)
_MOVE_EXAMPLE = ToolExample(
    description="Move a file into a folder",
    input=MoveFile("draft.md", "notes/plan.md"),
    output=FileMoved("draft.md", "notes/plan.md"),
)
