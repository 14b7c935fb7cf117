"""The file suite: tools over any `Filesystem`, the guidance for them, and the policy that has files read first.

The tools are declared in `vfs_tools`, and what they do stands in `vfs_handlers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from handrail.contrib.tools.vfs.handlers import FileHandlers
from handrail.contrib.tools.vfs.mounts import MountedFilesystem
from handrail.contrib.tools.vfs.vfs_guidance import guidance, looking_guidance
from handrail.contrib.tools.vfs.vfs_text import VfsLimits
from handrail.contrib.tools.vfs.vfs_tools import file_tools, looking_tools
from handrail.errors import PromptValidationError
from handrail.filesystem import Filesystem
from handrail.filesystem.path_filters import PathFilter, excluding
from handrail.prompt import ReadBeforeWritePolicy, Section, Tool, ToolPolicy
from handrail.resources import ResourceRegistry


@dataclass(frozen=True, kw_only=True, eq=False)
class VfsToolsSection(Section[None]):
    """A section with the tools by which a model works on files: `VfsToolsSection(filesystem)`.

    A host folder takes patterns of what is to be seen of it, and several filesystems can be mounted in one tree::

        VfsToolsSection(mounts={"src": HostFilesystem("project/src", exclude=(".git", "*.key")), "notes": notes})

    Some files are out of reach, and others only out of sight. What `exclude` names, and `.git`, does not exist for the
    tools. What `.gitignore` and other ignore files name is left out of lists and searches, but can be read.

    Attributes:
        filesystem: the files; the section binds them as its resource `Filesystem`. Without it the tools work on the
            `Filesystem` that the prompt binds, as they do when `Prompt.bind` binds another one.
        mounts: instead of `filesystem`, several of them, each by the name of the folder as which it appears; see
            `MountedFilesystem`.
        exclude: patterns of paths that do not exist for the tools, nor for what else finds the bound `Filesystem`; see
            `handrail.filesystem.path_filters.ExcludedPaths`.
        show_git: whether `.git` exists for them.
        policies: what judges the calls; by default a file must be read before it is written to or removed.
        limits: how much one call takes or shows.
        read_only: whether there are only the tools that look; then nothing is written, and no `ReadBeforeWritePolicy`
            is needed or kept.
        accepts_overrides: whether the descriptions of the tools may be replaced when a prompt is tuned.

    Raises:
        DuplicateBindingError: `resources` binds a `Filesystem` too.
        PromptValidationError: both `filesystem` and `mounts` are given.
        PathEscapeError: a pattern in `exclude` is none inside the root.
        WrongResourceError: `filesystem` is none.
        TypeError: `exclude` is one string.
        ValueError: a name in `mounts` is no name of a folder.
    """

    filesystem: Filesystem | None = field(default=None, kw_only=False)
    mounts: Mapping[str, Filesystem] = field(default_factory=dict[str, Filesystem])
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
        tools = looking_tools if self.read_only else file_tools
        path_filter = excluding(self.exclude, show_git=self.show_git)
        files = FileHandlers(self.limits, path_filter)
        set_field(self, "tools", tools(files, accepts_overrides=self.accepts_overrides))
        if self.mounts:
            if self.filesystem is not None:
                raise PromptValidationError(
                    "filesystem and mounts are both given; give one of them, or mount the filesystem, too: "
                    "mounts={'files': filesystem, ...}.",
                    section_path=(self.key,),
                )
            set_field(self, "mounts", dict(self.mounts))
            set_field(self, "filesystem", MountedFilesystem(self.mounts))
        if isinstance(self.filesystem, Filesystem):
            set_field(self, "filesystem", self.filesystem.filtered(path_filter))
        if self.filesystem is not None:
            set_field(self, "resources", _with_filesystem(self.resources, self.filesystem))
        Section.__post_init__(self)
        kept = tuple(_behind(policy, path_filter) for policy in self.policies)
        if self.read_only:
            kept = tuple(policy for policy in kept if not isinstance(policy, ReadBeforeWritePolicy))
        set_field(self, "policies", kept)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance; it speaks of writing, of reading first and of mounts only where there is any of it."""
        if self.read_only:
            return looking_guidance(mounts=tuple(self.mounts))
        read_first = any(isinstance(policy, ReadBeforeWritePolicy) for policy in self.policies)
        return guidance(read_first=read_first, mounts=tuple(self.mounts))


def _behind(policy: ToolPolicy, path_filter: PathFilter) -> ToolPolicy:
    """A policy that sees no more of the files than the tools do."""
    if not isinstance(policy, ReadBeforeWritePolicy):
        return policy
    return replace(policy, path_filter=policy.path_filter.plus(path_filter))


def _with_filesystem(
    resources: ResourceRegistry | Mapping[type[Any], object] | None, filesystem: Filesystem
) -> ResourceRegistry:
    declared = resources if isinstance(resources, ResourceRegistry) else ResourceRegistry.build(resources or {})
    return ResourceRegistry.of(*declared, *ResourceRegistry.build({Filesystem: filesystem}))
