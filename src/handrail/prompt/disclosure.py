"""The open sections of a prompt, and the tools by which a model opens, closes and reads them.

Theory of operation
    A section with a summary is open or closed: state of the session, a slice of `OpenSections`, one item for each
    change, the newest of which counts. So it is stored with the session, copied by forks, rolled back by
    `Session.restore` and emptied by `Session.reset`. A section that no item names is as it starts.

    `PromptRendering` renders the prompt once for each set of open sections, and again when a live section has other
    tools. A prompt without either is never rendered again.

    `open_sections` raises `VisibilityExpansionRequired`: its call is rolled back, and recorded as failed. The item that
    opens the sections is written in one unit with that record. A handler of the program that raises it has the same
    effect. A repeat of `open_sections` opens nothing: a later call may have closed them, and its record answers a
    repeat of that one.

    A call sees the sections as they were when its reply began: calls of a reply look past the items of that reply.
    Otherwise the order of the calls would decide whether a tool exists that the model has not been shown yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from handrail.errors import PromptValidationError, ToolValidationError, VisibilityExpansionRequired
from handrail.prompt.context import ToolContext
from handrail.prompt.prompt import SectionTools, closed_above, section_hint, with_ancestors
from handrail.prompt.template import check_tree
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.redaction import redacted_logger
from handrail.serde.formatting import enumerated, shorten
from handrail.session import Session, stored_as
from handrail.session.calls import CallRef

if TYPE_CHECKING:
    from handrail.prompt.prompt import Prompt, RenderedPrompt, SummarizedSection

MAX_SECTION_PATHS = 100
"""The most sections that one call opens or closes."""

_MOST_RENDERINGS = 4
_LONGEST_LIST = 400
_LONGEST_PATH = 80

_log = redacted_logger("handrail.prompt")


@stored_as("handrail.open_sections")
@dataclass(frozen=True, slots=True)
class OpenSections:
    """The sections of a prompt that were opened or closed, from this item on.

    Attributes:
        opened: the paths that have been opened and not closed since, sorted.
        closed: the paths that have been closed and not opened since, sorted.
        reply: the reply of the model that asked for it; `None` if it has no name.
    """

    survives_undo: ClassVar[bool] = True  # what the model is offered is not taken from it

    prompt: str
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    reply: str | None = None

    def changed(self, reply: str | None, *, opened: Collection[str] = (), closed: Collection[str] = ()) -> OpenSections:
        """A copy with some sections opened or closed by a reply."""
        all_opened, all_closed = {*self.opened, *opened}.difference(closed), {*self.closed, *closed}.difference(opened)
        return replace(self, opened=tuple(sorted(all_opened)), closed=tuple(sorted(all_closed)), reply=reply)


_PATHS = {"min_length": 1, "max_length": MAX_SECTION_PATHS}


@stored_as("handrail.open_request")
@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request to open sections.

    Attributes:
        paths: the dotted paths of the sections.
        reason: why they are needed.
    """

    paths: tuple[str, ...] = field(
        metadata={**_PATHS, "description": 'The paths of the sections, as their summaries name them, e.g. "orders".'}
    )
    reason: str = field(default="", metadata={"description": "Why they are needed, in one sentence."})


@stored_as("handrail.close_request")
@dataclass(frozen=True, slots=True)
class CloseRequest:
    """A request to close sections.

    Attributes:
        paths: the dotted paths of the sections.
    """

    paths: tuple[str, ...] = field(metadata={**_PATHS, "description": "The paths of the sections."})


