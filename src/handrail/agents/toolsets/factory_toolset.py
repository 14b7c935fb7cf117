"""A toolset that a factory makes for each run, or for each step of a run.

PydanticAI has `DynamicToolset` for this. Ours differs in what it does with what the factory returned:

- what is not a toolset is refused when it is returned, before anything is entered, with the names of toolset and
  factory;
- the toolset is asked for its own toolset of the run (`for_run`) and of each step (`for_run_step`), so that a dynamic
  toolset shows its tools wherever it stands: returned as it is, among others, under a prefix;
- a section becomes a toolset of the current run.

One object is one run: `for_run` returns another, so runs side by side share nothing but the factory. What the object
has entered it leaves, once, whatever happens in between: a new product takes the place of the old one only when the old
one was left and the new one entered, and no product is left that was not entered.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeGuard, cast

from pydantic_ai import RunContext, ToolsetTool
from pydantic_ai.messages import InstructionPart
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.active_run import current_run
from handrail.agents.exports.entries import FactoryProduct, Kind, Origin, ToolsetFactory
from handrail.errors import AgentError, FactoryError
from handrail.prompt import Section


class FactoryToolset(AbstractToolset[Any]):
    """The toolset that a factory makes when a run begins, or at every step of it.

    Attributes:
        factory: what makes it, and how often.
        name: what the factory is registered as; the id of the toolset.
        origin: where the factory comes from.
        kind: the namespace of the name: a tool may need a toolset that is made, too.
        has_made: whether the factory has made what this run has; that may be nothing.
    """

    def __init__(self, factory: ToolsetFactory, *, name: str, origin: Origin, kind: Kind = "toolset") -> None:
        """Call no factory yet."""
        self.factory = factory
        self.name = name
        self.origin = origin
        self.kind: Kind = kind
        self.has_made: bool = False
        self._raw: FactoryProduct = None  # what the factory returned last: the same object again is not entered again
        self._current: AbstractToolset[Any] | None = None  # what shows its tools
        self._entered: AbstractToolset[Any] | None = None  # what has to be left; steps may put another one in its place

    @property
    @override
    def id(self) -> str:
        """The name under which the factory is registered."""
        return self.name

    @property
    @override
    def label(self) -> str:
        """In words, for messages: `toolset files (built-in)`."""
        return f"{self.kind} {self.name} ({self.origin})"

    @property
    def product(self) -> AbstractToolset[Any] | None:
        """What shows the tools at present; `None` if nothing was made."""
        return self._current

    @override
    async def for_run(self, ctx: RunContext[Any]) -> FactoryToolset:
        """The toolset of one run; unless the factory is for each step, it is called here.

        Raises:
            FactoryError: the factory made something that is not a toolset.
            Exception: what the factory raises, with a note that names it.
        """
        new = FactoryToolset(self.factory, name=self.name, origin=self.origin, kind=self.kind)
        # A factory for each step is called in `for_run_step`, which PydanticAI calls before it asks for tools.
        if not self.factory.per_run_step:
            new._raw = await new._made(ctx)
            new._current = await new._product(new._raw, ctx)
            new.has_made = True
        return new

    @override
    async def for_run_step(self, ctx: RunContext[Any]) -> FactoryToolset:
        """The same object; a factory for each step has been called, and another product has taken the old one's place.

        Raises:
            FactoryError: the factory made something that is not a toolset; the old product is still there.
            Exception: what the factory, the old product's exit, or the new one's entry raises.
        """
        if self.factory.per_run_step:
            raw = await self._made(ctx)
            # Entering the same object again would open it twice, and it is left only once.
            if raw is not self._raw:
                await self._replace_by(raw, ctx)
            self.has_made = True
        # After a replacement too: the new product has not seen this step yet.
        if self._current is not None:
            self._current = await self._current.for_run_step(ctx)
        return self

    @override
    async def __aenter__(self) -> Self:
        await self._enter(self._current)
        return self

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        # Cleared before the exit is awaited: if it raises, a second exit must not leave the product again.
        entered, self._entered, self._current, self._raw = self._entered, None, None, None
        return None if entered is None else await entered.__aexit__(*args)

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of what was made; none if it was `None`."""
        return {} if self._current is None else await self._current.get_tools(ctx)

    @override
    async def get_instructions(
        self, ctx: RunContext[Any]
    ) -> str | InstructionPart | Sequence[str | InstructionPart] | None:
        """The instructions of what was made."""
        return None if self._current is None else await self._current.get_instructions(ctx)

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Have what was made call one of its tools.

        Raises:
            AgentError: nothing was made, so the tool does not exist.
        """
        if self._current is None:
            raise AgentError(f"{self.label} has no tools at this step, so {name} cannot be called.")
        return await self._current.call_tool(name, tool_args, ctx, tool)

    @override
    def apply(self, visitor: Callable[[AbstractToolset[Any]], None]) -> None:
        """Show what was made to the visitor; itself, as long as nothing was."""
        if self._current is None:
            visitor(self)
        else:
            self._current.apply(visitor)

    async def _replace_by(self, raw: FactoryProduct, ctx: RunContext[Any]) -> None:
        # Made first: if that fails, the old product is still entered and remains in use.
        product = await self._product(raw, ctx)
        # The old product is left before the new one is entered, because both may use the same port or file.
        await self.__aexit__(None, None, None)
        await self._enter(product)
        self._raw, self._current = raw, product

    async def _enter(self, product: AbstractToolset[Any] | None) -> None:
        if product is not None:
            await product.__aenter__()
            # Only after a successful entry, so that a product that was not entered is never left.
            self._entered = product

    async def _made(self, ctx: RunContext[Any]) -> FactoryProduct:
        """What the factory returns this time."""
        try:
            given = cast("object", self.factory.function(ctx))  # whatever the user's function returns
            # By what was returned, because a plain function may return the coroutine of another one.
            made = cast("object", await given) if inspect.isawaitable(given) else given
        except Exception as error:
            self._note(error)
            raise
        if not _can_be_used(made):
            raise self._refusal(made)
        return made

    async def _product(self, raw: FactoryProduct, ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        """The toolset of this run for what the factory returned."""
        if raw is None:
            return None
        try:
            # A section becomes a toolset here and not at registration, because its tools need the session of this run.
            toolset = raw if isinstance(raw, AbstractToolset) else current_run().section_toolset(raw, id=self.name)
            return await toolset.for_run(ctx)
        except Exception as error:
            self._note(error)
            raise

    def _refusal(self, made: object) -> FactoryError:
        kind = type(made)
        if inspect.iscoroutine(made):
            made.close()  # else Python warns, some time later, that it was not awaited
        message = f"{self.label}: the factory {self.factory.qualname} {_returned(made)}"
        return FactoryError(message, toolset=self.name, returned=kind)

    def _note(self, error: Exception) -> None:
        by = "" if self.factory.is_built_in else f" by the factory {self.factory.qualname}"
        error.add_note(f"{self.label} was being made{by}.")


def _can_be_used(made: object) -> TypeGuard[FactoryProduct]:
    return made is None or isinstance(made, (AbstractToolset, Section))


def _returned(made: object) -> str:
    """What a factory returned that is not a toolset, and what would be right."""
    if isinstance(made, type):
        return f"returned the class {made.__qualname__}, of type {type(made).__qualname__}; return an instance."
    if inspect.iscoroutine(made):
        return "returned a coroutine that it did not await; await it in the factory."
    return (
        f"returned an object of type {type(made).__qualname__}; "
        "a factory returns a toolset, a section, or None for no tools."
    )
