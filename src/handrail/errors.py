"""Every exception that Handrail raises, in one tree.

::

    HandrailError
    ├── PromptValidationError        developer: a tool, section, policy or prompt is declared wrongly
    ├── PromptRenderError            developer: a prompt was rendered without the values it needs
    ├── SchemaError                  developer: a type that Handrail cannot turn into a schema
    ├── ParseError                   caller of serde: the data does not fit the dataclass
    ├── DumpError                    caller of serde: a value that JSON cannot say, or that is not of its declared type
    ├── DispatchError                developer: subscribers failed while an event was dispatched
    ├── LedgerError                  developer: an entry of the ledger is in a state that does not allow what was asked
    ├── ScriptError                  test: a scripted model and the run disagree, or the script cannot be read
    ├── SessionError                 developer: a session was used against its rules
    │   ├── SessionBusyError         developer: a write from outside while a call holds the session
    │   ├── ReducerError             developer: reducers clash, or one returned what no slice can become
    │   └── SnapshotError            developer: a snapshot that does not belong here, or is out of date
    ├── ResourceError                developer: see `handrail.resources`
    │   ├── UnboundResourceError     nothing is bound for a type
    │   ├── CircularResourceError    providers need each other
    │   ├── DuplicateBindingError    two bindings of one type in one registry
    │   └── ProviderError            a provider raised, or made something of another type
    ├── FilesystemError              handler or model: a file operation that cannot be done
    │   ├── PathNotFoundError        no such file or folder
    │   ├── PathConflictError        a file where a folder is needed, or the other way round, or it exists already
    │   └── PathEscapeError          a path that leaves the root, or is not a path
    ├── ToldToModel                  becomes a failed result: the model reads the message and may try again
    │   ├── ToolValidationError      a handler or policy found the arguments wanting
    │   ├── ReadOnlyViolation        a handler that may only read tried to write
    │   ├── TransactionClosedError   a write that came after its call had ended
    │   ├── TurnConflictError        a nested call that would have waited for its own caller
    │   ├── LeaseLostError           the claim of an effect passed to another owner
    │   └── EffectUncertain          a handler cannot tell whether its effect happened
    └── EndsRun                      ends the run: no model can mend it
        ├── PromptEvaluationError    the evaluation of a prompt stopped; `phase` says where
        │   └── RollbackError        a participant could not be restored, so its state is not to be trusted
        ├── DeadlineExceededError    the time is up (the pipeline turns it into `PromptEvaluationError`)
        ├── BudgetExceededError      the tokens are used up
        └── VisibilityExpansionRequired  the prompt must be rendered again with sections opened

The two audiences are the two last branches: what is *told to the model* and what *ends the run*. Everything above them
is for the developer. A name exists once, here; the packages re-export what belongs to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class HandrailError(Exception):
    """The root of all exceptions that Handrail raises; catch it to catch them all."""


class PromptValidationError(HandrailError, ValueError):
    """A tool, section, policy or prompt that is declared wrongly.

    Attributes:
        section_path: keys from the root section to the one at fault, empty when it lies outside a section.
        tool: name of the tool at fault, if one is.
        dataclass: the parameter or result type at fault, if one is.
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
        super().__init__(f"{prefix}: {message}" if prefix else message)
        self.section_path = tuple(section_path)
        self.tool = tool
        self.dataclass = dataclass


class PromptRenderError(HandrailError):
    """A prompt that was rendered without the parameters its sections need.

    Attributes:
        section_path: keys from the root section to the one at fault.
        dataclass: the parameter type that was missing, if that is the fault.
    """

    def __init__(
        self, message: str, *, section_path: Sequence[str] = (), dataclass: type[object] | None = None
    ) -> None:
        super().__init__(f"section {'.'.join(section_path)}: {message}" if section_path else message)
        self.section_path = tuple(section_path)
        self.dataclass = dataclass


