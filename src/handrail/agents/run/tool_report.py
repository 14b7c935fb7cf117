"""A tool as people are shown it before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handrail.agents.approval.decisions import Judgement, Verdict
from handrail.agents.approval.rules import Rule
from handrail.prompt.effect import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """A tool as an agent would be offered it.

    Attributes:
        name: what the model calls it by.
        description: what the model is told of it.
        source: the entry that it comes from, in words: `toolset files (built-in)`.
        section: the section that brings it, as `files`; empty for a tool without one.
        policies: what judges its calls beside the approval rules.
        effect: what a call does to the world.
        approval: what holds for a call that no rule on arguments fits.
        on_arguments: the rules that say something else where their arguments fit; the first that fits decides.
        parameters: the JSON Schema of its arguments.
        hints: what whoever declared it may not have meant, in sentences.
    """

    name: str
    description: str
    source: str
    section: str
    policies: tuple[str, ...]
    effect: Effect
    approval: Judgement
    parameters: Mapping[str, Any] = field(repr=False)
    hints: tuple[str, ...] = ()
    on_arguments: tuple[tuple[Verdict, Rule], ...] = ()
