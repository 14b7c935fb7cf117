"""What a person looks at, answers and settles at a store; the command line and the pages show it.

Nothing here prints, or reads options. An error names the command that a person needs next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from handrail.errors import StoreCorruptError

T = TypeVar("T")


def skip_unreadable(rows: Iterator[T], faults: list[str]) -> Iterator[T]:
    """Leaves out the rows of a store that cannot be read, and adds what is wrong with each to `faults`."""
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except StoreCorruptError as error:
            faults.append(str(error))
