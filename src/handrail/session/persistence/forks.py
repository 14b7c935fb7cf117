"""What tells a fork from a child in a store, where the row of either names one other session.

The row names the session that it was made for, or that it was forked from. A fork has an item that says so, and for
whom the session worked that it is a fork of. A row without the item is read as that of a child: also a fork of a
version that wrote none, and one whose process died before it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from handrail.session.persistence.protocol import SessionRow
from handrail.session.persistence.stored_types import stored_as
from handrail.session.slices import SlicePolicy


@stored_as("handrail.forked_from")
@dataclass(frozen=True, slots=True)
class ForkedFrom:
    """A session is a fork. Its slice is a LOG, and survives a reset; a fork of a fork has the items of both.

    Attributes:
        session_id: the fork.
        works_for: the session that the one worked for that it was forked from; `None` for none.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    survives_reset: ClassVar[bool] = True

    session_id: str
    works_for: str | None


def works_for(row: SessionRow, forks: Sequence[ForkedFrom]) -> str | None:
    """The session that another one was made for; `None` for none.

    Args:
        row: the row of the other one.
        forks: its items of that type.
    """
    own = next((each for each in reversed(forks) if each.session_id == row.session_id), None)
    return row.parent if own is None else own.works_for
