"""The declaration of a prompt: sections, and the type of the answer.

Sections form a tree, which defines their paths, the reach of policies, and names that must be unique in the prompt.

A prompt must not bind a type that one of its tools takes as a parameter from the model: the parameter was meant to be
injected, and the resource would never be used. A run has to bind each type that a tool has injected.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, cast, get_origin

from typing_extensions import TypeVar  # a dependency of pydantic; `typing` has no defaults before Python 3.13

from handrail.errors import PromptValidationError, SchemaError, UnboundResourceError
from handrail.prompt.section import ResourceDeclaration, Section, check_policy, checked_items, section_registry
from handrail.prompt.signature import (
    TypedAlias,
    annotation_name,
    is_dataclass_type,
    type_arguments,
    typed_alias,
    union_members,
)
from handrail.prompt.tool_declaration import locate_faults
from handrail.prompt.tool_definition import Tool
from handrail.resources import ResourceRegistry
from handrail.serde import codec
from handrail.serde.annotations import strip_annotated
from handrail.serde.formatting import type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from handrail.prompt.hooks import CompletionCheck, CompletionChecker, CompletionFunction, FeedbackProvider
    from handrail.prompt.policy import ToolPolicy

PlacedTool = tuple[Tool[Any, Any], tuple[str, ...]]
"""A tool, and the path of its section."""

PlacedRegistry = tuple[ResourceRegistry, str]
"""Bindings, and where they stand, in words."""


def check_parameter_types(tools: Iterable[PlacedTool], registries: Sequence[PlacedRegistry]) -> None:
    """Refuses a prompt that binds a type which the function of one of its tools takes as a parameter."""
    bound = {binding.kind: where for registry, where in registries for binding in registry}
    if not bound:
        return
    for tool, path in tools:
        for parameter, kind in _parameter_classes(tool):
            if kind in bound:
                name = type_name(kind)
                raise PromptValidationError(
                    f"its parameter {parameter} is a {name}, which the model would write, and {bound[kind]} binds "
                    f"{name} as a resource. Write {parameter}: Annotated[{name}, Resource] to have it injected, or "
                    "remove the binding.",
                    section_path=path,
                    tool=tool.name,
                    dataclass=kind,
                )


def check_bound(template: PromptTemplate[Any], offered: Container[str], bound: Container[object]) -> None:
    """Refuses tools that need a resource that nothing binds.

    Raises:
        UnboundResourceError: nothing is bound for a type that must be; its notes name every tool that needs one.
    """
    unbound = [resource for resource in unbound_resources(template, bound) if resource[0] in offered]
    if not unbound:
        return
    error = UnboundResourceError(unbound[0][1], tool=unbound[0][0])
    for name, kind, why in unbound:
        error.add_note(f"Tool {name} needs {kind.__name__}: {why}.")
    raise error


def unbound_resources(template: PromptTemplate[Any], bound: Container[object]) -> Iterator[tuple[str, type[Any], str]]:
    """The types that must be bound and are not: name of a tool, type, reason."""
    for placed in template.placed_sections():
        judges: list[Any] = [policy for policy in placed.policies if hasattr(policy, "needs")]
        for tool in placed.section.tools:
            needs = [(parameter.kind, parameter.origin) for parameter in tool.injected if parameter.must_be_bound]
            needs += [(kind, f"the policy {policy.name} needs it") for policy in judges for kind in policy.needs(tool)]
            yield from ((tool.name, kind, why) for kind, why in needs if kind not in bound)


def _parameter_classes(tool: Tool[Any, Any]) -> Iterator[tuple[str, type[Any]]]:
    from handrail.prompt.function_tools import FunctionTool  # noqa: PLC0415

    for argument in tool.signature.fields if isinstance(tool, FunctionTool) else ():
        kinds = [strip_annotated(member) for member in union_members(argument.kind)]
        yield from ((argument.name, cls) for kind in kinds if isinstance(cls := get_origin(kind) or kind, type))


Out = TypeVar("Out", default=str)

_KEY = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}"


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptTemplate(Generic[Out]):
    """A prompt without its parameters. The answer to `PromptTemplate[Answer](...)` is a dataclass, otherwise text.

    Everything that can be checked without parameters is checked once, at creation.

    Attributes:
        ns: the namespace that the prompt belongs to, e.g. `"examples/tooling"`.
        key: identifies the prompt in its namespace.
        policies: the policies of all tools, before the policies of the sections.
        feedback: what may add advice for the model to the messages of calls, in the order in which it is shown.
        completion: when an answer of the model is accepted: a checker or a function that says what is missing, or
            `CompletionCheck` with how often the model is sent back. Always, by default.

    Raises:
        PromptValidationError: the declaration is invalid, or two sections conflict; the message names both.
    """

    ns: str
    key: str
    sections: Sequence[Section[Any]]
    name: str = ""
    resources: ResourceDeclaration = None
    policies: Sequence[ToolPolicy] = ()
    feedback: Sequence[FeedbackProvider] = ()
    completion: CompletionCheck | CompletionChecker | CompletionFunction | None = None
    output_type: type[Out] | None = field(init=False, repr=False)
    tree: tuple[PlacedSection, ...] = field(init=False, repr=False)
    params_types: tuple[type[Any], ...] = field(init=False, repr=False)
    registry: ResourceRegistry = field(init=False, repr=False)
    untrusted_tools: frozenset[str] = field(init=False, repr=False)

    if not TYPE_CHECKING:  # checkers know the brackets from `Generic`
        given_types: tuple[Any, ...] | None = field(default=None, repr=False)

        def __class_getitem__(cls, types: Any) -> TypedAlias:  # noqa: ANN401 - types, in one of their many forms
            return typed_alias(cls, types, parameters="Out")

    def __post_init__(self) -> None:
        for what, value in (("ns", self.ns), ("key", self.key)):
            _check_key(what, value)
        arguments = type_arguments(self)
        policies = tuple(check_policy(policy) for policy in self.policies)
        # `check_tree` compares across sections, so all of them are placed first.
        tree = add_sections(checked_items("sections", self.sections, Section), policies)
        check_tree(tree, policies)
        # A dict as an ordered set: parameters are compared with the types in the order of their declaration.
        kinds = dict.fromkeys(placed.section.params_type for root in tree for placed in root.walk())
        set_field = object.__setattr__
        set_field(self, "name", self.name or f"{self.ns}/{self.key}")
        set_field(self, "output_type", _checked_output(str if arguments is None else arguments[0]))
        set_field(self, "sections", tuple(self.sections))
        set_field(self, "policies", policies)
        if self.feedback != () or self.completion is not None:
            from handrail.prompt.hooks import as_completion_check, checked_providers  # noqa: PLC0415

            set_field(self, "feedback", checked_providers(self.feedback))
            set_field(self, "completion", as_completion_check(self.completion))
        set_field(self, "tree", tree)
        set_field(self, "params_types", tuple(kind for kind in kinds if kind is not None))
        usual = [placed.section.usual_resources for root in tree for placed in root.walk()]
        registry = reduce(ResourceRegistry.merge, usual, ResourceRegistry.build({}))
        set_field(self, "registry", registry.merge(section_registry(self.resources)))
        set_field(self, "untrusted_tools", _untrusted(tree))
        bound = [(placed.section.registry, f"section {placed.dotted}") for root in tree for placed in root.walk()]
        check_parameter_types(self.placed_tools(), [(self.registry, "the template"), *bound])

    @property
    def accepts(self) -> CompletionCheck | None:
        """The check of an answer; `None` to accept always."""
        return cast("CompletionCheck | None", self.completion)  # made one at creation

    def placed_sections(self) -> tuple[PlacedSection, ...]:
        """All sections with their positions, depth first."""
        return tuple(placed for root in self.tree for placed in root.walk())

    def placed_tools(self) -> tuple[PlacedTool, ...]:
        """The tools of all sections, each with the path of its section."""
        return tuple((tool, placed.path) for placed in self.placed_sections() for tool in placed.section.tools)


def _check_key(what: str, value: object) -> None:
    if not isinstance(value, str) or not re.fullmatch(_KEY, value):
        raise PromptValidationError(
            f"{what} is {value!r}; it must be 1 to 128 letters, digits, '.', '_', '/' and '-', and start with a letter "
            "or digit, e.g. 'examples/tooling'."
        )


def _checked_output(kind: object) -> object:
    if kind is None or kind is str:
        return kind
    if not is_dataclass_type(kind):
        raise PromptValidationError(
            f"PromptTemplate[{annotation_name(kind)}]: the answer is a dataclass, str, or None; write "
            "PromptTemplate[Answer] with a dataclass."
        )
    try:
        codec(kind)
    # A type without a schema is refused here and not when the first answer has to be parsed.
    except SchemaError as error:
        raise PromptValidationError(
            f"the answer {annotation_name(kind)} has no schema: {error}", dataclass=kind
        ) from error
    return kind


class PlacedSection(NamedTuple):
    """A section with its position in a prompt.

    Attributes:
        path: keys from the root section to this one.
        policies: the policies of its tools: those of the prompt, of its ancestors, its own.
    """

    section: Section[Any]
    path: tuple[str, ...]
    policies: tuple[ToolPolicy, ...]
    children: tuple[PlacedSection, ...]

    @property
    def dotted(self) -> str:
        """The path in dotted form."""
        return ".".join(self.path)

    def walk(self) -> Iterator[PlacedSection]:
        """This section and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


