"""The errors of what is declared, bound or used wrongly, and of agents by name; and the check of arguments.

`DeveloperMistake` is the branch for what shows while a call runs: see `handrail.errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from reprlib import Repr
from typing import NamedTuple, cast

from handrail.errors.outcomes import DeveloperMistake, HandrailError

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def mistakes_in(error: BaseException) -> tuple[DeveloperMistake, ...]:
    """The developer's mistakes that an exception is or holds as a group, at any depth.

    The cause of an exception does not count: the exception is the program's own.
    """
    if isinstance(error, DeveloperMistake):
        return (error,)
    # Not `BaseExceptionGroup`: one that holds a cancellation or Ctrl-C ends the run as such, whatever else it holds.
    if isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)  # of whatever it is
        return tuple(mistake for member in group.exceptions for mistake in mistakes_in(member))
    return ()


# A wrong type is a TypeError in Python, and a wrong setting, such as `verdict="maybe"`, a ValueError. Both are this
# class, so that callers may catch either.
class InvalidArgumentError(DeveloperMistake, TypeError, ValueError):
    """A function of Handrail was called with a value of the wrong kind. Nothing was done.

    Attributes:
        function: the function or class, as it is imported: `"store.open"`.
        argument: the name of the parameter.
        value_type: the type of the value.
        expected: what is expected, in words.
    """

    def __init__(self, *, function: str, argument: str, value: object, expected: str) -> None:
        super().__init__(f"{function}: {argument} is {_format_value(value)}; it must be {expected}.")
        self.function = function
        self.argument = argument
        self.value_type: type[object] = type(value)
        self.expected = expected


def check_argument(
    function: str, argument: str, value: object, kinds: type[object] | tuple[type[object], ...], expected: str
) -> None:
    """Refuses an argument that is of none of some types; `expected` says the same in words, with an example.

    Raises:
        InvalidArgumentError: it is of none of them.
    """
    if not isinstance(value, kinds):
        raise InvalidArgumentError(function=function, argument=argument, value=value, expected=expected)


class InvalidReturnError(DeveloperMistake, TypeError):
    """A policy, an approver, a `key_fn` or a `reconcile` of the program returned something of another type.

    The call did not run. An effect that is unknown stays so.

    Attributes:
        function: `"policy rule"`, `"the approver"`, `"key_fn"` or `"reconcile"`.
        tool: name of the tool whose call it was asked about.
        value_type: the type of what it returned.
        expected: what is expected, in words.
    """

    def __init__(self, *, function: str, tool: str, value: object, expected: str, fault: str | None = None) -> None:
        # A fault is given where the value may be secret.
        verb = f"answered {_format_value(value)}" if fault is None else f"{fault}, when it was asked"
        super().__init__(f"{function} {verb} about a call of {tool}; it must return {expected}.")
        self.function = function
        self.tool = tool
        self.value_type: type[object] = type(value)
        self.expected = expected


class CompletionCheckError(DeveloperMistake):
    """The completion checker of a `prompt` failed, or did not return what is missing. The run has ended."""

    def __init__(self, prompt: str, fault: str) -> None:
        super().__init__(f"the completion checker of prompt {prompt} {fault}.")
        self.prompt = prompt
        self.fault = fault


class SandboxError(HandrailError):
    """A sandbox of an `engine` cannot be started on this machine; `cure` says what to do."""

    def __init__(self, engine: str, fault: str, *, cure: str) -> None:
        super().__init__(f"{engine}: {fault}. {cure}")
        self.engine = engine
        self.cure = cure


class SecondStoreError(DeveloperMistake):
    """A call writes to two stores of Handrail, and can commit in one only. The call is rolled back.

    Also raised at the first write of a call of a stored session to files that were opened without that store: a crash
    could separate the call from its files. And when an executor is made, for a tool whose calls could not be committed
    in one store.

    Attributes:
        store: the store that the call commits in; `None` if the session of an executor is in none.
        second: the other one; `None` for files that were opened without a store.
        tool: name of the tool that an executor has refused; `None` for a call.
    """

    def __init__(self, *, store: object, second: object, tool: str | None = None) -> None:
        super().__init__(
            f"a call writes to {_place(store)} and to {_place(second, _FILES)}, and commits in one store only. Open "
            "the session and the files of a run with the same store: HostFilesystem(root, store=session.store)."
            if tool is None
            else f"{tool} has External(apply=...), which is committed with its effect and its session in one store. "
            f"The session is in {_place(store)}, and the effect ledger in {_place(second)}. Open the session in the "
            'store of the ledger: Session.open(store, "desk").'
        )
        self.store = store
        self.second = second
        self.tool = tool


class DurableEngineError(DeveloperMistake):
    """Handrail is used inside a durable `engine`, where it cannot do what is asked. Nothing was done."""

    engine: str


class LoopBlockedError(DeveloperMistake):
    """An `operation` would have blocked an event loop: the loop guard is on (`handrail.waiting`). Nothing was done."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"{operation} would block the event loop of this thread, which HANDRAIL_LOOP_GUARD=1 forbids. In your "
            "code, await the asynchronous form, or use asyncio.to_thread; anywhere else it is a fault of Handrail."
        )
        self.operation = operation


