"""The registry: tools and toolsets by name, in two namespaces, each with where it comes from.

A registry never changes. Names are known before what stands behind them is: the offer of an
installed package is imported when its name is asked for, so a broken package affects only agents that use it. Nor does
one that offers a name which is taken: an entry wins over the offers of its name, and a name that nothing but several
offers have is at fault when it is asked for.

`resolve` finds what an agent file names. Each name is looked up in the namespace of its field, and in no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from handrail.agents.agent_file import AgentFile
from handrail.agents.exports.entries import (
    EXPORT_NAME_PATTERN,
    Entry,
    Kind,
    Origin,
    ToolsetFactory,
    bullet_list,
    collect_entries,
    factory_fault,
)
from handrail.errors import DiscoveryError, RegistryError, ResolutionError
from handrail.serde.formatting import enumerated, nearest, shorten

_PROGRAM = Origin("program")

_MOST_LISTED = 600  # bytes of names

_LONGEST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class PackageExport:
    """The name of an entry that is not made yet: that of an installed package, say.

    Attributes:
        name: what agent files call it by.
        kind: the namespace of the name.
        origin: where it comes from.
        load: makes the entry, the same one each time; raises `DiscoveryError` if it cannot.
    """

    name: str
    kind: Kind
    origin: Origin
    load: Callable[[], Entry]

    @property
    def label(self) -> str:
        """In words, as `Entry.label`."""
        return f"{self.kind} {self.name} ({self.origin})"


class Namespace(Mapping[str, Entry]):
    """One namespace of a registry. All names are known; an offer is loaded when it is looked up."""

    def __init__(self, held: Iterable[Entry | PackageExport]) -> None:
        self._held: dict[str, Entry | tuple[PackageExport, ...]] = {}
        for item in held:
            other = self._held.get(item.name, ())
            if isinstance(item, Entry):
                self._held[item.name] = item
            # An entry of the project takes precedence over offers of installed packages, in whatever order they come.
            elif not isinstance(other, Entry):
                self._held[item.name] = (*other, item)

    def __getitem__(self, name: str) -> Entry:
        """The entry of that name.

        Raises:
            DiscoveryError: an installed package offers it, and it cannot be loaded; or several offer it.
        """
        held = self._held[name]
        if isinstance(held, Entry):
            return held
        if len(held) == 1:
            return held[0].load()
        origins = sorted(str(offer.origin) for offer in held)
        raise DiscoveryError(
            f"the {held[0].kind} {name} comes from {' and from '.join(origins)}, and it is not clear which is meant; "
            "uninstall one of them, or export the one that is meant in tools.py under another name",
            module=held[0].origin.where,
            offenders=(name,),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Registry:
    """Tools and toolsets by name. Made by `Registry.of` or `Registry.of_python`; it never changes.

    Attributes:
        held: what was registered, tools and toolsets, in its order.
        tools: the tools by name. To look one up raises `DiscoveryError` if it is offered by a package and broken, or
            by several.
        toolsets: the toolsets by name, in the same way.

    Raises:
        RegistryError: two entries of one kind have one name, or a name is none; the message has all of them.
    """

    held: tuple[Entry | PackageExport, ...] = ()
    tools: Mapping[str, Entry] = field(init=False)
    toolsets: Mapping[str, Entry] = field(init=False)

    def __post_init__(self) -> None:
        _check(self.held)
        object.__setattr__(self, "tools", Namespace(item for item in self.held if item.kind == "tool"))
        object.__setattr__(self, "toolsets", Namespace(item for item in self.held if item.kind == "toolset"))

    @classmethod
    def of(cls, entries: Iterable[Entry], *, offers: Iterable[PackageExport] = ()) -> Registry:
        """A registry of entries, and of what could be loaded.

        Raises:
            RegistryError: two of one kind have one name, or a name is none; the message has all of them.
        """
        return cls(_once((*entries, *offers)))

    @classmethod
    def of_python(cls, *, tools: object = (), toolsets: object = ()) -> Registry:
        """A registry of what a program has at hand.

        Args:
            tools: functions and tools, as a list, a tuple, or a dict by name; what `TOOLS` of a module may be.
            toolsets: toolsets, sections and factories in the same way; what `TOOLSETS` may be.

        Raises:
            DiscoveryError: some cannot be registered; the message has all of them.
        """
        found = (
            collect_entries("tool", tools, _PROGRAM, field="tools"),
            collect_entries("toolset", toolsets, _PROGRAM, field="toolsets"),
        )
        offences = [offence for part in found for offence in part.offences]
        if offences:
            raise DiscoveryError(
                bullet_list("these tools and toolsets of the program cannot be registered", offences),
                module="program",
                offenders=[offence.name for offence in offences],
            )
        return cls(tuple(entry for part in found for entry in part.entries))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that were registered as such, tools and toolsets, in their order; without `offers`."""
        return tuple(item for item in self.held if isinstance(item, Entry))

    @property
    def offers(self) -> tuple[PackageExport, ...]:
        """What installed packages offer."""
        return tuple(item for item in self.held if isinstance(item, PackageExport))