def _untrusted(tree: tuple[PlacedSection, ...]) -> frozenset[str]:
    sections = [below for root in tree for placed in root.walk() if placed.section.untrusted for below in placed.walk()]
    for placed in sections:
        for tool in placed.section.tools:
            if tool.sanitizes:
                raise PromptValidationError(
                    f"the section is untrusted, and its tool {tool.name} sanitizes: what a tool returns is one or the "
                    "other. Move it to another section, or mark the other tools themselves: Tool(..., untrusted=True).",
                    section_path=placed.path,
                )
    return frozenset(tool.name for placed in sections for tool in placed.section.tools)


def add_sections(
    sections: Sequence[Section[Any]], policies: tuple[ToolPolicy, ...], path: tuple[str, ...] = ()
) -> tuple[PlacedSection, ...]:
    """Places sections below `path`, with inherited `policies`."""
    placed: dict[str, PlacedSection] = {}
    for section in sections:
        # The path makes a key unique in the whole prompt, although it is unique only among siblings.
        here = (*path, section.key)
        if section.key in placed:
            raise PromptValidationError(
                f"two sibling sections have the key {section.key!r}: {placed[section.key].section.title!r} "
                f"and {section.title!r}. Give one of them another key=.",
                section_path=here,
            )
        # The outermost policy comes first: policies judge a call in this order.
        reach = (*policies, *section.policies)
        placed[section.key] = PlacedSection(section, here, reach, add_sections(section.children, reach, here))
    return tuple(placed.values())


