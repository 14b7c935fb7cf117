"""A prompt as it is declared: sections, and the type of the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar  # pydantic brings it; `typing` knows no defaults before Python 3.13

from handrail.errors import PromptValidationError, SchemaError
from handrail.prompt.policies.policy import ToolPolicy, check_policy
from handrail.prompt.section import Section, registry_of
from handrail.prompt.tree import PlacedSection, check_tree, place
from handrail.prompt.type_parameters import Subscripted, arguments_of, is_dataclass_type, name_of, subscript
from handrail.resources import ResourceRegistry
from handrail.serde import codec

Out = TypeVar("Out", default=str)

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptTemplate(Generic[Out]):
    """A prompt without its parameters. The answer to `PromptTemplate[Answer](...)` is a dataclass, otherwise text.

    Everything that can be checked without parameters is checked here, once.

    Attributes:
        ns: the namespace that the prompt belongs to, e.g. `"examples/tooling"`.
        key: names the prompt in its namespace.
        sections: the root sections, in the order in which they are rendered.
        name: what the prompt is called in logs and events; `ns/key` if nothing is given.
        resources: what the tools need, as `Prompt.bind` takes it; sections and `bind` take precedence.
        policies: what judges the calls of all tools, before the policies of the sections.
        output_type: the type in the brackets: a dataclass, `str`, or `None` for an answer that nobody reads.
        tree: the sections in their places.
        params_types: the parameter types of all sections.

    Raises:
        PromptValidationError: something is declared wrongly, or clashes; the message names both sections that do.
    """

    ns: str
    key: str
    sections: Sequence[Section[Any]]
    name: str = ""
    resources: ResourceRegistry | Mapping[type[Any], object] | None = None
    policies: Sequence[ToolPolicy] = ()
    output_type: type[Out] | None = field(init=False, repr=False)
    tree: tuple[PlacedSection, ...] = field(init=False, repr=False)
    params_types: tuple[type[Any], ...] = field(init=False, repr=False)
    registry: ResourceRegistry = field(init=False, repr=False)

    if not TYPE_CHECKING:  # pragma: no branch - checkers know the brackets from `Generic`
        given_types: tuple[Any, ...] | None = field(default=None, repr=False)

        def __class_getitem__(cls, types: Any) -> Subscripted:  # noqa: ANN401 - types, in one of their many forms
            return subscript(cls, types, wanted="Out")

    def __post_init__(self) -> None:
        for what, value in (("ns", self.ns), ("key", self.key)):
            _check_key(what, value)
        arguments = arguments_of(self)
        policies = tuple(check_policy(policy) for policy in self.policies)
        tree = place(_checked_sections(self.sections), policies)
        check_tree(tree, policies)
        kinds = dict.fromkeys(placed.section.params_type for root in tree for placed in root.walk())
        set_field = object.__setattr__
        set_field(self, "name", self.name or f"{self.ns}/{self.key}")
        set_field(self, "output_type", _checked_output(str if arguments is None else arguments[0]))
        set_field(self, "sections", tuple(self.sections))
        set_field(self, "policies", policies)
        set_field(self, "tree", tree)
        set_field(self, "params_types", tuple(kind for kind in kinds if kind is not None))
        set_field(self, "registry", registry_of(self.resources))


def _check_key(what: str, value: object) -> None:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise PromptValidationError(
            f"{what} is {value!r}; it must be 1 to 128 letters, digits, '.', '_', '/' and '-', and start with a letter "
            "or digit, e.g. 'examples/tooling'."
        )


def _checked_sections(sections: object) -> Sequence[Section[Any]]:
    if not isinstance(sections, Sequence) or isinstance(sections, str):
        raise PromptValidationError(f"sections is a {type(sections).__name__}; write sections=[...].")
    for item in cast("Sequence[object]", sections):
        if not isinstance(item, Section):
            raise PromptValidationError(f"sections holds {item!r}, which is no Section.")
    return cast("Sequence[Section[Any]]", sections)


def _checked_output(kind: object) -> object:
    """The type of the answer, if it is one."""
    if kind is None or kind is str:
        return kind
    if not is_dataclass_type(kind):
        raise PromptValidationError(
            f"PromptTemplate[{name_of(kind)}]: the answer is a dataclass, str, or None; write PromptTemplate[Answer] "
            "with a dataclass."
        )
    try:
        codec(kind)
    except SchemaError as error:
        raise PromptValidationError(f"the answer {name_of(kind)} has no schema: {error}", dataclass=kind) from error
    return kind
