"""Which sections of a prompt are open, and the tools by which a model opens, closes and reads them.

Theory of operation
    A section with a summary is open or closed. What the model and the program have decided about it is state of the
    session: a slice of `OpenSections`, one item for each change, the newest of which counts. So it is stored with the
    session, copied by forks, rolled back by `Session.restore` and emptied by `Session.reset`. A section that no item
    names is as it starts.

    `PromptRendering` is the prompt of a run as it is rendered now. It asks the session for the open sections, and
    renders the prompt once for each set of them. A prompt without summaries is never rendered again.

    `open_sections` raises `VisibilityExpansionRequired`: its call is rolled back, and recorded as failed. The item that
    opens the sections is written in one unit with that record, and the exception is raised with `opened`. A handler of
    the program that raises it has the same effect. A repeat of `open_sections` says that the sections are open, and
    opens nothing: a later call may have closed them, and its record answers a repeat of that one.

    A call sees the sections as they were when its reply began: an item names the reply that it was written for, and
    calls of that reply look past it. Otherwise it would depend on the order of the calls, and on how many run at the
    same time, whether a tool exists that the model has not been shown yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from handrail.errors import ToolValidationError, VisibilityExpansionRequired
from handrail.prompt.context import ToolContext
from handrail.prompt.prompt import SectionTools, closed_above, section_hint, with_ancestors
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
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


@stored_as("handrail.open_sections")
@dataclass(frozen=True, slots=True)
class OpenSections:
    """What has been decided about the sections of a prompt, from this item on.

    Attributes:
        prompt: the name of the prompt.
        opened: the paths of the sections that have been opened and not closed since, sorted.
        closed: the paths of those that have been closed and not opened since, sorted.
        reply: the reply of the model whose call has decided it; `None` if it has no name.
    """

    prompt: str
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    reply: str | None = None

    def changed(self, reply: str | None, *, opened: Collection[str] = (), closed: Collection[str] = ()) -> OpenSections:
        """The same with some sections opened or closed by a reply."""
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
"""What the tools that open, close and read sections take, by their names in a prompt without others of such names."""


class PromptRendering:
    """The prompt of a run as it is rendered now, by the state of its session; the one owner of its renderings.

    Threads may share it. Two that meet a new set of open sections may both render it; the renderings are equal.

    Attributes:
        prompt: the bound prompt.
        start: the prompt as it is rendered before anything is opened or closed.
        paths: the paths of the sections with a summary.
        may_change: whether the prompt has sections that may be opened or closed.
        beside: other prompts of the run, whose sections the tools of this one open and read, too.
        brought: names of tools that are in no prompt, each with the path of the section that brings it.
    """

    def __init__(self, prompt: Prompt[Any], session: Session, rendered: RenderedPrompt[Any] | None = None) -> None:
        """Begin with a rendering of the prompt.

        Args:
            prompt: the bound prompt.
            session: holds what is open.
            rendered: the prompt as it starts; rendered if it is not given.

        Raises:
            PromptRenderError: the prompt lacks parameters that its sections need.
        """
        self.prompt: Prompt[Any] = prompt
        self._session = session
        self.start: RenderedPrompt[Any] = prompt.render() if rendered is None else rendered
        self.paths: frozenset[str] = frozenset(each.path for each in self.start.sections)
        self.may_change: bool = bool(self.paths)
        self._start_open = frozenset(each.path for each in self.start.sections if each.is_open)

        def render(paths: frozenset[str]) -> RenderedPrompt[Any]:
            return prompt.render(open=paths)

        # There are few sets of open sections that matter at one time: the newest and the one before it.
        self._rendered = lru_cache(_MOST_RENDERINGS)(render)
        self._tools: tuple[Tool[Any, Any], ...] | None = None
        self._origin: PromptRendering | None = None
        self._joined: frozenset[str] = frozenset()
        self.beside: tuple[PromptRendering, ...] = ()
        self.brought: Mapping[str, str] = {}

    def showing(self, rendered: RenderedPrompt[Any]) -> PromptRendering:
        """The sections of this one behind another prompt, which shows what it shows whatever is opened."""
        other = PromptRendering(self.prompt, self._session, rendered)
        other._origin, other.may_change = self, False
        return other

    def join(self, other: PromptRendering) -> None:
        """Let the tools of this prompt open, close and read the sections of another one, too.

        A prompt of another session is left alone, as is one whose sections name other tools. Sections of both with one
        path are opened together.
        """
        if other._session is self._session and other.names == self.names and other not in self.beside:
            # What is open is stored for the prompt whose tools open it; the other one reads it from there.
            other._joined |= {self.start.name}
            self.beside += (other,)

    def seen_by(self, reply: str | None = None) -> RenderedPrompt[Any]:
        """The prompt as the calls of a reply see it; `None` for as it is now, as for a call that belongs to none."""
        return self.rendered_for(self.decided(except_by=reply)) if self.may_change else self.start

    def sections(self, reply: str | None = None) -> tuple[SummarizedSection, ...]:
        """The sections with a summary, with those of the prompts beside this one; as the calls of a reply see them."""
        if self._origin is not None:
            return self.start.sections or self._origin.sections(reply)
        own = self.seen_by(reply).sections
        return (*own, *(each for other in self.beside for each in other.sections(reply)))

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
        if not any(each.brings_tools for each in sections):
            return (reading,)
        return tuple(opening) if all(each.brings_tools for each in sections) else self._tools

    @property
    def names(self) -> SectionTools:
        """The names of these tools."""
        if self._origin is not None:
            return self._origin.names
        return self.start.section_tools or SectionTools.beside({tool.name for tool in self.start.tools})

    def all_open(self) -> OpenSections | None:
        """What would have to be decided for all sections to be open; `None` if they are."""
        closed = [each.path for each in self.sections() if not each.is_open]
        return self.decided().changed(None, opened=closed) if closed else None

    def opening(self, error: VisibilityExpansionRequired, reply: str | None) -> OpenSections | None:
        """The item that opens the sections that an exception names; `None` if one of them cannot be opened here.

        The prompt is rendered with them, so that a section that cannot be rendered is never opened.

        Raises:
            PromptRenderError: it cannot be rendered so.
        """
        if self._origin is not None:
            return self._origin.opening(error, reply)
        sections = self._all_sections()
        known = {each.path for each in sections}
        if not error.section_keys or not known.issuperset(error.section_keys):
            return None
        paths = {each.path for asked in error.section_keys for each in with_ancestors(asked, sections)}
        decided = self.decided().changed(reply, opened=paths)
        for each in (self, *self.beside):
            each.rendered_for(decided)
        return decided

    def has_opened(self, asked: Iterable[SummarizedSection], call: CallRef) -> bool:
        """Whether a call has opened these sections before, and is made again; they may have been closed since."""
        if call.reply is None or self._session.calls.find(call) is None:
            return False
        paths = {each.path for each in asked}
        items = (each for each in reversed(self._session[OpenSections]) if each.reply == call.reply)
        return any(self._is_mine(each) and paths.issubset(each.opened) for each in items)

    def closed_section_of(self, tool: str, reply: str | None) -> str | None:
        """The path of the section that has to be opened for a tool; `None` if no closed section brings it."""
        sections = self.sections(reply)
        brought = (self._origin or self).brought
        closed = frozenset(each.path for each in sections if not each.is_open)
        bringing = (each.path for each in sections if tool in each.tools or brought.get(tool) == each.path)
        hidden = (path for path in bringing if path in closed or closed_above(tuple(path.split(".")), closed))
        # Of nested closed sections the innermost is opened, and with it those above it.
        return max(hidden, key=len, default=None)

    def section(self, path: str, field: str) -> SummarizedSection:
        """The section with a summary that the model names.

        Args:
            path: its dotted path.
            field: where the model has written it, as `$.path`.

        Raises:
            ToolValidationError: there is none.
        """
        sections = self.sections()
        found = next((each for each in sections if each.path == path), None)
        if found is None:
            hint = section_hint(path, [each.path for each in sections])
            raise ToolValidationError(f"{field}: there is no section {shorten(repr(path), _LONGEST_PATH)}. {hint}")
        return found

    def text_of(self, path: str) -> str:
        """The text of a section as when it is open; those below it as they are now."""
        owner = next(each for each in (self, *self.beside) if path in each.paths)
        return owner.prompt.section_text(
            path, open=frozenset(each.path for each in owner.seen_by().sections if each.is_open)
        )

    def _all_sections(self) -> tuple[SummarizedSection, ...]:
        return (*self.start.sections, *(each for other in self.beside for each in other.start.sections))

    def decided(self, *, except_by: str | None = None) -> OpenSections:
        """The newest item, or the newest that calls of another reply have written."""
        for each in reversed(self._session[OpenSections]):
            if self._is_mine(each) and (except_by is None or each.reply != except_by):
                return each
        return OpenSections(self.start.name)

    def _is_mine(self, item: OpenSections) -> bool:
        return item.prompt == self.start.name or item.prompt in self._joined

    def rendered_for(self, decided: OpenSections) -> RenderedPrompt[Any]:
        """The prompt with the sections open that have been decided to be.

        Raises:
            PromptRenderError: it cannot be rendered so.
        """
        paths = (self._start_open | self.paths.intersection(decided.opened)).difference(decided.closed)
        return self.start if paths == self._start_open else self._rendered(paths)


def _section_tools(rendering: PromptRendering) -> tuple[Tool[Any, Any], ...]:
    names = rendering.names

    def open_sections(params: OpenRequest, *, context: ToolContext) -> ToolResult[None]:
        asked = _named(rendering, params.paths)
        if all(each.is_open for each in asked) or rendering.has_opened(asked, context.call):
            return ToolResult.ok(None, opened_text(params.paths))
        raise VisibilityExpansionRequired(
            f"the model asks to open {enumerated(params.paths, limit=_LONGEST_LIST)}",
            section_keys=params.paths,
            reason=params.reason,
            requested_overrides={each.path: "open" for each in asked},
        )

    def close_sections(params: CloseRequest, *, context: ToolContext) -> ToolResult[None]:
        _named(rendering, params.paths)
        context.session[OpenSections].append(rendering.decided().changed(context.reply, closed=params.paths))
        return ToolResult.ok(None, f"Closed: {listed_paths(params.paths)}.")

    def read_section(params: ReadRequest, *, context: ToolContext) -> ToolResult[str]:  # noqa: ARG001
        if rendering.section(params.path, "$.path").brings_tools:
            raise ToolValidationError(f"$.path: {params.path} has tools; open it with {names.open}")
        return ToolResult.ok(rendering.text_of(params.path))

    return (
        Tool[OpenRequest, None](
            name=names.open,
            description="Open closed sections: the next request has their text and their tools.",
            handler=open_sections,
            accepts_overrides=False,
        ),
        Tool[CloseRequest, None](
            name=names.close,
            description="Close sections that are not needed any more, with their tools.",
            handler=close_sections,
            accepts_overrides=False,
        ),
        Tool[ReadRequest, str](
            name=names.read,
            description="Read the text of a closed section. It stays closed.",
            handler=read_section,
            effect="read",
            accepts_overrides=False,
        ),
    )


def _named(rendering: PromptRendering, paths: Sequence[str]) -> tuple[SummarizedSection, ...]:
    asked = [rendering.section(path, f"$.paths[{place}]").path for place, path in enumerate(paths)]
    sections = rendering.sections()
    return tuple(dict.fromkeys(each for path in asked for each in with_ancestors(path, sections)))


def listed_paths(paths: Sequence[str]) -> str:
    """The paths, each once, as a model may name one twice."""
    return enumerated(tuple(dict.fromkeys(paths)), limit=_LONGEST_LIST)


def opened_text(paths: Sequence[str]) -> str:
    """What the model reads once sections are open."""
    return f"Open: {listed_paths(paths)}. What they say, and their tools, are in the prompt now."
