"""The LOG slices of a session: they only grow, whoever writes and whatever becomes of the call."""

from __future__ import annotations

from typing import Any

from handrail.session.slices import Owner, Version, Versions


class Log:
    """The LOG slices of one session; `append` is called with the session's lock held.

    Attributes:
        owner: stands for the session.
        slices: the slices by their type.
    """

    __slots__ = ("owner", "slices")

    def __init__(self, owner: Owner, slices: Versions) -> None:
        """Begin with what another session has logged, in versions of its own, because those of a LOG grow."""
        self.owner = owner
        self.slices = {kind: Version(each.owner, each.items, each.length) for kind, each in slices.items()}

    def append(self, kind: type[Any], item: object) -> None:
        """Add an item; the list is never copied, but for the first item that a fork adds."""
        version = self.slices.get(kind)
        if version is None:
            self.slices[kind] = Version(self.owner, [item], 1)
        elif not version.grow(self.owner, item):
            self.slices[kind] = version.append(self.owner, item)
