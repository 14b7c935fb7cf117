"""Views of participants: what a handler is given in place of a participant, so that its writes belong to its call."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Protocol, Self, TypeVar, cast

from handrail.transaction.transaction import Transaction

T = TypeVar("T")


class HasCallViews(Protocol):
    """A participant of which a handler gets a view that is bound to its call.

    `context.resources` looks for the method on the class of a resource when a handler first asks for it.
    """

    def view_for_call(self, call: Transaction, /) -> Self:
        """The same participant for the handler of a call: another object, of the same class, that shares the state.

        Whatever thread or context it is used in, a change through it calls `check_write(..., call=call)`, with the
        participant itself as the first argument. Called once for each call that asks for the resource.
        """
        ...


def view_for_call(participant: T, call: Transaction) -> T:
    """A participant for the handler of a call: its view, or itself if its class has none; see `HasCallViews`."""
    make = getattr(type(participant), "view_for_call", None)
    # What it returns is of the same class, which an attribute that is looked up by name cannot say.
    return participant if make is None else cast("T", make(participant, call))


def forwarded_attributes(kind: type[object], base: type[object], of: str) -> dict[str, property]:
    """What stands for the data attributes that a class of the program has, in the class of views of its objects.

    Without it a view would find the default that the class has, and not the value that its object has.

    Args:
        kind: the class.
        base: the class of Handrail that it is derived from; what that has is not among them.
        of: the attribute of a view that leads to the object.
    """
    added = kind.__mro__[: kind.__mro__.index(base)]
    return {
        name: _forwarded(name, of)
        for each in added
        for name, value in vars(each).items()
        if not name.startswith("__") and (isinstance(value, MemberDescriptorType) or not hasattr(value, "__get__"))
    }


def _forwarded(name: str, of: str) -> property:
    def read(view: object) -> object:
        return getattr(getattr(view, of), name)

    def write(view: object, value: object) -> None:
        setattr(getattr(view, of), name, value)

    return property(read, write)
