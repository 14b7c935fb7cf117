"""A prompt with its parameters and resources, and its rendered form: the text of the enabled sections, and their tools.

A closed section is shown by its summary and the names of its tools, with those of the sections below it.

A rendering is a pure function of the template, the parameters, and the paths of the open sections, which
`handrail.prompt.disclosure` keeps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, cast

from handrail.errors import PromptRenderError, PromptValidationError
from handrail.errors.developer import InvalidArgumentError, check_argument
from handrail.prompt.section import ResourceDeclaration, ToolsSection, fill_template, section_registry
from handrail.prompt.signature import annotation_name
from handrail.prompt.template import Out, PlacedSection, PromptTemplate, check_parameter_types
from handrail.prompt.tool_definition import Tool
from handrail.resources import ResourceContext, ResourceRegistry
from handrail.serde.annotations import subscriptable
from handrail.serde.formatting import enumerated, nearest, shorten

if TYPE_CHECKING:
    from handrail.prompt.overrides import OverridesReport
    from handrail.prompt.policy import ToolPolicy

_LONGEST_LIST = 400  # bytes of the names of tools, and of sections, in one sentence


OPENER = "open_sections"
"""The tool by which the model opens sections, in a prompt without another tool of the name."""


def free_name(name: str, others: Collection[str]) -> str:
    """A name, with a number if others have it."""
    candidates = chain((name,), (f"{name}_{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in others)


class SummarizedSection(NamedTuple):
    """An enabled section with a summary, open or closed.

    Attributes:
        path: keys from the root section to this one, joined by dots.
        is_open: it is rendered only if the sections above it are open, too.
        tools: the names of the tools that it brings, with those of the enabled sections below it.
    """

    path: str
    title: str
    is_open: bool
    tools: tuple[str, ...]

    def invitation(self, opener: str) -> str:
        """The sentence below the summary of a closed section: how the model opens it."""
        tools = f", with its tools ({enumerated(self.tools, limit=_LONGEST_LIST)})" if self.tools else ""
        return f'[This section is closed. To open it{tools}, call {opener} with paths=["{self.path}"].]'


def closed_above(path: tuple[str, ...], closed: AbstractSet[str]) -> str | None:
    """The path of the outermost closed section that has a section below it; `None` if there is none."""
    dotted = (".".join(path[:depth]) for depth in range(1, len(path) if closed else 0))
    return next((above for above in dotted if above in closed), None)


def with_ancestors(path: str, sections: Iterable[SummarizedSection]) -> tuple[SummarizedSection, ...]:
    """A section and those above it that have a summary, outermost first: opening it opens them all."""
    return tuple(section for section in sections if path == section.path or path.startswith(f"{section.path}."))


def section_hint(path: str, paths: Collection[str]) -> str:
    """The end of an error about a section that does not exist: the nearest name, and the others."""
    if not paths:
        return "No section has a summary."
    near = nearest(path, tuple(paths))
    hint = f"Did you mean {near}? " if near else ""
    return f"{hint}The sections with a summary are: {enumerated(tuple(paths), limit=_LONGEST_LIST, near=path)}."


def check_paths(requests: Iterable[str], paths: Collection[str]) -> None:
    """Checks the paths that a rendering is to open."""
    for path in requests:
        if path not in paths:
            raise PromptRenderError(
                f"{shorten(repr(path), 80)} cannot be open: it is not a section with a summary. "
                f"{section_hint(path, paths)}"
            )


_DEEPEST_HEADING = 6  # markdown has six levels of headings

BoundParams = Mapping[type[Any], object]
"""The parameters of sections by their type."""


class Prompt(Generic[Out]):
    """A template with its bound parameters and resources. Binding creates another prompt; only `resources` has state.

    Attributes:
        template: the template, with the overrides applied.
        overrides: the report on the file of overrides; `None` for a prompt that was bound without one.
    """

    __slots__ = ("_lock", "_params", "_registry", "_resources", "overrides", "template")

    def __init__(
        self, template: PromptTemplate[Out], *, params: Sequence[object] = (), resources: ResourceDeclaration = None
    ) -> None:
        """Creates a prompt from a template; `params` and `resources` as for `bind`.

        Raises:
            InvalidArgumentError: `template` is not a `PromptTemplate`.
            PromptValidationError: as for `bind`.
        """
        expected = "a PromptTemplate: PromptTemplate[Answer](ns=..., key=..., sections=[...])"
        check_argument("Prompt", "template", template, PromptTemplate, expected)
        self.template: PromptTemplate[Out] = template
        self.overrides: OverridesReport | None = None
        self._params = _by_type(template, params)
        self._registry = section_registry(resources)
        check_parameter_types(template.placed_tools(), [(self._registry, "bind(resources=...)")])
        # Not a plain lock: the `enabled` functions of sections are called while it is held. One that reads `resources`
        # gets a RecursionError; with a plain lock it would wait for itself.
        self._lock = threading.RLock()
        self._resources: ResourceContext | None = None

    @staticmethod
    def from_tools(tools: Iterable[Tool[Any, Any]]) -> Prompt[Any]:
        """Creates a prompt of one section, `ToolsSection(title="Tools", tools=tools)`; without tools, of none.

        Raises:
            PromptValidationError: as for the section and the template.
        """
        section = ToolsSection(title="Tools", tools=tuple(tools))
        return Prompt(PromptTemplate(ns="handrail", key="tools", sections=[section] if section.tools else []))

    def __repr__(self) -> str:
        return f"Prompt({self.name!r})"

    @property
    def name(self) -> str:
        """The name of the prompt in logs and events."""
        return self.template.name

    @property
    def resources(self) -> ResourceContext:
        """The resources that all calls of this prompt share; always the same object for one prompt.

        Resources of the enabled sections, depth first, override those of the template; bound resources override both.

        Raises:
            PromptRenderError: a section whose `enabled` is a function lacks its parameters.
        """
        if self._resources is None:
            # Two calls may ask at the same time, on two threads. Without the lock each would open a context, and their
            # singletons would differ.
            with self._lock:
                if self._resources is None:  # pragma: no branch - unless another thread was faster
                    self._resources = self._merged().open()
        return self._resources

    def bind(
        self, *params: object, resources: ResourceDeclaration = None, overrides: str | os.PathLike[str] | None = None
    ) -> Prompt[Out]:
        """A prompt with additional parameters and resources; they replace bound ones of the same type.

        Args:
            params: an instance of each parameter type that sections need.
            resources: instances or `Binding`s by type, or a registry.
            overrides: a file of texts that replace those of the template (`handrail.prompt.overrides`), read here,
                once. A file that does not exist replaces nothing, and is logged.

        Raises:
            InvalidArgumentError: `overrides` is not a path.
            PromptValidationError: an argument is not an instance of a parameter type of the sections, or two have one
                type.
            OverridesError: the file cannot be read, or does not fit the template.
        """
        template, report = self.template, self.overrides
        if overrides is not None:
            check_argument("Prompt.bind", "overrides", overrides, (str, os.PathLike), "a path, such as 'desk.json'")
            from handrail.prompt.overrides import apply_overrides  # noqa: PLC0415

            template, report = apply_overrides(template, Path(overrides))
        bound = Prompt(
            template,
            # `_by_type` refuses two new parameters of one type; a new one replaces one that was bound before.
            params=tuple((self._params | _by_type(self.template, params)).values()),
            resources=self._registry.merge(section_registry(resources)),
        )
        bound.overrides = report
        return bound

    def render(self, *, open: AbstractSet[str] = frozenset()) -> RenderedPrompt[Out]:
        """The prompt as the model receives it: a pure function of the template, the parameters and `open`.

        Args:
            open: the dotted paths of the sections with a summary that are open.

        Raises:
            PromptRenderError: an enabled section lacks its parameters, or failed to render, or `open` names a section
                that does not exist or has no summary.
        """
        template, rendering = self.template, _Rendering(self.template, self._params, open)
        closed = rendering.closed()
        open_sections = [enabled.placed for enabled in rendering.visible() if enabled.placed.dotted not in closed]
        return RenderedPrompt(
            name=template.name,
            text=rendering.text(),
            tools=tuple(tool for placed in open_sections for tool in placed.section.tools),
            # `check_tree` has refused two tools of one name, so no entry replaces another.
            policies=MappingProxyType(
                {tool.name: placed.policies for placed in open_sections for tool in placed.section.tools}
            ),
            output_type=template.output_type,
            prompt_policies=tuple(template.policies),
            sections=rendering.sections,
            opener=rendering.opener if rendering.sections else None,
        )

    def _merged(self) -> ResourceRegistry:
        merged = self.template.registry
        # Depth first, and each registry overrides those before it, so a section overrides its ancestors.
        for enabled in enabled_sections(self.template.tree, self._params):
            merged = merged.merge(enabled.placed.section.registry)
        return merged.merge(self._registry)


def _by_type(template: PromptTemplate[Any], params: Sequence[object]) -> dict[type[Any], object]:
    bound: dict[type[Any], object] = {}
    for value in params:
        kind = _declared_type(template, value)
        if kind in bound:
            raise PromptValidationError(
                f"two of the parameters are {annotation_name(kind)}; bind one, which all sections of that type share.",
                dataclass=kind,
            )
        bound[kind] = value
    return bound


def _declared_type(template: PromptTemplate[Any], value: object) -> type[Any]:
    kinds = template.params_types
    # The exact type comes first: if sections declare a class and its subclass, an instance of the subclass must not be
    # bound as the class. The declared type is the key, not the type of the instance: sections find parameters by it.
    kind = type(value) if type(value) in kinds else next((base for base in kinds if isinstance(value, base)), None)
    if kind is not None:
        return kind
    names = ", ".join(annotation_name(kind) for kind in kinds)
    text, own = ("the class", value) if isinstance(value, type) else ("an instance of", type(value))
    raise PromptValidationError(
        f"{text} {annotation_name(own)} was bound, but the sections of {template.name} take "
        f"{f'instances of {names}' if kinds else 'no parameters'}.",
        dataclass=own,
    )


@subscriptable
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RenderedPrompt(Generic[Out]):
    """A prompt as the model receives it. Created by `Prompt.render`.

    Attributes:
        policies: the policies of each tool, by its name, outermost section first.
        prompt_policies: the policies of the prompt itself, which judge the calls of tools that no section brings.
        sections: the enabled sections with a summary, open or closed, also those below closed ones.
        opener: the name of the tool that opens them; `None` if no section has a summary.
    """

    name: str
    text: str
    tools: tuple[Tool[Any, Any], ...]
    policies: Mapping[str, tuple[ToolPolicy, ...]]
    output_type: type[Out] | None
    prompt_policies: tuple[ToolPolicy, ...] = ()
    sections: tuple[SummarizedSection, ...] = ()
    opener: str | None = None
    _by_name: dict[str, Tool[Any, Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {tool.name: tool for tool in self.tools})

    def tool(self, name: str) -> Tool[Any, Any] | None:
        """The tool of that name, or `None`."""
        return self._by_name.get(name)

    def policies_for(self, tool_name: str) -> tuple[ToolPolicy, ...]:
        """The policies of a tool: those of the prompt, of the outermost section, and so on to its own.

        Raises:
            KeyError: the tool does not exist.
        """
        return self.policies[tool_name]


class EnabledSection(NamedTuple):
    """A section that is rendered.

    Attributes:
        numbers: its number among its enabled neighbours, and those of its ancestors before it.
    """

    placed: PlacedSection
    numbers: tuple[int, ...]


class _Rendering:
    def __init__(self, template: PromptTemplate[Any], params: BoundParams, open: AbstractSet[str]) -> None:
        check_paths(open, [placed.dotted for placed in template.placed_sections() if placed.section.summary_text])
        self._params = params
        self._enabled = tuple(enabled_sections(template.tree, params))
        self.sections = tuple(
            self._summarized(one.placed, open) for one in self._enabled if one.placed.section.summary_text is not None
        )
        self.opener = free_name(OPENER, {tool.name for tool, _ in template.placed_tools()})

    def _summarized(self, placed: PlacedSection, open: AbstractSet[str]) -> SummarizedSection:
        below = (one.placed for one in self._enabled if f"{one.placed.dotted}.".startswith(f"{placed.dotted}."))
        tools = tuple(tool.name for one in below for tool in one.section.tools)
        return SummarizedSection(placed.dotted, placed.section.title, placed.dotted in open, tools)

    def closed(self) -> dict[str, SummarizedSection]:
        return {section.path: section for section in self.sections if not section.is_open}

    def visible(self) -> Iterator[EnabledSection]:
        closed = self.closed().keys()
        return (section for section in self._enabled if closed_above(section.placed.path, closed) is None)

    def text(self) -> str:
        closed = self.closed()
        return "\n\n".join(self._block(enabled, closed.get(enabled.placed.dotted)) for enabled in self.visible())

    def _block(self, enabled: EnabledSection, closed: SummarizedSection | None) -> str:
        placed = enabled.placed
        own, summary = _section_params(placed, self._params), placed.section.summary_text
        if closed is not None and summary is not None:
            body = f"{fill_template(summary, own)}\n\n{closed.invitation(self.opener)}"
        else:
            try:
                body = placed.section.render_body(own)
            except Exception as error:
                raise PromptRenderError(f"render_body raised {_describe(error)}", section_path=placed.path) from error
        level = "#" * min(len(enabled.numbers) + 1, _DEEPEST_HEADING)
        heading = f"{level} {'.'.join(map(str, enabled.numbers))}. {placed.section.title}"
        return f"{heading}\n\n{body}" if body else heading


def enabled_sections(
    tree: Iterable[PlacedSection], params: BoundParams, numbers: tuple[int, ...] = ()
) -> Iterator[EnabledSection]:
    """The sections that are enabled and have no disabled ancestor; depth first."""
    number = 0
    for placed in tree:
        if _is_enabled(placed, params):
            number += 1
            yield EnabledSection(placed, (*numbers, number))
            yield from enabled_sections(placed.children, params, (*numbers, number))


def _is_enabled(placed: PlacedSection, params: BoundParams) -> bool:
    enabled = placed.section.enabled
    if isinstance(enabled, bool):
        return enabled
    own = _section_params(placed, params)
    try:
        answer = cast("object", enabled(own))  # the program's function may return anything
    except Exception as error:
        raise PromptRenderError(f"enabled raised {_describe(error)}", section_path=placed.path) from error
    # Not by truth: a function that forgets to return would silently disable its section.
    if not isinstance(answer, bool):
        raise PromptRenderError(f"enabled returned {answer!r}; it must return True or False.", section_path=placed.path)
    return answer


def _section_params(placed: PlacedSection, params: BoundParams) -> object:
    kind = placed.section.params_type
    if kind is None or kind in params:
        return None if kind is None else params[kind]
    try:
        return kind()  # a dataclass whose fields all have defaults need not be bound
    except TypeError as error:
        raise PromptRenderError(
            f"needs {kind.__name__}, and none was bound. Write prompt.bind({kind.__name__}(...)): {error}",
            section_path=placed.path,
            dataclass=kind,
        ) from error


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def prompt_over(
    function: str, tools: Iterable[Tool[Any, Any]] | None, prompt: Prompt[Any] | None, resources: ResourceDeclaration
) -> Prompt[Any]:
    """Returns the prompt that `function` was given, or makes one over a list of tools; with resources bound.

    Raises:
        InvalidArgumentError: both were given, or none; or a template for a prompt.
        PromptValidationError: as for the section, the template and `bind`.
    """
    if tools is not None:
        check_argument(function, "tools", tools, Iterable, "a list of tools: [pay, ship]; a prompt is given as prompt=")
        check_argument(function, "prompt", prompt, NoneType, "left out: the tools are a prompt of their own")
        prompt = Prompt.from_tools(tools)
    if not isinstance(prompt, Prompt):
        expected = f"a Prompt: Prompt(template); or give tools: {function}([pay, ship], ...)"
        raise InvalidArgumentError(function=function, argument="prompt", value=prompt, expected=expected)
    return prompt if resources is None else prompt.bind(resources=resources)
