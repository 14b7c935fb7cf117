"""A prompt with its parameters and resources, and its rendered form.

The model receives the text of the enabled sections, and their tools.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, cast

from handrail.errors import PromptRenderError, PromptValidationError
from handrail.errors.developer import check_argument
from handrail.prompt.parameter_types import check_parameter_types
from handrail.prompt.policies.policy import ToolPolicy
from handrail.prompt.section import section_registry
from handrail.prompt.template import Out, PlacedSection, PromptTemplate
from handrail.prompt.tool_definition import Tool
from handrail.prompt.type_parameters import annotation_name
from handrail.resources import ResourceContext, ResourceRegistry

_DEEPEST_HEADING = 6
"""Markdown has six levels of headings."""

BoundParams = Mapping[type[Any], object]
"""The parameters of sections by their type."""


class Prompt(Generic[Out]):
    """A template with its bound parameters and resources. Binding creates another prompt; only `resources` has state.

    Attributes:
        template: the template.
    """

    __slots__ = ("_lock", "_params", "_registry", "_resources", "template")

    def __init__(
        self,
        template: PromptTemplate[Out],
        *,
        params: Sequence[object] = (),
        resources: ResourceRegistry | Mapping[type[Any], object] | None = None,
    ) -> None:
        """Create a prompt from a template; `Prompt(template).bind(...)` is more readable than the keywords.

        Raises:
            InvalidArgumentError: `template` is not a `PromptTemplate`.
            PromptValidationError: as for `bind`.
        """
        expected = "a PromptTemplate: PromptTemplate[Answer](ns=..., key=..., sections=[...])"
        check_argument("Prompt", "template", template, PromptTemplate, expected)
        self.template: PromptTemplate[Out] = template
        self._params = _by_type(template, params)
        self._registry = section_registry(resources)
        check_parameter_types(template.placed_tools(), [(self._registry, "bind(resources=...)")])
        # Not a plain lock: the `enabled` functions of sections are called while it is held. One that reads `resources`
        # gets a RecursionError; with a plain lock it would wait for itself.
        self._lock = threading.RLock()
        self._resources: ResourceContext | None = None

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
        self, *params: object, resources: ResourceRegistry | Mapping[type[Any], object] | None = None
    ) -> Prompt[Out]:
        """A prompt with additional parameters and resources; they replace bound ones of the same type.

        Args:
            params: an instance of each parameter type that sections need.
            resources: instances or `Binding`s by type, or a registry.

        Raises:
            PromptValidationError: an argument is not an instance of a parameter type of the sections, or two have one
                type.
        """
        return Prompt(
            self.template,
            # `_by_type` refuses two new parameters of one type; a new one replaces one that was bound before.
            params=tuple((self._params | _by_type(self.template, params)).values()),
            resources=self._registry.merge(section_registry(resources)),
        )

    def render(self) -> RenderedPrompt[Out]:
        """The prompt as the model receives it.

        Raises:
            PromptRenderError: an enabled section lacks its parameters, or failed to render.
        """
        return render_template(self.template, self._params)

    def _merged(self) -> ResourceRegistry:
        merged = self.template.registry
        # Depth first, and each registry overrides those before it, so a section overrides its ancestors.
        for enabled in enabled_sections(self.template.tree, self._params):
            merged = merged.merge(enabled.placed.section.registry)
        return merged.merge(self._registry)


def _by_type(template: PromptTemplate[Any], params: Sequence[object]) -> dict[type[Any], object]:
    """The parameters by the type that the sections declare."""
    bound: dict[type[Any], object] = {}
    for given in params:
        kind = _known_type(template, given)
        if kind in bound:
            raise PromptValidationError(
                f"two of the parameters are {annotation_name(kind)}; bind one, which all sections of that type share.",
                dataclass=kind,
            )
        bound[kind] = given
    return bound


def _known_type(template: PromptTemplate[Any], given: object) -> type[Any]:
    known = template.params_types
    # The exact type comes first: if sections declare a class and its subclass, an instance of the subclass must not be
    # bound as the class.
    if type(given) in known:
        return type(given)
    # The declared type is the key, not the type of the instance: sections find their parameters by it.
    for kind in known:
        if isinstance(given, kind):
            return kind
    names = ", ".join(annotation_name(kind) for kind in known) or "no parameters"
    text = (
        f"the class {annotation_name(given)} itself"
        if isinstance(given, type)
        else f"an instance of {annotation_name(type(given))}"
    )
    raise PromptValidationError(
        f"{text} was bound, but the sections of {template.name} take {f'instances of {names}' if known else names}.",
        dataclass=type(given) if dataclasses.is_dataclass(given) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RenderedPrompt(Generic[Out]):
    """What the model receives. Created by `Prompt.render`.

    Attributes:
        name: the name of the prompt.
        text: headings and bodies of the enabled sections, as Markdown.
        tools: the tools of the enabled sections, in the order of their declaration.
        policies: the policies of each tool, by its name, outermost section first.
        output_type: the type of the answer: a dataclass, `str`, or `None`.
        prompt_policies: the policies of the prompt itself, which judge the calls of tools that no section brings.
    """

    name: str
    text: str
    tools: tuple[Tool[Any, Any], ...]
    policies: Mapping[str, tuple[ToolPolicy, ...]]
    output_type: type[Out] | None
    prompt_policies: tuple[ToolPolicy, ...] = ()
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


@dataclass(frozen=True, slots=True)
class EnabledSection:
    """A section that is rendered.

    Attributes:
        placed: the section with its position in the tree.
        numbers: its number among its enabled neighbours, and those of its ancestors before it.
    """

    placed: PlacedSection
    numbers: tuple[int, ...]


def render_template(template: PromptTemplate[Out], params: BoundParams) -> RenderedPrompt[Out]:
    """Render a template with its parameters.

    Raises:
        PromptRenderError: an enabled section lacks its parameters, or its `enabled` or `render_body` failed.
    """
    blocks: list[str] = []
    tools: list[Tool[Any, Any]] = []
    policies: dict[str, tuple[ToolPolicy, ...]] = {}
    for enabled in enabled_sections(template.tree, params):
        blocks.append(_block(enabled, params))
        for tool in enabled.placed.section.tools:
            tools.append(tool)
            # `check_tree` has refused two tools of one name, so no entry replaces another.
            policies[tool.name] = enabled.placed.policies
    return RenderedPrompt(
        name=template.name,
        text="\n\n".join(blocks),
        tools=tuple(tools),
        policies=MappingProxyType(policies),
        output_type=template.output_type,
        prompt_policies=tuple(template.policies),
    )


def enabled_sections(
    tree: tuple[PlacedSection, ...], params: BoundParams, numbers: tuple[int, ...] = ()
) -> Iterator[EnabledSection]:
    """The sections that are enabled and have no disabled ancestor; depth first.

    Raises:
        PromptRenderError: a section whose `enabled` is a function lacks its parameters, or the function failed.
    """
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
    own = _params_of(placed, params)
    try:
        answer = cast("object", enabled(own))  # the program's function may return anything
    except Exception as error:
        raise PromptRenderError(f"enabled raised {_describe(error)}", section_path=placed.path) from error
    # Not by truth: a function that forgets to return would silently disable its section.
    if not isinstance(answer, bool):
        raise PromptRenderError(f"enabled returned {answer!r}; it must return True or False.", section_path=placed.path)
    return answer


def _block(enabled: EnabledSection, params: BoundParams) -> str:
    placed, numbers = enabled.placed, enabled.numbers
    level = "#" * min(len(numbers) + 1, _DEEPEST_HEADING)
    heading = f"{level} {'.'.join(map(str, numbers))}. {placed.section.title}"
    own = _params_of(placed, params)
    try:
        body = placed.section.render_body(own)
    except Exception as error:
        raise PromptRenderError(f"render_body raised {_describe(error)}", section_path=placed.path) from error
    return f"{heading}\n\n{body}" if body else heading


def _params_of(placed: PlacedSection, params: BoundParams) -> object:
    """The parameters of a section: the bound ones, or the dataclass with all its defaults."""
    kind = placed.section.params_type
    if kind is None or kind in params:
        return None if kind is None else params[kind]
    # No instance was bound. The error names what it would need; a dataclass whose fields all have defaults is created.
    needed = [
        one.name
        for one in dataclasses.fields(kind)
        if one.init and one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    ]
    if needed:
        raise PromptRenderError(
            f"needs {kind.__name__}, and none was bound. Write prompt.bind({kind.__name__}("
            f"{', '.join(f'{name}=...' for name in needed)})).",
            section_path=placed.path,
            dataclass=kind,
        )
    return kind()


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
