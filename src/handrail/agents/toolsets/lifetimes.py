"""The toolset that a factory makes for each run or step.

PydanticAI has `DynamicToolset` for factories. `FactoryToolset` differs: a product that is not a toolset is refused
before it is entered, with the names of toolset and factory; the product is asked for its own toolset of the run and of
each step, so that a dynamic toolset shows its tools wherever it stands; a section becomes a toolset of the current run.

`for_run` returns another object, so runs side by side share only the factory. Each product that was entered is left
once, and no other: a new one takes its place when the old one was left and the new one entered.
"""

from __future__ import annotations

import inspect
from typing import Any, Self, cast

from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.active_run import current_run
from handrail.agents.registry import BUILT_IN, Entry, FactoryProduct, ToolsetFactory
from handrail.errors import FactoryError
from handrail.prompt import Section

_NO_TOOLS = FunctionToolset[Any]()


class FactoryToolset(WrapperToolset[Any]):
    """The toolset that a factory makes when a run begins, or at every step of it.

    `wrapped` is the product; a toolset without tools before there is one, or if it is `None`.
    """

    wrapped: AbstractToolset[Any]

    def __init__(self, factory: ToolsetFactory, entry: Entry) -> None:
        """Stands for the product; the factory is not called yet. `entry` is what it makes the toolset of."""
        super().__init__(_NO_TOOLS)
        self.factory = factory
        self.entry = entry
        self._raw: FactoryProduct = None  # its last product: the same object again is not entered again
        self._entered: AbstractToolset[Any] | None = None  # the toolset that has to be left; steps may replace it

    @property
    @override
    def id(self) -> str:
        """The name under which the factory is registered."""
        return self.entry.name

    @property
    @override
    def label(self) -> str:
        """In words, for messages: `toolset files (built-in)`."""
        return self.entry.label

    @override
    async def for_run(self, ctx: RunContext[Any]) -> FactoryToolset:
        """The toolset of one run; unless the factory is for each step, it is called here.

        Raises:
            FactoryError: its product is not a toolset. Other errors of the factory get a note that names it.
        """
        new = FactoryToolset(self.factory, self.entry)
        # A factory for each step is called in `for_run_step`, which PydanticAI calls before it asks for tools.
        if not self.factory.per_run_step:
            new._raw = await new._call_factory(ctx)
            new.wrapped = await new._product(new._raw, ctx)
        return new

    @override
    async def for_run_step(self, ctx: RunContext[Any]) -> FactoryToolset:
        """The same object; a factory for each step has been called, and its product is entered in place of the old one.

        Raises:
            FactoryError: the product is not a toolset; the old one is still there.
        """
        if self.factory.per_run_step:
            raw = await self._call_factory(ctx)
            # Entering the same object again would open it twice, and it is left only once.
            if raw is not self._raw:
                # Made first: if that fails, the old product is still entered and remains in use.
                product = await self._product(raw, ctx)
                # The old product is left before the new one is entered: both may use the same port or file.
                await self.__aexit__(None, None, None)
                await product.__aenter__()
                self._raw, self.wrapped, self._entered = raw, product, product
        # After a replacement too: the new product has not seen this step yet.
        self.wrapped = await self.wrapped.for_run_step(ctx)
        return self

    @override
    async def __aenter__(self) -> Self:
        await self.wrapped.__aenter__()
        # Only after a successful entry, so that a product that was not entered is never left.
        self._entered = self.wrapped
        return self

    @override
    async def __aexit__(self, *args: Any) -> bool | None:  # noqa: PYI036 - as PydanticAI declares it
        # Cleared before the exit is awaited: if it raises, a second exit must not leave the product again.
        entered, self._entered, self.wrapped, self._raw = self._entered, None, _NO_TOOLS, None
        return None if entered is None else await entered.__aexit__(*args)

    async def _call_factory(self, ctx: RunContext[Any]) -> FactoryProduct:
        try:
            result = cast("object", self.factory.function(ctx))  # the user's function may return anything
            # By the value, because a plain function may return the coroutine of another one.
            product = cast("object", await result) if inspect.isawaitable(result) else result
        except Exception as error:
            self._add_note(error)
            raise
        if product is None or isinstance(product, (AbstractToolset, Section)):
            return product  # pyright: ignore[reportUnknownVariableType] - of any dependencies and parameters
        message = (
            f"{self.label}: the factory {self.factory.qualname} returned an object of type "
            f"{type(product).__qualname__}; a factory returns a toolset, a section, or None for no tools."
        )
        raise FactoryError(message, toolset=self.entry.name, value_type=type(product))

    async def _product(self, raw: FactoryProduct, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        if raw is None:
            return _NO_TOOLS
        try:
            # A section becomes a toolset here and not at registration, because its tools need the session of this run.
            if isinstance(raw, Section):
                raw = current_run().section_toolset(raw, id=self.entry.name)
            return await raw.for_run(ctx)
        except Exception as error:
            self._add_note(error)
            raise

    def _add_note(self, error: Exception) -> None:
        by = "" if self.entry.origin == BUILT_IN else f" by the factory {self.factory.qualname}"
        error.add_note(f"{self.label} was being made{by}.")
