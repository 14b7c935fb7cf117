"""The attributes of a program's class in a view of its objects: a view has none of its own."""

from __future__ import annotations

from types import MemberDescriptorType


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