def _once(held: Iterable[Entry | PackageExport]) -> tuple[Entry | PackageExport, ...]:
    # By identity: two equal entries from different places are a conflict, which `_check` reports.
    return tuple({id(item): item for item in held}.values())


def _check(held: tuple[Entry | PackageExport, ...]) -> None:
    """Refuse invalid names, and those of two entries; an offer yields to an entry."""
    origins: dict[tuple[str, Kind], list[str]] = defaultdict(list)
    for item in held:
        # A valid offer never conflicts here: several of one name are reported when the name is looked up.
        if isinstance(item, Entry) or EXPORT_NAME_PATTERN.fullmatch(item.name) is None:
            origins[item.name, item.kind].append(str(item.origin))
    faults = [
        (
            name,
            f"{kind} {name!r} ({', '.join(sorted(places))}) is not a name; a name is 1 to 64 letters, digits, '_', '-'",
        )
        for (name, kind), places in origins.items()
        if EXPORT_NAME_PATTERN.fullmatch(name) is None
    ]
    faults += [
        (name, f"{kind} {name} comes from {' and from '.join(sorted(places))}; give one of them another name")
        for (name, kind), places in origins.items()
        if len(places) > 1 and EXPORT_NAME_PATTERN.fullmatch(name) is not None
    ]
    if faults:
        raise RegistryError(
            bullet_list("these names cannot be registered", sorted(fault for _, fault in faults)),
            names=sorted({name for name, _ in faults}),
        )


@dataclass(frozen=True, slots=True)
class ResolvedAgent:
    """An agent file with what it names.

    Attributes:
        file: the agent file.
        tools: what its `tools:` names, in its order.
        toolsets: what its `toolsets:` names, in its order.
    """

    file: AgentFile
    tools: tuple[Entry, ...] = ()
    toolsets: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class _Fault:
    """A name that cannot be used, and why."""

    name: str
    words: str
    cause: DiscoveryError | None = None

    def __str__(self) -> str:
        return self.words


def resolve(file: AgentFile, registry: Registry) -> ResolvedAgent:
    """The entries that an agent file names.

    Raises:
        ResolutionError: some names are not registered, or what they name cannot be loaded or called; the message has
            all of them.
    """
    faults: list[_Fault] = []
    tools = tuple(_found("tool", file.tools, registry, faults))
    toolsets = tuple(_found("toolset", file.toolsets, registry, faults))
    if faults:
        where = f" ({file.path})" if file.path is not None else ""
        causes = (fault.cause for fault in faults if fault.cause is not None)
        raise ResolutionError(
            bullet_list(f"agent {file.name}{where} names what it cannot have", faults),
            agent=file.name,
            names=[fault.name for fault in faults],
        ) from next(causes, None)
    return ResolvedAgent(file, tools, toolsets)


def _found(kind: Kind, names: Sequence[str], registry: Registry, faults: list[_Fault]) -> Iterator[Entry]:
    """The entries of one field; what is wrong with the others goes to the faults."""
    there = registry.tools if kind == "tool" else registry.toolsets
    other = registry.toolsets if kind == "tool" else registry.tools
    for name in names:
        if name not in there:
            faults.append(_Fault(name, _unknown(kind, name, there, other)))
            continue
        try:
            entry = there[name]
        except DiscoveryError as error:
            faults.append(_Fault(name, f"`{kind}s:` has {name!r}: {error}", error))
            continue
        fault = factory_fault(entry.value) if isinstance(entry.value, ToolsetFactory) else None
        if fault is not None:
            faults.append(_Fault(name, f"`{kind}s:` has {name!r}: {entry.label}: {fault}"))
        yield entry


def _unknown(kind: Kind, name: str, there: Mapping[str, Entry], other: Mapping[str, Entry]) -> str:
    fault = f"`{kind}s:` has {shorten(repr(name), _LONGEST_SHOWN)}, but that {kind} does not exist."
    if name in other:
        moved: Kind = "toolset" if kind == "tool" else "tool"
        fault += f" A {moved} of that name exists; move it to `{moved}s:`."
    near, listed = _proposed(name, tuple(sorted(there)))
    if near is not None:
        fault += f" Did you mean {near!r}?"
    return f"{fault} Available {kind}s: {listed or 'none'}; a module exports what its {kind.upper()}S lists."


@lru_cache(maxsize=256)  # many agents miss the same name, and to compare it with a thousand others takes 0.1 s
def _proposed(name: str, there: tuple[str, ...]) -> tuple[str | None, str]:
    """The nearest of some names, and as many of them as a message lists."""
    return nearest(name, there), enumerated(there, limit=_MOST_LISTED, wanted=name)
