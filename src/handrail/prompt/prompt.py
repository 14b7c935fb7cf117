"""A prompt with its parameters and resources: what a run is started with."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Generic

from handrail.errors import PromptValidationError
from handrail.errors.mistakes import check_argument
from handrail.prompt.render import RenderedPrompt, enabled_sections, render_template
from handrail.prompt.section import registry_of
from handrail.prompt.template import Out, PromptTemplate
from handrail.prompt.type_parameters import name_of
from handrail.resources import ResourceContext, ResourceRegistry


class Prompt(Generic[Out]):
    """A template with what was bound to it. Binding makes another prompt; only `resources` has a state.

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
        """Make a prompt of a template; `Prompt(template).bind(...)` reads better than the keywords.

        Raises:
            InvalidArgumentError: `template` is not a `PromptTemplate`.
            PromptValidationError: as for `bind`.
        """
        expected = "a PromptTemplate: PromptTemplate[Answer](ns=..., key=..., sections=[...])"
        check_argument("Prompt", "template", template, PromptTemplate, expected)
        self.template = template
        self._params = _by_type(template, params)
        self._registry = registry_of(resources)
        self._lock = threading.RLock()
        self._resources: ResourceContext | None = None

    def __repr__(self) -> str:
        return f"Prompt({self.name!r})"

    @property
    def name(self) -> str:
        """What the prompt is called in logs and events."""
        return self.template.name

    @property
    def resources(self) -> ResourceContext:
        """The resources that all calls of this prompt share; always the same object for one prompt.

        Those of the template give way to those of the enabled sections, depth first, and these to the bound ones.

        Raises:
            PromptRenderError: a section whose `enabled` is a function lacks its parameters.
        """
        if self._resources is None:
            with self._lock:
                if self._resources is None:  # pragma: no branch - unless another thread was faster
                    self._resources = self._merged().open()
        return self._resources

    def bind(
        self, *params: object, resources: ResourceRegistry | Mapping[type[Any], object] | None = None
    ) -> Prompt[Out]:
        """A prompt with these parameters and resources beside those bound already; of one type, the later ones win.

        Args:
            params: an instance of each parameter type that sections need.
            resources: instances or `Binding`s by type, or a registry.

        Raises:
            PromptValidationError: something is no instance of a parameter type of the sections, or two are of one type.
        """
        return Prompt(
            self.template,
            params=tuple((self._params | _by_type(self.template, params)).values()),
            resources=self._registry.merge(registry_of(resources)),
        )

    def render(self) -> RenderedPrompt[Out]:
        """The prompt as a model gets it.

        Raises:
            PromptRenderError: an enabled section lacks its parameters, or failed to say what it has to say.
        """
        return render_template(self.template, self._params)

    def _merged(self) -> ResourceRegistry:
        merged = self.template.registry
        for enabled in enabled_sections(self.template.tree, self._params):
            merged = merged.merge(enabled.placed.section.registry)
        return merged.merge(self._registry)


def _by_type(template: PromptTemplate[Any], params: Sequence[object]) -> dict[type[Any], object]:
    """The parameters by the type under which the sections know them."""
    bound: dict[type[Any], object] = {}
    for given in params:
        kind = _known_type(template, given)
        if kind in bound:
            raise PromptValidationError(
                f"two of the parameters are {name_of(kind)}; bind one, which all sections of that type share.",
                dataclass=kind,
            )
        bound[kind] = given
    return bound


def _known_type(template: PromptTemplate[Any], given: object) -> type[Any]:
    known = template.params_types
    if type(given) in known:
        return type(given)
    for kind in known:
        if isinstance(given, kind):
            return kind
    names = ", ".join(name_of(kind) for kind in known) or "no parameters"
    told = f"the class {name_of(given)} itself" if isinstance(given, type) else f"an instance of {name_of(type(given))}"
    raise PromptValidationError(
        f"{told} was bound, but the sections of {template.name} take {f'instances of {names}' if known else names}.",
        dataclass=type(given) if dataclasses.is_dataclass(given) else None,
    )
