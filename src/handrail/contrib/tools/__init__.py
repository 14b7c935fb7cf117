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
from handrail.contrib.tools.vfs import VfsToolsSection
from handrail.contrib.tools.vfs_files import (
    EditFile,
    FileEdited,
    FileExcerpt,
    FileList,
    FileWritten,
    ListFiles,
    ReadFile,
    WriteFile,
)
from handrail.contrib.tools.vfs_text import VfsLimits

__all__ = [
    "AddStep",
    "EditFile",
    "FileEdited",
    "FileExcerpt",
    "FileList",
    "FileWritten",
    "ListFiles",
    "Plan",
    "PlanStatus",
    "PlanStep",
    "PlanningStrategy",
    "PlanningToolsSection",
    "ReadFile",
    "ReadPlan",
    "SetupPlan",
    "StepStatus",
    "UpdateStep",
    "VfsLimits",
    "VfsToolsSection",
    "WriteFile",
]
