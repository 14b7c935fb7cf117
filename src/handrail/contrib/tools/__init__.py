"""Suites of tools: sections that bring tools and the guidance for them."""

from __future__ import annotations

from handrail.contrib.tools.planning import (
    AddStep,
    Plan,
    PlanCompleted,
    PlanningStrategy,
    PlanningToolsSection,
    PlanStatus,
    PlanStep,
    ReadPlan,
    SetupPlan,
    StepStatus,
    UpdateStep,
)
from handrail.contrib.tools.python import AstevalSection, EvaluatePython, PythonEvaluated, PythonFault
from handrail.contrib.tools.sandbox.engine import Bubblewrap, SandboxLimits
from handrail.contrib.tools.sandbox.podman import Podman
from handrail.contrib.tools.sandbox.section import PodmanSandboxSection, SandboxSection, ShellExecute
from handrail.contrib.tools.shell.rules import GIT_READING, READING, ShellRule
from handrail.contrib.tools.shell.section import ProgramEnded, ShellRun, ShellToolsSection
from handrail.contrib.tools.vfs.search import FileList, FilesFound, GlobFiles, GrepFiles, LinesFound, ListFiles
from handrail.contrib.tools.vfs.section import VfsToolsSection
from handrail.contrib.tools.vfs.text import (
    EditFile,
    FileEdited,
    FileExcerpt,
    FileMoved,
    FileRemoved,
    FileWritten,
    MoveFile,
    ReadFile,
    RemoveFile,
    VfsLimits,
    WriteFile,
)

__all__ = [
    "GIT_READING",
    "READING",
    "AddStep",
    "AstevalSection",
    "Bubblewrap",
    "EditFile",
    "EvaluatePython",
    "FileEdited",
    "FileExcerpt",
    "FileList",
    "FileMoved",
    "FileRemoved",
    "FileWritten",
    "FilesFound",
    "GlobFiles",
    "GrepFiles",
    "LinesFound",
    "ListFiles",
    "MoveFile",
    "Plan",
    "PlanCompleted",
    "PlanStatus",
    "PlanStep",
    "PlanningStrategy",
    "PlanningToolsSection",
    "Podman",
    "PodmanSandboxSection",
    "ProgramEnded",
    "PythonEvaluated",
    "PythonFault",
    "ReadFile",
    "ReadPlan",
    "RemoveFile",
    "SandboxLimits",
    "SandboxSection",
    "SetupPlan",
    "ShellExecute",
    "ShellRule",
    "ShellRun",
    "ShellToolsSection",
    "StepStatus",
    "UpdateStep",
    "VfsLimits",
    "VfsToolsSection",
    "WriteFile",
]
