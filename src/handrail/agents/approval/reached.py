"""What the paths in the arguments of a file tool lead to: a rule on a path is about files, not about spellings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handrail.agents.approval.matching import shortest
from handrail.agents.approval.path_rules import FILE_TOOLS
from handrail.errors import FilesystemError
from handrail.filesystem import Filesystem
from handrail.filesystem.paths import ROOT

_LINKS_THEMSELVES: Final = frozenset({"move_file", "remove_file"})
"""The tools that act on a link, and not on what it leads to."""


def reached_paths(tool: str, arguments: Mapping[str, object], filesystem: Filesystem) -> Mapping[str, str] | None:
    """The paths that lead through links to other paths, and those other paths, by argument; `None` if there are none.

    Args:
        tool: the name of the tool, without a prefix.
        arguments: its arguments.
        filesystem: the files that the tool works on.
    """
    found: dict[str, str] = {}
    for argument in FILE_TOOLS.get(tool, {}):
        path = arguments.get(argument)
        if not isinstance(path, str):
            continue
        try:
            real = filesystem.resolve(path, follow=tool not in _LINKS_THEMSELVES)
            if real != (shortest(path) or ROOT):
                found[argument] = real
        except FilesystemError:
            continue  # the tool refuses it, too
    return found or None