def check_tree(tree: tuple[PlacedSection, ...], policies: tuple[ToolPolicy, ...]) -> None:
    """Refuses conflicts within the prompt: tools or policies with the same name, and policies out of place."""
    places = [placed for root in tree for placed in root.walk()]
    owners: dict[str, tuple[str, PlacedSection]] = {}
    for placed in places:
        names = [policy.name for policy in placed.policies]
        for tool in placed.section.tools:
            with locate_faults(section_path=placed.path, tool=tool.name, dataclass=tool.params_type):
                _check_names(tool.name, placed, owners)
                if twice := next((name for name in names if names.count(name) > 1), None):
                    raise PromptValidationError(
                        f"two policies of this tool have the name {twice!r}. Keep one of them, or give one another "
                        "name=."
                    )
    # Policies of the prompt apply to all tools, those of a section to its own and to those below.
    everything = frozenset(tool.name for placed in places for tool in placed.section.tools)
    for policy in policies:
        _check_reach(policy, everything, ())
    for placed in places:
        # A policy reaches the tools of its section and of those below, whether or not they are enabled.
        below = frozenset(tool.name for under in placed.walk() for tool in under.section.tools)
        for policy in placed.section.policies:
            _check_reach(policy, below, placed.path)


def _check_names(name: str, placed: PlacedSection, owners: dict[str, tuple[str, PlacedSection]]) -> None:
    # Models and people confuse two names that differ in case only.
    if (other := owners.get(name.lower())) is not None:
        raise PromptValidationError(
            f"two tools have this name{'' if other[0] == name else ', but for its case'}: in section "
            f"{other[1].dotted} and in section {placed.dotted}. The model calls tools by name, so rename one of them."
        )
    owners[name.lower()] = name, placed


def _check_reach(policy: ToolPolicy, tool_names: frozenset[str], path: tuple[str, ...]) -> None:
    scope_fault: Callable[[frozenset[str]], str | None] = getattr(policy, "scope_fault", lambda _: None)
    if (fault := scope_fault(tool_names)) is not None:
        raise PromptValidationError(f"policy {policy.name}: {fault}", section_path=path)
