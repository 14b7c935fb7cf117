"""The columns of the table: what people would choose, and Handrail in each of those that it enters."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Column:
    """A contender.

    Attributes:
        name: its name in `--column`.
        title: its title in the table.
        program: the module of `proof.contenders`.
        packages: its environment: `requirements/proof-PACKAGES.txt`.
        variables: variables of its environment.
        races: it makes the calls of a reply side by side, and stores each, so that what a kill leaves differs from
            play to play.
        cheaper: variables that leave out a part, whose cost is shown so.
    """

    name: str
    title: str
    program: str
    packages: str
    variables: dict[str, str] = field(default_factory=dict[str, str])
    races: bool = False
    cheaper: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def has_handrail(self) -> bool:
        """Whether its tools are Handrail's."""
        return self.name.startswith("handrail")


COLUMNS: tuple[Column, ...] = (
    Column("plain", "plain calls", "plain", "plain"),
    Column("pydantic-ai", "PydanticAI", "pydantic_ai", "pydantic-ai"),
    Column("dbos", "PydanticAI, DBOS", "dbos", "dbos", cheaper={"PAYMENT": "step"}),
    Column("langgraph-async", "LangGraph, async", "langgraph", "langgraph", {"DURABILITY": "async"}, races=True),
    Column("langgraph-sync", "LangGraph, sync", "langgraph", "langgraph", {"DURABILITY": "sync"}, races=True),
    Column("openai-agents", "OpenAI Agents", "openai_agents", "openai-agents"),
    Column("handrail-plain", "Handrail", "handrail_plain", "plain"),
    Column("handrail-pydantic-ai", "Handrail, PydanticAI", "handrail_pydantic_ai", "pydantic-ai"),
    Column("handrail-dbos", "Handrail, DBOS", "handrail_dbos", "dbos"),
    Column("handrail-langgraph", "Handrail, LangGraph", "handrail_langgraph", "langgraph"),
)
"""The columns, in the order of the table."""


def choose_columns(name: str) -> list[Column]:
    """The column of a name, or those whose names begin with it: `langgraph` is two, `handrail` are four."""
    return [column for column in COLUMNS if column.name == name] or [
        column for column in COLUMNS if column.name.startswith(f"{name}-")
    ]
