"""Suites of tools: sections that bring tools and the guidance for them."""

from __future__ import annotations

from handrail.contrib.tools.planning import PlanningToolsSection
from handrail.contrib.tools.planning_guidance import PlanningStrategy
from handrail.contrib.tools.planning_plan import (
    AddStep,
    Plan,
    PlanStatus,
    PlanStep,
    ReadPlan,
    SetupPlan,
    StepStatus,
    UpdateStep,
)
from handrail.contrib.tools.shell import ShellToolsSection
from handrail.contrib.tools.shell_handler import ProgramEnded, ShellRun
from handrail.contrib.tools.shell_presets import GIT_READING, READING
from handrail.contrib.tools.shell_rules import ShellRule
from handrail.contrib.tools.vfs import VfsToolsSection
from handrail.contrib.tools.vfs_files import (
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
from handrail.contrib.tools.vfs_kept import KeptExcerpt, KeptText, ReadKept
from handrail.contrib.tools.vfs_mounts import MountedFilesystem
from handrail.contrib.tools.vfs_search import FilesFound, GlobFiles, GrepFiles, LinesFound
from handrail.contrib.tools.vfs_text import VfsLimits

__all__ = [
    "GIT_READING",
    "READING",
    "AddStep",
    "EditFile",
    "FileEdited",
    "FileExcerpt",
    "FileList",
    "FileMoved",
    "FileRemoved",
    "FileWritten",
    "FilesFound",
    "GlobFiles",
    "GrepFiles",
    "KeptExcerpt",
    "KeptText",
    "LinesFound",
    "ListFiles",
    "MountedFilesystem",
    "MoveFile",
    "Plan",
    "PlanStatus",
    "PlanStep",
    "PlanningStrategy",
    "PlanningToolsSection",
    "ProgramEnded",
    "ReadFile",
    "ReadKept",
    "ReadPlan",
    "RemoveFile",
    "SetupPlan",
    "ShellRule",
    "ShellRun",
    "ShellToolsSection",
    "StepStatus",
    "UpdateStep",
    "VfsLimits",
    "VfsToolsSection",
    "WriteFile",
]