def note_mistakes(error: BaseException, mistakes: Sequence[BaseException]) -> BaseException:
    """Adds mistakes, and those in groups, as notes to an exception that is raised instead of them; returns it."""
    # Not an ExceptionGroup, which `except` with the type of the mistake would not catch. `error` may be one of
    # `mistakes`, and gets no note about itself.
    for mistake in (mistake for member in mistakes if member is not error for mistake in mistakes_in(member)):
        error.add_note(f"another call of the reply: {type(mistake).__name__}: {mistake}")
    return error


# Not a DeveloperMistake: a declaration is checked when it is made, where no call runs that could hide the error.
class PromptValidationError(HandrailError, ValueError):
    """A tool, section, policy or prompt that is declared wrongly, with what is at fault.

    Attributes:
        section_path: keys from the root section to the one at fault; empty outside of sections.
        tool: name of the tool.
        dataclass: the parameter or result type.
    """

    def __init__(
        self,
        message: str,
        *,
        section_path: Sequence[str] = (),
        tool: str | None = None,
        dataclass: type[object] | None = None,
    ) -> None:
        where = [f"section {'.'.join(section_path)}" if section_path else "", f"tool {tool}" if tool else ""]
        prefix = ", ".join(part for part in where if part)
        # The place is part of the text, because most readers see only the last line of a traceback.
        super().__init__(f"{prefix}: {message}" if prefix else message)
        self.section_path: tuple[str, ...] = tuple(section_path)
        self.tool = tool
        self.dataclass = dataclass


class SignatureFault(NamedTuple):
    """A fault of the signature of a function, with its cure; `parameter` is empty if it is the function itself."""

    parameter: str
    text: str

    def __str__(self) -> str:
        return f"{self.parameter}: {self.text}" if self.parameter else self.text


class ToolSignatureError(PromptValidationError):
    """A function that cannot become a tool, with every fault of its signature; `file` is empty if it has none."""

    def __init__(self, *, function: str, file: str, line: int, faults: Sequence[SignatureFault]) -> None:
        where = f" ({file}:{line})" if file else ""
        fault_lines = str(faults[0]) if len(faults) == 1 else "".join(f"\n  - {fault}" for fault in faults)
        super().__init__(f"the function {function}{where} cannot be a tool: {fault_lines}".replace(": \n", ":\n"))
        self.function = function
        self.file = file
        self.line = line
        self.faults: tuple[SignatureFault, ...] = tuple(faults)


class PromptRenderError(HandrailError):
    """A prompt that was rendered without the parameters its sections need; attributes as of `PromptValidationError`."""

    def __init__(
        self, message: str, *, section_path: Sequence[str] = (), dataclass: type[object] | None = None
    ) -> None:
        super().__init__(f"section {'.'.join(section_path)}: {message}" if section_path else message)
        self.section_path: tuple[str, ...] = tuple(section_path)
        self.dataclass = dataclass


class SchemaError(HandrailError, TypeError):
    """A type that cannot be closed and described; `type` is the offender and `path` where it stands."""

    type: object
    path: str = "$"


class CallIdReusedError(DeveloperMistake):
    """The identity of a recorded call was used for another call. Nothing was run, claimed or recorded.

    Attributes:
        reply: the reply whose call it is; `None` if the program did not say.
        recorded_at: when the recorded call ended; when its effect was claimed, if only the ledger knows of it.
        tool: name of the tool that the recorded call is of.
    """

    call_id: str
    reply: str | None
    recorded_at: datetime
    tool: str


class ParseError(HandrailError, ValueError):
    """Data that does not fit its dataclass; `faults` holds every fault as `(path, message)`."""

    faults: Sequence[tuple[str, str]] = ()


class DumpError(HandrailError, ValueError):
    """A value that JSON cannot say, or that is not of its declared type; `faults` as in `ParseError`.

    `is_mistyped` says that a part of it is of another type than declared, or of one that JSON does not restore: only
    the program can change that. A lone surrogate or a NaN may come with any data.
    """

    faults: Sequence[tuple[str, str]] = ()
    is_mistyped: bool = False


class DispatchError(HandrailError):
    """Subscribers that raised while an event was dispatched; all of them were called.

    `failures` holds `(subscriber name, exception)` in the order of the calls; the first one is also the `__cause__`.
    """

    def __init__(self, event: object, failures: Sequence[tuple[str, Exception]]) -> None:
        text = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failures)
        super().__init__(f"{len(failures)} subscriber(s) of {type(event).__name__} failed: {text}")
        self.event = event
        self.failures: tuple[tuple[str, Exception], ...] = tuple(failures)


class ScriptError(HandrailError, AssertionError):
    """A script that cannot be read, or disagrees with its run; `step` is the reply at fault, from 1, or `None`."""

    step: int | None = None


