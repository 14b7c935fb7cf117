"""Finds what an agent file names. Each name is looked up in the namespace of its field, and in no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from handrail.agents.agent_file import AgentFile
from handrail.agents.exports.classify import bulleted, fault_of_factory
from handrail.agents.exports.entries import Entry, Kind, ToolsetFactory
from handrail.agents.exports.registry import Registry
from handrail.agents.exports.unexported import export_hints
from handrail.errors import DiscoveryError, ResolutionError
from handrail.serde.formatting import enumerated, nearest, shortened

_MOST_LISTED = 600  # bytes of names
_LONGEST_SHOWN = 100


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
        hints = _hints(file, registry)
        message = bulleted(f"agent {file.name}{where} names what it cannot have", faults)
        raise ResolutionError(
            (" " if len(faults) == 1 else "\n").join((message, *hints.values())),
            agent=file.name,
            names=[fault.name for fault in faults],
            unexported=tuple(hints),
        ) from next(causes, None)
    return ResolvedAgent(file, tools, toolsets)


def _hints(file: AgentFile, registry: Registry) -> dict[str, str]:
    """What to add to the modules that define what the file names, and do not export it, by the file of the module."""
    tools = [name for name in file.tools if name not in registry.tools]
    toolsets = [name for name in file.toolsets if name not in registry.toolsets]
    of_tools = export_hints("tool", tools, registry.defined)
    of_toolsets = export_hints("toolset", toolsets, registry.defined)
    return of_tools | {
        where: "\n".join(filter(None, (of_tools.get(where), hint))) for where, hint in of_toolsets.items()
    }


def _found(kind: Kind, names: Sequence[str], registry: Registry, faults: list[_Fault]) -> Iterator[Entry]:
    """The entries of one field; what is wrong with the others goes to the faults."""
    there = registry.tools if kind == "tool" else registry.toolsets
    other = registry.toolsets if kind == "tool" else registry.tools
    for name in names:
        if name not in there:
            is_defined = any(name in module.names for module in registry.defined)
            faults.append(_Fault(name, _unknown(kind, name, there, other, guess=not is_defined)))
            continue
        try:
            entry = there[name]
        except DiscoveryError as error:
            faults.append(_Fault(name, f"`{kind}s:` has {name!r}: {error}", error))
            continue
        fault = fault_of_factory(entry.value) if isinstance(entry.value, ToolsetFactory) else None
        if fault is not None:
            faults.append(_Fault(name, f"`{kind}s:` has {name!r}: {entry.label}: {fault}"))
        yield entry


def _unknown(kind: Kind, name: str, there: Mapping[str, Entry], other: Mapping[str, Entry], *, guess: bool) -> str:
    fault = f"`{kind}s:` has {shortened(repr(name), _LONGEST_SHOWN)}, but there is no such {kind}."
    if name in other:
        moved: Kind = "toolset" if kind == "tool" else "tool"
        fault += f" A {moved} of that name exists; move it to `{moved}s:`."
    near = nearest(name, there) if guess else None
    if near is not None:
        fault += f" Did you mean {near!r}?"
    listed = enumerated(sorted(there), limit=_MOST_LISTED, wanted=name)
    return f"{fault} Available {kind}s: {listed or 'none'}."
