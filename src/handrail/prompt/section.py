"""The sections of a prompt: a heading, a text, and the tools, policies and resources that belong to it.

The text of a `MarkdownSection` is a template with placeholders `${name}`, checked once against a dataclass.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import isfunction
from textwrap import dedent
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, cast

from typing_extensions import TypeVar  # a dependency of pydantic; `typing` has no defaults before Python 3.13

from handrail.errors import PromptValidationError
from handrail.prompt.context import ToolContext
from handrail.prompt.signature import (
    TypedAlias,
    annotation_name,
    calling_fault,
    is_async,
    is_dataclass_type,
    type_arguments,
    typed_alias,
)
from handrail.prompt.tool_declaration import check_flags, locate_faults
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.resources import ResourceRegistry
from handrail.serde import dump

if TYPE_CHECKING:
    from handrail.prompt.policy import ToolPolicy

ParamsT = TypeVar("ParamsT", default=None)

ResourceDeclaration: TypeAlias = ResourceRegistry | Mapping[type[Any], object] | None
"""Bindings as they are declared: a registry, or instances and `Binding`s by type."""

# Without dots, because the path of a section is written as keys joined by dots.
_KEY = r"[a-z0-9][a-z0-9_-]{0,63}"

# A placeholder that is not closed matches too, with an empty last group, so that it is refused and not sent to the
# model as text.
_PLACEHOLDER = r"\$\$\{|\$\{([^}]*)(\}?)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Section(Generic[ParamsT]):
    """A part of a prompt. `Section[Params](...)` has parameters, which `Prompt.bind` supplies; `Section(...)` has none.

    A `Section` is a heading with tools and children; a subclass adds a text by `render_body`. A suite is a subclass
    with its own tools: it calls `super().__init__(title=..., tools=..., ...)`.

    Attributes:
        key: identifies the section in its parent: `^[a-z0-9][a-z0-9_-]{0,63}$`. Derived from the title by default.
        enabled: whether the section is rendered: a boolean, or a function of the section's parameters, called at each
            rendering. A disabled section disables all below it: text, tools, policies, resources.
        summary: what stands in the place of the text while the section is closed, with placeholders as a template has
            them; `None` for a section that cannot be closed. A closed section has none of the tools and sections below
            it, and the text says how the model opens it; its resources stay bound.
        accepts_overrides: whether its text and summary may be replaced by overrides; its tools say it for themselves.
        untrusted: whether third parties write what its tools, and those of the sections below, return; as
            `Tool.untrusted` of each of them.
        params_type: the dataclass in the brackets; `None` if there is none.
        usual_resources: what a suite brings that the prompt need not bind; whatever else binds a type overrides it.
        live: whether its tools may become others, as those of a server; a run then renders its prompt again.

    Raises:
        PromptValidationError: the declaration is invalid; the message states the fault and the correct form.
    """

    live: ClassVar[bool] = False

    title: str
    key: str = ""
    tools: Sequence[Tool[Any, Any]] = ()
    policies: Sequence[ToolPolicy] = ()
    children: Sequence[Section[Any]] = ()
    enabled: bool | Callable[[ParamsT], bool] = True
    resources: ResourceDeclaration = None
    summary: str | None = None
    accepts_overrides: bool = True
    untrusted: bool = False
    params_type: type[ParamsT] | None = field(init=False, repr=False)
    registry: ResourceRegistry = field(init=False, repr=False)
    usual_resources: ResourceRegistry = field(init=False, repr=False)
    summary_text: str | None = field(init=False, repr=False)
    body_text: str = field(init=False, repr=False)

    if not TYPE_CHECKING:  # checkers know the brackets from `Generic`
        given_types: tuple[Any, ...] | None = field(default=None, repr=False)

        def __class_getitem__(cls, types: Any) -> TypedAlias:  # noqa: ANN401 - types, in one of their many forms
            return typed_alias(cls, types, parameters="Params")

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "title", _checked_title(self.title))
        # Before the fields below: the errors of their checks name the section by its key.
        set_field(self, "key", _checked_key(self.key or _slug(self.title), self.title))
        with locate_faults(section_path=(self.key,)):
            set_field(self, "params_type", self._checked_params_type())
            set_field(self, "tools", checked_items("tools", self.tools, Tool))
            set_field(self, "children", checked_items("children", self.children, Section))
            policies = checked_items("policies", self.policies, object)
            set_field(self, "policies", tuple(map(check_policy, policies)))
            set_field(self, "registry", section_registry(self.resources))
            set_field(self, "usual_resources", ResourceRegistry.build({}))
            set_field(self, "summary_text", self._checked_summary())
            check_flags(vars(self), "accepts_overrides", "untrusted")
            set_field(self, "body_text", checked_template(self.body_template(), self.params_type))

    def is_claim(self, tool: str) -> bool:  # noqa: ARG002 - for sections whose tools third parties declare
        """True if only a third party says that a tool has no effect; without a rule, its calls are asked about."""
        return False

    def body_template(self) -> str:
        """The template of the text below the heading; empty for none."""
        return ""

    def render_body(self, params: ParamsT) -> str:
        """The text below the heading; empty for none. `params` are the bound parameters, or `None` without any."""
        return fill_template(self.body_text, params)

    def _checked_params_type(self) -> type[Any] | None:
        arguments = type_arguments(self)
        kind = None if arguments is None else arguments[0]
        if kind is not None and not is_dataclass_type(kind):
            raise PromptValidationError(
                f"{annotation_name(kind)} cannot be the parameters of a section; write "
                f"{type(self).__name__}[Params](...) with a dataclass."
            )
        return kind

    def _checked_summary(self) -> str | None:
        if self.summary is None:
            return None
        if text := checked_template(self.summary, self.params_type, what="summary"):
            return text
        raise PromptValidationError("the summary is empty; the model decides by it whether to open the section.")


def checked_items(name: str, items: object, kind: type[object]) -> tuple[Any, ...]:
    """Checks that a field is a sequence of items of one kind."""
    # An iterator is refused too: the fields of a section are read more than once.
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise PromptValidationError(f"{name} is of type {type(items).__name__}; write {name}=[...].")
    for item in cast("Sequence[object]", items):
        if not isinstance(item, kind):
            cure = "; write @tool above the function and its decorators" if isfunction(item) else ""
            raise PromptValidationError(f"{name} holds {item!r}, which is not a {kind.__name__}{cure}.")
    return tuple(cast("Sequence[object]", items))


def check_policy(policy: object) -> ToolPolicy:
    """Checks a policy."""
    kind = type(policy).__name__
    name = getattr(policy, "name", None)
    # A class may have all three attributes, but its `check` would take the tool as `self`.
    if isinstance(policy, type) or not isinstance(name, str) or not name.strip():
        raise PromptValidationError(
            f"{policy!r} is not a policy, because it has no name: a policy is an object with a `name` (a string), "
            "`check(tool, params, *, context)` and `on_result(tool, params, result, *, context)`."
        )
    for method, positional in (("check", (Tool, Any)), ("on_result", (Tool, Any, ToolResult))):
        function = getattr(policy, method, None)
        if not callable(function):
            raise PromptValidationError(f"policy {name} ({kind}) has no method {method}; see ToolPolicy.")
        fault = calling_fault(function, positional, {"context": ToolContext})
        # Nothing awaits a policy, so its coroutine would be taken for a decision that is invalid.
        if fault is None and is_async(function):
            fault = "is asynchronous, but policies are synchronous; await in the handler"
        if fault is not None:
            raise PromptValidationError(f"policy {name} ({kind}): {method} {fault}. See ToolPolicy.")
    return cast("ToolPolicy", policy)  # checked above


def section_registry(resources: ResourceDeclaration) -> ResourceRegistry:
    """Resources in any of their declared forms, as one registry."""
    return resources if isinstance(resources, ResourceRegistry) else ResourceRegistry.build(resources or {})


def _checked_title(title: object) -> str:
    if not isinstance(title, str) or not title.strip() or len(title.splitlines()) != 1:
        raise PromptValidationError(f"the title {title!r} is not a heading; a title is one line of text.")
    return title.strip()


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:64]


def _checked_key(key: object, title: str) -> str:
    if not isinstance(key, str) or not re.fullmatch(_KEY, key):
        raise PromptValidationError(
            f"the section {title!r} has the key {key!r}; a key is 1 to 64 lower-case letters, digits, '_' and '-', and "
            f"starts with a letter or digit, e.g. key={_slug(title) or 'guidance'!r}."
        )
    return key


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkdownSection(Section[ParamsT]):
    """A section with a text. `MarkdownSection[Params](...)` if the text has placeholders.

    Attributes:
        template: Markdown, dedented; `${name}` is a field of the parameters, `$${` is a literal `${`.

    Raises:
        PromptValidationError: a placeholder is not a field of the parameters.
    """

    template: str

    def body_template(self) -> str:
        """The template."""
        return self.template


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolsSection(Section[ParamsT]):
    """A section for tools: a heading, and an optional description. It does not list the tools.

    The adapter sends the tools to the model, with their schemas.

    Attributes:
        description: Markdown with placeholders, as the template of a `MarkdownSection`; `None` for none.
    """

    description: str | None = None

    def body_template(self) -> str:
        """The description."""
        return self.description or ""


def plain_text(template: str) -> str:
    """A template without common indentation and blank lines around it."""
    # Before the parsing, so that the indentation of values is not changed.
    return dedent(template).strip()


def checked_template(template: object, params_type: type[Any] | None, *, what: str = "template") -> str:
    """A template, dedented, once its placeholders are checked against the fields of the parameters.

    `${name}` is a field of the parameters; `$${` is a literal `${`; any other dollar sign is literal.
    """
    if not isinstance(template, str):
        raise PromptValidationError(f"the {what} is of type {type(template).__name__}; it must be a string.")
    text = plain_text(template)
    for match in re.finditer(_PLACEHOLDER, text):
        if match[0] == "$${":
            continue
        if not match[2]:
            raise PromptValidationError(f"{match[0][:40]!r} is not closed; write ${{name}}, or $${{ for a plain ${{.")
        _check_name(match[1], params_type)
    return text


def fill_template(text: str, params: object) -> str:
    """A checked template with the values of the parameters for its placeholders; values are not parsed again."""

    def value(match: re.Match[str]) -> str:
        return "${" if match[0] == "$${" else _format_value(getattr(params, match[1]))

    return re.sub(_PLACEHOLDER, value, text)


def _check_name(name: str, params_type: type[Any] | None) -> None:
    if params_type is None:
        raise PromptValidationError(
            f"the template has the placeholder ${{{name}}}, but the section has no parameters. Write "
            f"MarkdownSection[Params](...) with a dataclass that has a field {name or '...'}, or $${{ for a plain ${{."
        )
    fields = [field.name for field in dataclasses.fields(params_type)]
    if name not in fields:
        raise PromptValidationError(
            f"the template has the placeholder ${{{name}}}, but {annotation_name(params_type)} has no such field, only "
            f"{', '.join(fields) or 'none at all'}.",
            dataclass=params_type,
        )


def _format_value(value: object) -> str:
    # `str` of a member is `Color.RED`, which is not a word for the model.
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping | Sequence | frozenset | set) or dataclasses.is_dataclass(value):
        # Not as ASCII: escapes would cost the model several tokens for each character.
        return json.dumps(dump(cast("object", value)), ensure_ascii=False)
    return str(value)