@stored_as("handrail.read_section")
@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request for the text of a closed section.

    Attributes:
        path: the dotted path of the section.
    """

    path: str = field(metadata={"description": "The path of the section, as its summary names it."})


SECTION_REQUESTS: Mapping[str, type[Any]] = MappingProxyType(
    {"open_sections": OpenRequest, "close_sections": CloseRequest, "read_section": ReadRequest}
)
"""The parameters of the tools for sections, by their names in a prompt without other tools of such names."""


class PromptRendering:
    """The prompt of a run, rendered by the state of its session; the one owner of its renderings.

    Threads may share it. Two that meet a new set of open sections may both render it; the renderings are equal.

    Attributes:
        start: the prompt as it is rendered before anything is opened or closed.
        may_change: whether the prompt has sections that may be opened or closed.
        beside: other prompts of the run, whose sections the tools of this one open and read, too.
        brought: names of tools that are in no prompt, each with the path of the section that brings it.
    """

    def __init__(self, prompt: Prompt[Any], session: Session, start: RenderedPrompt[Any] | None = None) -> None:
        self.prompt: Prompt[Any] = prompt
        self._session = session
        self.start: RenderedPrompt[Any] = prompt.render() if start is None else start
        self.paths: frozenset[str] = frozenset(section.path for section in self.start.sections)
        self.may_change: bool = bool(self.paths)
        self._start_open = frozenset(section.path for section in self.start.sections if section.is_open)

        def render(paths: frozenset[str]) -> RenderedPrompt[Any]:
            return prompt.render(open=paths)

        # There are few sets of open sections that matter at one time: the newest and the one before it.
        self._render_cached = lru_cache(_MOST_RENDERINGS)(render)
        self._live = tuple(placed.section for placed in prompt.template.placed_sections() if placed.section.live)
        self._live_tools = tuple(section.tools for section in self._live)
        self._tools: tuple[Tool[Any, Any], ...] | None = None
        self._origin: PromptRendering | None = None
        self.beside: tuple[PromptRendering, ...] = ()
        self.brought: Mapping[str, str] = {}

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
        """The tools by which the model opens, closes and reads sections; none if no section has a summary."""
        if self._origin is not None:
            return self._origin.tools
        sections = self._all_sections()
        if not sections:
            return ()
        self._tools = self._tools or _section_tools(self)
        *opening, reading = self._tools
        if not any(section.brings_tools for section in sections):
            return (reading,)
        return tuple(opening) if all(section.brings_tools for section in sections) else self._tools

    @property
    def names(self) -> SectionTools:
        """The names of the tools that open, close and read sections."""
        if self._origin is not None:
            return self._origin.names
        return self.start.section_tools or SectionTools.beside({tool.name for tool in self.start.tools})

    def all_open(self) -> OpenSections | None:
        """The item that opens all sections; `None` if they are open."""
        closed = [section.path for section in self.sections() if not section.is_open]
        return self.decided().changed(None, opened=closed) if closed else None

    def opening(self, error: VisibilityExpansionRequired, reply: str | None) -> OpenSections | None:
        """The item that opens the sections that an exception names; `None` if one of them cannot be opened here."""
        if self._origin is not None:
            return self._origin.opening(error, reply)
        sections = self._all_sections()
        openable = {section.path for section in sections}
        if not error.section_keys or not openable.issuperset(error.section_keys):
            return None
        paths = {section.path for key in error.section_keys for section in with_ancestors(key, sections)}
        decided = self.decided().changed(reply, opened=paths)
        for rendering in (self, *self.beside):
            rendering.rendered_for(decided)
        return decided

    def has_opened(self, sections: Iterable[SummarizedSection], call: CallRef) -> bool:
        """Returns whether a call has opened these sections before, and is repeated."""
        if call.reply is None or self._session.calls.find(call) is None:
            return False
        paths = {section.path for section in sections}
        items = (item for item in reversed(self._session[OpenSections]) if item.reply == call.reply)
        return any(self._is_mine(item) and paths.issubset(item.opened) for item in items)

    def find_closed_section(self, tool: str, reply: str | None) -> str | None:
        """The path of the section that must be opened for a tool; `None` if no closed section brings it."""
        sections = self.sections(reply)
        brought = (self._origin or self).brought
        closed = frozenset(section.path for section in sections if not section.is_open)
        bringing = (section.path for section in sections if tool in section.tools or brought.get(tool) == section.path)
        hidden = (path for path in bringing if path in closed or closed_above(tuple(path.split(".")), closed))
        # Of nested closed sections the innermost is opened, and with it those above it.
        return max(hidden, key=len, default=None)

    def section(self, path: str, field: str) -> SummarizedSection:
        """The section with a summary that the model names; `field` is where, as `$.path`."""
        sections = self.sections()
        match = next((section for section in sections if section.path == path), None)
        if match is None:
            hint = section_hint(path, [section.path for section in sections])
            raise ToolValidationError(f"{field}: there is no section {shorten(repr(path), _LONGEST_PATH)}. {hint}")
        return match

    def section_text(self, path: str) -> str:
        """The text of a section as when it is open; those below it as they are now."""
        owner = next(rendering for rendering in (self, *self.beside) if path in rendering.paths)
        return owner.prompt.section_text(
            path, open=frozenset(section.path for section in owner.seen_by().sections if section.is_open)
        )

    def _all_sections(self) -> tuple[SummarizedSection, ...]:
        return (*self.start.sections, *(section for other in self.beside for section in other.start.sections))

    def decided(self, *, except_by: str | None = None) -> OpenSections:
        """The newest item, or the newest that calls of another reply have written."""
        for item in reversed(self._session[OpenSections]):
            if self._is_mine(item) and (except_by is None or item.reply != except_by):
                return item
        return OpenSections(self.start.name)

    def _is_mine(self, item: OpenSections) -> bool:
        return item.prompt == self.start.name

    def rendered_for(self, decided: OpenSections) -> RenderedPrompt[Any]:
        """The prompt with the sections open that an item names."""
        paths = (self._start_open | self.paths.intersection(decided.opened)).difference(decided.closed)
        return self.start if paths == self._start_open else self._render_cached(paths)


def _section_tools(rendering: PromptRendering) -> tuple[Tool[Any, Any], ...]:
    names = rendering.names

    def open_sections(params: OpenRequest, *, context: ToolContext) -> ToolResult[None]:
        sections = _sections_with_ancestors(rendering, params.paths)
        if all(section.is_open for section in sections) or rendering.has_opened(sections, context.call):
            return ToolResult.ok(None, opened_text(params.paths))
        raise VisibilityExpansionRequired(
            f"the model asks to open {enumerated(params.paths, limit=_LONGEST_LIST)}",
            section_keys=params.paths,
            reason=params.reason,
            requested_overrides={section.path: "open" for section in sections},
        )

    def close_sections(params: CloseRequest, *, context: ToolContext) -> ToolResult[None]:
        _sections_with_ancestors(rendering, params.paths)
        context.session[OpenSections].append(rendering.decided().changed(context.reply, closed=params.paths))
        return ToolResult.ok(None, f"Closed: {listed_paths(params.paths)}.")

    def read_section(params: ReadRequest, *, context: ToolContext) -> ToolResult[str]:  # noqa: ARG001
        if rendering.section(params.path, "$.path").brings_tools:
            raise ToolValidationError(f"$.path: {params.path} has tools; open it with {names.open}")
        return ToolResult.ok(rendering.section_text(params.path))

    opening = "Open closed sections: the next request has their text and their tools."
    closing = "Close sections that are not needed any more, with their tools."
    reading = "Read the text of a closed section. It stays closed."
    return (
        Tool[OpenRequest, None](name=names.open, description=opening, handler=open_sections, accepts_overrides=False),
        Tool[CloseRequest, None](
            name=names.close, description=closing, handler=close_sections, accepts_overrides=False
        ),
        Tool[ReadRequest, str](
            name=names.read, description=reading, handler=read_section, accepts_overrides=False, effect="read"
        ),
    )


def _sections_with_ancestors(rendering: PromptRendering, paths: Sequence[str]) -> tuple[SummarizedSection, ...]:
    keys = [rendering.section(path, f"$.paths[{place}]").path for place, path in enumerate(paths)]
    sections = rendering.sections()
    return tuple(dict.fromkeys(ancestor for path in keys for ancestor in with_ancestors(path, sections)))


def listed_paths(paths: Sequence[str]) -> str:
    """The paths in words, each once."""
    return enumerated(tuple(dict.fromkeys(paths)), limit=_LONGEST_LIST)


def opened_text(paths: Sequence[str]) -> str:
    """The message to the model once sections are open."""
    return f"Open: {listed_paths(paths)}. What they say, and their tools, are in the prompt now."
