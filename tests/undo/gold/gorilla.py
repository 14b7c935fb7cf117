"""BFCL's file system over a filesystem of Handrail: its own code runs on a copy, and what it changes is written.

The folder that an entry works in is state of the session. So the calls of a shell are undone with no `undo=`: files and
slices are restored from the record.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Tool, ToolContext, ToolResult
from tests.undo.gold.worlds import Kind, is_object

FILES = "GorillaFileSystem"
_MODULE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code.gorilla_file_system"
_ACTS = frozenset(("cd", "cp", "echo", "mkdir", "mv", "rm", "rmdir", "touch"))
_NAME = "root"

Tree = dict[str, str | None]
"""The text of each file by its path; `None` for a folder."""


@dataclass(frozen=True, slots=True)
class WorkingFolder:
    """The folder in which an entry works, as its path from the root; empty for the root."""

    path: str


def make_files(config: Mapping[str, Any]) -> InMemoryFilesystem:
    """The files of an entry."""
    (root,) = list(config.get("root", {"": {"contents": {}}}).values())[:1]
    tree: Tree = {}
    _read_config(root["contents"], "", tree)
    files = InMemoryFilesystem()
    write_changes(files, {}, tree)
    return files


def file_tool(name: str, description: str, schema: Mapping[str, Any]) -> Tool[Any, Any]:
    """A function of BFCL's file system as a tool."""

    def run(arguments: dict[str, Any], files: Filesystem, context: ToolContext) -> Any:
        folder = context.session[WorkingFolder].latest()
        before, path = read_tree(files), "" if folder is None else folder.path
        shell = _load(before, path)
        value = getattr(shell, name)(**arguments)
        if is_object(value) and "error" in value:
            return ToolResult.error(str(value["error"]))
        if name in _ACTS:
            write_changes(files, before, _read_directory(shell.root, "", {}))
            if (moved := _path(shell)) != path:
                context.session[WorkingFolder].seed(WorkingFolder(moved))
        return value

    kind: Kind = "state" if name in _ACTS else "read"
    return Tool.from_json_schema(name=name, description=description, schema=schema, handler=run, effect=kind)


def read_tree(files: Filesystem, folder: str = ".") -> Tree:
    """All files and folders."""
    tree: Tree = {}
    for each in files.list(folder):
        tree[each.path] = None if each.kind == "folder" else files.read_text(each.path)
        if each.kind == "folder":
            tree |= read_tree(files, each.path)
    return tree


def write_changes(files: Filesystem, before: Tree, after: Tree) -> None:
    """Makes the files what they are after a function has run on the copy."""
    gone = [path for path in before if path not in after or (before[path] is None) != (after[path] is None)]
    for path in sorted(gone, reverse=True):
        files.remove(path)
    for path in sorted(after):
        text = after[path]
        if text is None and (path in gone or path not in before):
            files.make_folder(path)
        elif text is not None and (path in gone or before.get(path) != text):
            files.write_text(path, text)


def _read_config(contents: Mapping[str, Any], above: str, tree: Tree) -> None:
    for name, item in contents.items():
        tree[above + name] = item["content"] if item["type"] == "file" else None
        if item["type"] == "directory":
            _read_config(item["contents"], f"{above}{name}/", tree)


def _load(tree: Tree, folder: str) -> Any:
    contents: dict[str, Any] = {}
    for path, text in sorted(tree.items()):
        *above, name = path.split("/")
        parent = contents
        for each in above:
            parent = parent[each]["contents"]
        parent[name] = {"type": "directory", "contents": {}} if text is None else {"type": "file", "content": text}
    shell = getattr(importlib.import_module(_MODULE), FILES)()
    shell._load_scenario({"root": {_NAME: {"type": "directory", "contents": contents}}})  # noqa: SLF001 - BFCL's own way
    for each in filter(None, folder.split("/")):
        assert "error" not in shell.cd(each)
    return shell


def _read_directory(directory: Any, above: str, tree: Tree) -> Tree:
    for name, item in directory.contents.items():
        is_folder = hasattr(item, "contents")
        tree[above + name] = None if is_folder else item.content
        if is_folder:
            _read_directory(item, f"{above}{name}/", tree)
    return tree


def _path(shell: Any) -> str:
    """The path of the folder that it works in, which `pwd` writes below the name of the root."""
    names: list[str] = shell.pwd()["current_working_directory"].strip("/").split("/")
    return "/".join(names[1:])
