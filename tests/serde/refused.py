"""Dataclasses that serde refuses, each for one reason."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Annotated, Generic, Literal, NamedTuple, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")


class OpenModel(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Items(RootModel[list[int]]):
    pass


class Computing(BaseModel):
    name: str

    @computed_field
    def upper(self) -> str:
        return self.name.upper()


class Renaming(BaseModel):
    name: str = Field(alias="Name")


class Unresolved(BaseModel):
    ratio: Fraction


class Dictionary(TypedDict):
    ratio: Fraction


class Named(NamedTuple):
    name: str


@pydantic.dataclasses.dataclass
class Pydantic:
    name: str


class Colours(enum.Flag):
    RED = 1
    BLUE = 2


class Corner(enum.Enum):
    ORIGIN = (0, 0)


class Mark(enum.Enum):
    ONE = 1


class Nothing(enum.Enum):
    """No members."""


class Unknown:
    """A class that pydantic knows nothing of."""


@dataclass
class HasOpenModel:
    rows: list[OpenModel]


@dataclass
class HasRootModel:
    items: Items


@dataclass
class HasComputing:
    inner: Computing


@dataclass
class HasRenaming:
    inner: Renaming


@dataclass
class HasUnresolved:
    inner: Unresolved


@dataclass
class HasDictionary:
    by_name: dict[str, Dictionary]


@dataclass
class HasNamed:
    pair: tuple[int, Named]


@dataclass
class HasPydantic:
    maybe: Pydantic | None


@dataclass
class HasFlag:
    colours: Colours


@dataclass
class HasCorner:
    corner: Corner


@dataclass
class HasMemberLiteral:
    choice: Literal[Mark.ONE]


@dataclass
class HasIterator:
    rows: Iterator[int]


@dataclass
class HasClass:
    kind: type[int]


@dataclass
class HasTupleKeys:
    cells: dict[tuple[int, int], str]


@dataclass
class HasNumberEnumKeys:
    marks: dict[Mark, str]


@dataclass
class HasUnknown:
    name: str
    thing: Unknown


@dataclass
class HasCallable:
    function: Callable[[int], int]


@dataclass
class HasForwardReference:
    ratio: Fraction


@dataclass
class HasInitVar:
    seed: InitVar[int]
    name: str = ""


@dataclass
class HasComputed:
    total: int = field(init=False, default=0)


@dataclass
class HasAlias:
    source: str = field(default="", metadata={"alias": "from"})


@dataclass
class HasPydanticDefault:
    count: int = Field(gt=0)


@dataclass
class HasNoneForInt:
    limit: int = None  # type: ignore[assignment]


HasMisplacedPattern = make_dataclass(
    "HasMisplacedPattern", [("limit", Annotated[int, Field(pattern="a")], field(default=3))]
)
HasSurrogate = make_dataclass("HasSurrogate", [("code", str | int, field(default="\ud800"))])
HasNothing = make_dataclass("HasNothing", [("nothing", Nothing)])


@dataclass
class HasBadPattern:
    code: str = field(metadata={"pattern": "["})


@dataclass
class HasStrayBound:
    name: str = field(metadata={"gt": 0})


@dataclass
class Endless(Generic[T]):
    item: T
    rest: Endless[list[T]] | None = None


@dataclass
class Deep:
    """The fault lies in a dataclass of a dataclass."""

    plain: int
    many: dict[str, list[HasUnknown]]
