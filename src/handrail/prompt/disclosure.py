"""The open sections of a prompt, and the tool by which a model opens them.

Theory of operation
    A section with a summary is open or closed: state of the session, a slice of `OpenSections`, one item for each
    change, the newest of which counts. So it is stored with the session, copied by forks, rolled back by
    `Session.restore` and emptied by `Session.reset`. A section that no item names is closed.

    `PromptRendering` renders the prompt once for each set of open sections, and again when a live section has other
    tools. A prompt without either is never rendered again.

    `open_sections` raises `VisibilityExpansionRequired`: its call is rolled back, and recorded as failed. The item that
    opens the sections is written in one unit with that record. A handler of the program that raises it has the same
    effect. What is open stays open, so a repeat of `open_sections` opens nothing.

    A call sees the sections as they were when its reply began: calls of a reply look past the items of that reply.
    Otherwise the order of the calls would decide whether a tool exists that the model has not been shown yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from handrail.errors import PromptValidationError, ToolValidationError, VisibilityExpansionRequired
from handrail.prompt.context import ToolContext
from handrail.prompt.prompt import OPENER, closed_above, free_name, section_hint, with_ancestors
from handrail.prompt.template import check_tree
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.redaction import redacted_logger
from handrail.serde.formatting import enumerated, shorten
from handrail.session import Session, stored_as

if TYPE_CHECKING:
    from handrail.prompt.prompt import Prompt, RenderedPrompt, SummarizedSection

MAX_SECTION_PATHS = 100
"""The most sections that one call opens."""

_MOST_RENDERINGS = 4
_LONGEST_LIST = 400
_LONGEST_PATH = 80

_log = redacted_logger("handrail.prompt")


@stored_as("handrail.open_sections")
@dataclass(frozen=True, slots=True)
class OpenSections:
    """The sections of a prompt that were opened, from this item on.

    Attributes:
        opened: the paths that have been opened, sorted.
        reply: the reply of the model that asked for it; `None` if it has no name.
    """

    survives_undo: ClassVar[bool] = True  # what the model is offered is not taken from it

    prompt: str
    opened: tuple[str, ...] = ()
    reply: str | None = None

    def plus(self, opened: Collection[str], reply: str | None) -> OpenSections:
        """A copy with more sections, opened by a reply."""
        return replace(self, opened=tuple(sorted({*self.opened, *opened})), reply=reply)


@stored_as("handrail.open_request")
@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request to open sections.

    Attributes:
        paths: the dotted paths of the sections.
        reason: why they are needed.
    """

    paths: tuple[str, ...] = field(
        metadata={
            "min_length": 1,
            "max_length": MAX_SECTION_PATHS,
            "description": 'The paths of the sections, as their summaries name them, e.g. "orders".',
        }
    )
    reason: str = field(default="", metadata={"description": "Why they are needed, in one sentence."})