class SchemaError(HandrailError, TypeError):
    """A type that cannot be closed and described; `type` is the offender and `path` where it stands."""

    def __init__(self, message: str, *, type: object, path: str = "$") -> None:
        super().__init__(message)
        self.type = type
        self.path = path


class ParseError(HandrailError, ValueError):
    """Data that does not fit its dataclass; `faults` holds every fault as `(path, message)`."""

    def __init__(self, message: str, *, faults: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class DumpError(HandrailError, ValueError):
    """A value that JSON cannot say, or that is not of its declared type; `faults` as in `ParseError`."""

    def __init__(self, message: str, *, faults: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class DispatchError(HandrailError):
    """Subscribers that raised while an event was dispatched.

    All subscribers of the event were called. `failures` holds `(subscriber name, exception)` in the order of the calls;
    the first one is also the `__cause__`.
    """

    def __init__(self, event: object, failures: Sequence[tuple[str, Exception]]) -> None:
        told = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failures)
        super().__init__(f"{len(failures)} subscriber(s) of {type(event).__name__} failed: {told}")
        self.event = event
        self.failures = tuple(failures)


class LedgerError(HandrailError):
    """An entry of the ledger whose state does not allow what was asked of it. Nothing was changed.

    Attributes:
        key: the effect's key.
        status: the state of its entry: `"running"`, `"done"`, `"failed"` or `"unknown"`.
    """

    def __init__(self, message: str, *, key: str, status: str) -> None:
        super().__init__(message)
        self.key = key
        self.status = status


class ScriptError(HandrailError, AssertionError):
    """A script that disagrees with the run it is played in, or that cannot be read (`handrail.testing`).

    Attributes:
        step: the reply at fault, counted from 1; `None` if the fault lies in none of them.
    """

    def __init__(self, message: str, *, step: int | None = None) -> None:
        super().__init__(message)
        self.step = step


class SessionError(HandrailError):
    """A session that was used against its rules."""


class SessionBusyError(SessionError):
    """A write to a session from outside, while a call holds its turn. Nothing was written."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id} is in use by a call, so a write from outside it was refused. Write inside the "
            "call (start a handler's own threads with contextvars.copy_context().run), or after it has ended."
        )
        self.session_id = session_id


class ReducerError(SessionError, TypeError):
    """Reducers that clash, or a reducer that returned something that no slice can become."""


class SnapshotError(SessionError, ValueError):
    """A snapshot that belongs to another owner, is out of date, or cannot be read."""


class ResourceError(HandrailError):
    """The root of what goes wrong between a resource and who asks for it."""


class UnboundResourceError(ResourceError, LookupError):
    """Nothing is bound for `protocol`."""

    def __init__(self, protocol: type[object], *, needed_by: Sequence[type[object]] = ()) -> None:
        chain = " -> ".join(kind.__name__ for kind in (*needed_by, protocol))
        super().__init__(
            f"nothing is bound for {protocol.__name__} (asked for by {chain}). "
            f"Bind one: Prompt(template).bind(resources={{{protocol.__name__}: ...}}), "
            f"or ask with a default: resources.get({protocol.__name__}, None)."
        )
        self.protocol = protocol
        self.needed_by = tuple(needed_by)


class CircularResourceError(ResourceError):
    """Providers that need each other; `path` starts and ends with the same type."""

    def __init__(self, path: Sequence[type[object]]) -> None:
        chain = " -> ".join(kind.__name__ for kind in path)
        super().__init__(f"these resources need each other: {chain}. Let one of them do without the next.")
        self.path = tuple(path)


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

    def __init__(self, message: str, *, protocol: type[object]) -> None:
        super().__init__(message)
        self.protocol = protocol


class FilesystemError(HandrailError):
    """A file operation that cannot be done; `path` is the path as it was given."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class PathNotFoundError(FilesystemError, FileNotFoundError):
    """No such file or folder."""


class PathConflictError(FilesystemError):
    """A file where a folder is needed, a folder where a file is, or a target that exists already."""


class PathEscapeError(FilesystemError, ValueError):
    """A path that leaves the root of the filesystem, or that is not a path at all."""


class ToldToModel(HandrailError):
    """The branch of the tree that becomes a failed result: the model reads the message."""


class ToolValidationError(ToldToModel, ValueError):
    """Arguments that parse, but that the handler or a policy finds wanting. The message goes to the model."""


class ReadOnlyViolation(ToldToModel):
    """A write by a call that may only read. Nothing was written.

    Attributes:
        tool: name of the tool whose call tried.
        what: what it tried to do.
    """

    def __init__(self, tool: str, what: str) -> None:
        super().__init__(
            f"{tool} may only read, so it cannot {what}. Declare the tool with effect='state' (or 'external') to write."
        )
        self.tool = tool
        self.what = what


class TransactionClosedError(ToldToModel):
    """A write by a handler whose call has already ended. Nothing was written.

    Attributes:
        tool: name of the tool whose call has ended.
        what: what the late handler tried to do.
    """

    def __init__(self, tool: str, what: str) -> None:
        super().__init__(f"the call of {tool} has ended, so it can no longer {what}; nothing was written")
        self.tool = tool
        self.what = what


class TurnConflictError(ToldToModel):
    """A nested call that would have waited for a call that waits for its own caller. Nothing was run."""


class LeaseLostError(ToldToModel):
    """The claim of an effect has passed to another owner: stop, and leave the effect to them.

    Attributes:
        key: the effect's key.
        fence: the fence that this owner held.
    """

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(
            f"the lease of effect {key} (fence {fence}) has been lost: it ran out, and another call or a person has "
            "taken the effect over. Stop without doing it."
        )
        self.key = key
        self.fence = fence


class EffectUncertain(ToldToModel):
    """Raised by a handler that cannot tell whether its effect happened: the ledger keeps the effect as `unknown`."""


class EndsRun(HandrailError):
    """The branch of the tree that no model can mend: it is rolled back, recorded and raised to the caller."""


class PromptEvaluationError(EndsRun):
    """The evaluation of a prompt that stopped.

    Attributes:
        phase: where it stopped: `"tool"`, `"request"`, `"response"`, `"budget"` or `"rollback"`.
        tool: name of the tool that ran, if one did.
    """

    def __init__(self, message: str, *, phase: str = "tool", tool: str | None = None) -> None:
        super().__init__(message)
        self.phase = phase
        self.tool = tool


class RollbackError(PromptEvaluationError):
    """Participants that could not be restored; every other one was. `failures` holds `(participant, exception)`."""

    def __init__(self, tool: str, failures: Sequence[tuple[object, Exception]]) -> None:
        told = "; ".join(f"{type(who).__name__}: {type(error).__name__}: {error}" for who, error in failures)
        super().__init__(f"the call of {tool} could not be undone in full: {told}", phase="rollback", tool=tool)
        self.failures = tuple(failures)


class DeadlineExceededError(EndsRun):
    """The deadline has passed."""


class BudgetExceededError(EndsRun):
    """More tokens were used than the budget allows; `dimension` names which, `used` and `allowed` say how many."""

    def __init__(self, *, dimension: str, used: int, allowed: int) -> None:
        super().__init__(f"the budget is used up: {dimension} is {used}, and at most {allowed} were allowed")
        self.dimension = dimension
        self.used = used
        self.allowed = allowed


class VisibilityExpansionRequired(EndsRun):
    """The model asked for sections that are rendered as summaries: render the prompt again with them opened.

    Attributes:
        section_keys: dotted paths of the sections to open.
        reason: what the model gave as its reason.
        requested_overrides: what to open them to, by dotted path.
    """

    def __init__(
        self,
        message: str,
        *,
        section_keys: Sequence[str] = (),
        reason: str = "",
        requested_overrides: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.section_keys = tuple(section_keys)
        self.reason = reason
        self.requested_overrides = dict(requested_overrides or {})
