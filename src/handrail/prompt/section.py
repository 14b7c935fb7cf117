"""What a section of a prompt is: a heading, a text, and the tools, policies and resources that belong to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar  # pydantic brings it; `typing` knows no defaults before Python 3.13

from handrail.errors import PromptValidationError
from handrail.prompt.policies.policy import ToolPolicy, check_policy
from handrail.prompt.signature import calling_fault, is_async
from handrail.prompt.tool_definition import Tool
from handrail.prompt.type_parameters import Subscripted, arguments_of, is_dataclass_type, name_of, subscript
from handrail.resources import ResourceRegistry

ParamsT = TypeVar("ParamsT", default=None)

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Section(Generic[ParamsT]):
    """A part of a prompt. `Section[Params](...)` has parameters, which `Prompt.bind` supplies; `Section(...)` has none.

    On its own it is a heading with tools and children; a subclass gives it a text by `render_body`. A suite is a
    subclass that brings its own tools: it calls `super().__init__(title=..., tools=..., ...)`.

    Attributes:
        title: the heading, one line.
        key: names the section in its parent: `^[a-z0-9][a-z0-9_-]{0,63}$`. Made from the title if none is given.
        tools: what the model may call while the section is enabled.
        policies: what judges the calls of these tools and of those in the sections below.
        children: the sections below this one.
        enabled: whether the section is there: a boolean, or a function of the section's parameters, asked at each
            rendering. A section that is not takes all below it along: text, tools, policies, resources.
        resources: what the tools need, as `Prompt.bind` takes it.
        params_type: the dataclass in the brackets; `None` without.
        registry: the same as `resources`, as one registry.

    Raises:
        PromptValidationError: something is declared wrongly; the message says what, and what would be right.
    """

    title: str
    key: str = ""
    tools: Sequence[Tool[Any, Any]] = ()
    policies: Sequence[ToolPolicy] = ()
    children: Sequence[Section[Any]] = ()
    enabled: bool | Callable[[ParamsT], bool] = True
    resources: ResourceRegistry | Mapping[type[Any], object] | None = None
    params_type: type[ParamsT] | None = field(init=False, repr=False)
    registry: ResourceRegistry = field(init=False, repr=False)

    if not TYPE_CHECKING:  # pragma: no branch - checkers know the brackets from `Generic`
        given_types: tuple[Any, ...] | None = field(default=None, repr=False)

        def __class_getitem__(cls, types: Any) -> Subscripted:  # noqa: ANN401 - types, in one of their many forms
            return subscript(cls, types, wanted="Params")

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "title", _checked_title(self.title))
        set_field(self, "key", _checked_key(self.key or _slug(self.title), self.title))
        set_field(self, "params_type", self._checked_params_type())
        set_field(self, "tools", self._checked("tools", self.tools, Tool))
        set_field(self, "children", self._checked("children", self.children, Section))
        set_field(self, "policies", self._checked_policies())
        set_field(self, "registry", registry_of(self.resources))
        self._check_enabled()

    def render_body(self, params: ParamsT) -> str:  # noqa: ARG002 - subclasses use it
        """The text below the heading; empty for none.

        Args:
            params: the bound parameters, or `None` for a section without.
        """
        return ""

    def _checked_params_type(self) -> type[Any] | None:
        arguments = arguments_of(self)
        kind = None if arguments is None else arguments[0]
        if kind is not None and not is_dataclass_type(kind):
            raise PromptValidationError(
                f"{name_of(kind)} cannot be the parameters of a section; write {type(self).__name__}[Params](...) with "
                "a dataclass.",
                section_path=(self.key,),
            )
        return kind

    def _checked(self, name: str, given: object, kind: type[object]) -> tuple[object, ...]:
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise PromptValidationError(
                f"{name} is a {type(given).__name__}; write {name}=[...].", section_path=(self.key,)
            )
        for item in cast("Sequence[object]", given):
            if not isinstance(item, kind):
                raise PromptValidationError(
                    f"{name} holds {item!r}, which is no {kind.__name__}.", section_path=(self.key,)
                )
        return tuple(cast("Sequence[object]", given))

    def _checked_policies(self) -> tuple[ToolPolicy, ...]:
        try:
            return tuple(check_policy(policy) for policy in self._checked("policies", self.policies, object))
        except PromptValidationError as error:
            if error.section_path:
                raise
            raise PromptValidationError(str(error), section_path=(self.key,)) from None

    def _check_enabled(self) -> None:
        enabled: object = self.enabled
        if isinstance(enabled, bool):
            return
        fault = "is neither a boolean nor a function" if not callable(enabled) else None
        if fault is None:
            function = cast("Callable[..., object]", enabled)
            fault = calling_fault(function, (self.params_type,), {})
            if fault is None and is_async(function):
                fault = "is asynchronous, but a prompt is rendered at once"
        if fault is not None:
            raise PromptValidationError(
                f"enabled {fault}. Write True, False, or a function of the section's parameters: "
                f"enabled=lambda params: ... (it is called with {name_of(self.params_type)}).",
                section_path=(self.key,),
                dataclass=self.params_type,
            )


def registry_of(resources: ResourceRegistry | Mapping[type[Any], object] | None) -> ResourceRegistry:
    """Resources in any of the forms in which they are declared, as one registry."""
    return resources if isinstance(resources, ResourceRegistry) else ResourceRegistry.build(resources or {})


def _checked_title(title: object) -> str:
    if not isinstance(title, str) or not title.strip() or len(title.splitlines()) != 1:
        raise PromptValidationError(f"the title {title!r} is no heading; a title is one line of text.")
    return title.strip()


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:64]


def _checked_key(key: object, title: str) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise PromptValidationError(
            f"the section {title!r} has the key {key!r}; a key is 1 to 64 lower-case letters, digits, '_' and '-', and "
            f"starts with a letter or digit, e.g. key={_slug(title) or 'guidance'!r}."
        )
    return key