class PromptRendering:
    """The prompt of a run, rendered by the state of its session; the one owner of its renderings.

    Threads may share it. Two that meet a new set of open sections may both render it; the renderings are equal.

    Attributes:
        start: the prompt as it is rendered before anything is opened.
        may_change: whether the prompt has sections that may be opened.
        beside: other prompts of the run, whose sections the tool of this one opens, too.
    """

    def __init__(self, prompt: Prompt[Any], session: Session, start: RenderedPrompt[Any] | None = None) -> None:
        self.prompt: Prompt[Any] = prompt
        self._session = session
        self.start: RenderedPrompt[Any] = prompt.render() if start is None else start
        self.paths: frozenset[str] = frozenset(section.path for section in self.start.sections)
        self.may_change: bool = bool(self.paths)

        def render(paths: frozenset[str]) -> RenderedPrompt[Any]:
            return prompt.render(open=paths)

        # There are few sets of open sections that matter at one time: the newest and the one before it.
        self._render_cached = lru_cache(_MOST_RENDERINGS)(render)
        self._live = tuple(placed.section for placed in prompt.template.placed_sections() if placed.section.live)
        self._live_tools = tuple(section.tools for section in self._live)
        self._tools: tuple[Tool[Any, Any], ...] | None = None
        self._origin: PromptRendering | None = None
        self.beside: tuple[PromptRendering, ...] = ()

    def showing(self, start: RenderedPrompt[Any]) -> PromptRendering:
        """The sections of this one behind another prompt, whose text does not depend on them."""
        other = PromptRendering(self.prompt, self._session, start)
        other._origin, other.may_change, other._live = self, False, ()
        return other

    def seen_by(self, reply: str | None = None) -> RenderedPrompt[Any]:
        """The prompt as the calls of a reply see it; for `None` as it is now."""
        if self._live and self._live_tools != (tools := tuple(section.tools for section in self._live)):
            self._render_again(tools)
        return self.rendered_for(self.decided(except_by=reply)) if self.may_change else self.start

    def _render_again(self, tools: tuple[Sequence[Tool[Any, Any]], ...]) -> None:
        self._live_tools = tools
        template = self.prompt.template
        try:  # a server must not offer a tool in the place of another one
            check_tree(template.tree, tuple(template.policies))
        except PromptValidationError as error:
            _log.error("the tools of the prompt stay as they are: %s", error)
            return
        for tool, _ in template.placed_tools():
            self._session.call_masking.add(tool.name, tool.masking)
        self.start = self.prompt.render()
        self._render_cached.cache_clear()

    def sections(self, reply: str | None = None) -> tuple[SummarizedSection, ...]:
        """The sections with a summary, of this prompt and those beside it, as the calls of a reply see them."""
        if self._origin is not None:
            return self.start.sections or self._origin.sections(reply)
        own = self.seen_by(reply).sections
        return (*own, *(section for other in self.beside for section in other.sections(reply)))

    @property
    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """The tool by which the model opens sections, alone; none if no section has a summary."""
        if self._origin is not None:
            return self._origin.tools
        if not self._all_sections():
            return ()
        self._tools = self._tools or (_opening_tool(self),)
        return self._tools

    @property
    def opener(self) -> str:
        """The name of the tool that opens sections."""
        if self._origin is not None:
            return self._origin.opener
        return self.start.opener or free_name(OPENER, {tool.name for tool in self.start.tools})

    def all_open(self) -> OpenSections | None:
        """The item that opens all sections; `None` if they are open."""
        closed = [section.path for section in self.sections() if not section.is_open]
        return self.decided().plus(closed, None) if closed else None

    def opening(self, error: VisibilityExpansionRequired, reply: str | None) -> OpenSections | None:
        """The item that opens the sections that an exception names; `None` if one of them cannot be opened here."""
        if self._origin is not None:
            return self._origin.opening(error, reply)
        sections = self._all_sections()
        openable = {section.path for section in sections}
        if not error.section_keys or not openable.issuperset(error.section_keys):
            return None
        paths = {section.path for key in error.section_keys for section in with_ancestors(key, sections)}
        decided = self.decided().plus(paths, reply)
        for rendering in (self, *self.beside):
            rendering.rendered_for(decided)
        return decided

    def find_closed_section(self, tool: str, reply: str | None) -> str | None:
        """The path of the section that must be opened for a tool; `None` if no closed section brings it."""
        sections = self.sections(reply)
        closed = frozenset(section.path for section in sections if not section.is_open)
        bringing = (section.path for section in sections if tool in section.tools)
        hidden = (path for path in bringing if path in closed or closed_above(tuple(path.split(".")), closed))
        # Of nested closed sections the innermost is opened, and with it those above it.
        return max(hidden, key=len, default=None)

    def sections_to_open(self, paths: Sequence[str]) -> tuple[SummarizedSection, ...]:
        """The sections that the model names, with those above them."""
        sections = self.sections()
        there = [section.path for section in sections]
        for place, path in enumerate(paths):
            if path not in there:
                name, hint = shorten(repr(path), _LONGEST_PATH), section_hint(path, there)
                raise ToolValidationError(f"$.paths[{place}]: there is no section {name}. {hint}")
        return tuple(dict.fromkeys(above for path in paths for above in with_ancestors(path, sections)))

    def _all_sections(self) -> tuple[SummarizedSection, ...]:
        return (*self.start.sections, *(section for other in self.beside for section in other.start.sections))

    def decided(self, *, except_by: str | None = None) -> OpenSections:
        """The newest item, or the newest that calls of another reply have written."""
        for item in reversed(self._session[OpenSections]):
            if item.prompt == self.start.name and (except_by is None or item.reply != except_by):
                return item
        return OpenSections(self.start.name)

    def rendered_for(self, decided: OpenSections) -> RenderedPrompt[Any]:
        """The prompt with the sections open that an item names."""
        paths = self.paths.intersection(decided.opened)
        return self._render_cached(paths) if paths else self.start


def _opening_tool(rendering: PromptRendering) -> Tool[Any, Any]:
    def open_sections(params: OpenRequest, *, context: ToolContext) -> ToolResult[None]:  # noqa: ARG001
        sections = rendering.sections_to_open(params.paths)
        if all(section.is_open for section in sections):
            return ToolResult.ok(None, opened_text(params.paths))
        raise VisibilityExpansionRequired(
            f"the model asks to open {enumerated(params.paths, limit=_LONGEST_LIST)}",
            section_keys=params.paths,
            reason=params.reason,
            requested_overrides={section.path: "open" for section in sections},
        )

    description = "Open closed sections: the next request has their text and their tools."
    return Tool[OpenRequest, None](
        name=rendering.opener, description=description, handler=open_sections, accepts_overrides=False
    )


def listed_paths(paths: Sequence[str]) -> str:
    """The paths in words, each once."""
    return enumerated(tuple(dict.fromkeys(paths)), limit=_LONGEST_LIST)


def opened_text(paths: Sequence[str]) -> str:
    """The message to the model once sections are open."""
    return f"Open: {listed_paths(paths)}. What they say, and their tools, are in the prompt now."