class ResourceError(HandrailError):
    """The root of what goes wrong between a resource and who asks for it."""


class ResourceUseError(ResourceError, DeveloperMistake):
    """A resource was asked for by something that is not a class, or where it does not live."""


# Also a LookupError, as a missing key is: `resources.get` is a look-up by type.
class UnboundResourceError(ResourceError, DeveloperMistake, LookupError):
    """Nothing is bound for `protocol`: a `tool` asked for it, or the providers of `needed_by`, each for the next."""

    def __init__(self, protocol: type[object], *, needed_by: Sequence[type[object]] = (), tool: str = "") -> None:
        chain = f"the tool {tool}" if tool else " -> ".join(kind.__name__ for kind in (*needed_by, protocol))
        super().__init__(
            f"nothing is bound for {protocol.__name__} (asked for by {chain}). "
            f"Bind one, by resources={{{protocol.__name__}: ...}} of ToolExecutor or Prompt(template).bind, "
            f"or ask with a default: resources.get({protocol.__name__}, None)."
        )
        self.protocol = protocol
        self.needed_by: tuple[type[object], ...] = tuple(needed_by)
        self.tool: str = tool


class CircularResourceError(ResourceError, DeveloperMistake):
    """Providers that need each other; `path` starts and ends with the same type."""

    def __init__(self, path: Sequence[type[object]]) -> None:
        chain = " -> ".join(kind.__name__ for kind in path)
        super().__init__(f"these resources need each other: {chain}. Let one of them do without the next.")
        self.path: tuple[type[object], ...] = tuple(path)


# Not a DeveloperMistake: a registry is declared before calls run.
class DuplicateBindingError(ResourceError, ValueError):
    """Two bindings of one type in one registry."""

    def __init__(self, protocol: type[object]) -> None:
        super().__init__(
            f"{protocol.__name__} is bound twice in one registry. Keep one, or merge two registries: "
            "in ResourceRegistry.merge the later one wins."
        )
        self.protocol = protocol


class ProviderError(ResourceError):
    """A provider that raised, or that made something else than it promised; chained to the cause if there is one."""

    protocol: type[object]


class WrongResourceError(ProviderError, DeveloperMistake):
    """A provider made something of another type, or something that cannot take turns."""


class DocumentError(HandrailError, ValueError):
    """A YAML or JSON document that cannot be read, or does not say what it must.

    Attributes:
        file: the name of the document, as the message gives it.
        line: the line at fault, from 1; `None` if it is the whole document.
        column: the column at fault, from 1.
    """

    def __init__(
        self, message: str, *, file: str, line: int | None = None, column: int | None = None, **attributes: object
    ) -> None:
        where = file if line is None else f"{file}:{line}" if column is None else f"{file}:{line}:{column}"
        super().__init__(f"{where}: {message}", **attributes)
        self.file = file
        self.line = line
        self.column = column


class OverridesError(DocumentError, DeveloperMistake):
    """A file of overrides that cannot be read, or does not fit its prompt. None of its overrides is applied."""


class AgentError(HandrailError):
    """An agent, its project, or what it names cannot be used; `problems` has each of several problems."""

    problems: Sequence[HandrailError] = ()


class AgentFileError(DocumentError, AgentError):
    """A file that is not an agent file; `field` is the key at fault, if one is."""

    field: str | None = None


class ApprovalRulesError(DocumentError, AgentError):
    """A file of approval rules that is none."""


class ProjectError(AgentError):
    """A project folder, or its `[tool.handrail]`, that cannot be used; or several problems of one project at once."""


class DiscoveryError(AgentError):
    """A Python module whose tools or toolsets cannot be registered; the message lists every one of `offenders`."""

    module: str
    offenders: Sequence[str] = ()


class RegistryError(AgentError):
    """Two entries of one kind have one name; the message has each of `names` with both origins."""

    names: Sequence[str]


class ResolutionError(AgentError):
    """An `agent` names tools or toolsets that do not exist; the message has each of `names` with its cure."""

    agent: str
    names: Sequence[str]


class UnknownModelError(AgentError, ValueError):
    """The name of a model that PydanticAI does not know, or not in full; `nearest` is similar, or `None`."""

    name: str
    nearest: str | None = None


class FactoryError(AgentError):
    """A factory of a `toolset` that cannot be called, or made something else, of `value_type`."""

    toolset: str
    value_type: type[object] | None = None


class ToolConflictError(AgentError):
    """Tools of one agent have the same name; the message has each of `tools` with every origin."""

    tools: Sequence[str]


_FILES = "files on disk that were opened without a store"


def _place(store: object, none: str = "no store") -> str:
    return none if store is None else str(getattr(store, "url", None) or _format_value(store))


def _format_value(value: object) -> str:
    # The `repr` of the program's own class may raise, or be as long as its content.
    return f"{_SHORT.repr(value)} ({type(value).__name__})"
