"""Lists and shows what a store holds many of: sessions, effects, questions. Each is a table of columns.

A list is a table, or in JSON an object a line; one of them is names with values, or a JSON document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from handrail.cli.options import PAGE, StoreOptions
from handrail.cli.screen import Column, Screen
from handrail.serde.formatting import count_noun

T = TypeVar("T")


@dataclass(frozen=True)
class Entity(Generic[T]):
    """What commands list and show.

    Attributes:
        noun: what one is called.
        columns: what a table has of it.
        json: all that is known of it, for programs.
        fields: what is shown of one, by name; without those that are empty.
        order: which ones a list begins with.
        is_counted: whether a list is made of all of them.
    """

    noun: str
    columns: Sequence[Column[T]]
    json: Callable[[T], dict[str, Any]]
    fields: Sequence[tuple[str, Callable[[T], str]]] = ()
    order: str = "newest"
    is_counted: bool = True

    def print_list(self, rows: Iterable[T], limit: int | None, options: StoreOptions, *, none: str) -> int:
        """Print the first rows, and how many more there are; returns how many there are.

        Args:
            rows: the rows, in their order; what is not printed is not held.
            limit: how many to print; by default those of a page, and in JSON all.
            options: the store and the output format.
            none: what is said if there are none.
        """
        screen, rest = Screen(), iter(rows)
        if options.as_json:
            for row in islice(rest, limit):
                screen.json(self.json(row), lines=True)
            return 0
        page = list(islice(rest, PAGE if limit is None else limit))
        if not page:
            screen.note(none)
            return 0
        screen.table(self.columns, page)
        count = len(page) + sum(1 for _ in rest)
        if count > len(page):
            whole = f" of {count_noun(count, self.noun)}" if self.is_counted else ""
            screen.note(f"These are the {self.order} {len(page):,}{whole}; --limit shows more.")
        return count

    def print_one(self, row: T, options: StoreOptions, **more: Any) -> None:  # noqa: ANN401 - values of JSON
        """Print one; `more` is what else JSON has."""
        if options.as_json:
            Screen().json(self.json(row) | more)
        else:
            Screen().record(self.shown(row))

    def shown(self, row: T) -> list[tuple[str, str]]:
        """What is shown of one: names and values."""
        return [(name, text) for name, value in self.fields if (text := value(row))]
