"""What the runtime must do, as data: every id here is shown by a test, and every test's id is one of these.

A test names what it shows with `@pytest.mark.requirement("S-04a")`, several ids at once if need be; a parametrised row
does it with `pytest.param(..., marks=pytest.mark.requirement("E-02"))`. `tests/architecture/test_requirements.py` holds
the two to each other. A number is a row of its source, a letter one outcome of that row.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REQUIREMENTS", "Requirement"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that must hold, where it comes from, and what it asks for."""

    id: str
    source: str
    behaviour: str


def _rows(source: str, rows: tuple[tuple[str, str], ...]) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, source, behaviour) for key, behaviour in rows)


_STEPS = _rows(
    "step table of handrail/runtime/invoke.py",
    (
        ("S-01", "the tool is looked up in the rendered prompt"),
        ("S-01a", "an unknown name is a failed message with the known names and the nearest one"),
        ("S-01b", "a tool without a handler is a failed message"),
        ("S-02", "arguments are parsed strictly, unknown fields forbidden"),
        ("S-02a", "bad arguments are a failed message with every fault, its path, and the tool's first example"),
        ("S-03", "a call takes its turn in the order of arrival"),
        ("S-03a", "a call cancelled while it waits leaves the queue"),
        ("S-03b", "a call whose deadline passes while it waits leaves the queue"),
        ("S-04", "every policy must allow"),
        ("S-04a", "a denial is a failed message that names the policy"),
        ("S-04b", "a policy that raises denies"),
        ("S-05", "approval is asked for only where a policy said ask, and no transaction is open yet"),
        ("S-05a", "a refused approval is a failed message"),
        ("S-05b", "without an approver, ask means deny"),
        ("S-05c", "a question that an approver leaves open postpones its call alone"),
        ("S-06", "a passed deadline is a PromptEvaluationError of phase tool, and the handler does not start"),
        ("S-07", "an external tool, and one with idempotency, claims its effect key before the handler starts"),
        ("S-07a", "a hit skips the handler and goes on with the stored result"),
        ("S-07b", "a busy key is a failed message"),
        ("S-07c", "a key with other parameters replays its result and names those recorded, or is a failed message"),
        ("S-07d", "an effect whose outcome is unknown is a failed message"),
        ("S-08", "a transaction and a TOOL_CALL scope are open while the handler runs"),
        ("S-09", "the handler gets the parameters and the context, bounded by its timeout and the deadline"),
        ("S-10", "a success goes through on_result, the reducers of the value, and the subscribers, in this order"),
        ("S-10a", "a failing on_result rolls back and fails the call"),
        ("S-10b", "a failing reducer rolls back and fails the call"),
        ("S-10c", "a failing subscriber rolls back and fails the call"),
        ("S-10d", "a hit is applied only if this session has not applied it"),
        ("S-11", "a success is committed, its claim completed, its turn given up"),
        ("S-11a", "whatever is not a success is rolled back, its claim failed or given up, its turn given up"),
        ("S-12", "every call appends exactly one ToolInvoked, whatever the outcome"),
        ("S-12a", "a postponed call is undone and not recorded; it is recorded when it is carried out"),
        ("S-12b", "an interrupt of an approver leaves the question open, and records no call of the reply as failed"),
        ("S-13", "every call that does not end the run is answered with one message"),
    ),
)

_EXCEPTIONS = _rows(
    "exception table of handrail/runtime/invoke.py",
    (
        ("E-01", "ToolValidationError is a failed result"),
        ("E-02", "a TypeError of calling the handler wrongly is a failed result that says what it must accept"),
        ("E-03", "VisibilityExpansionRequired and PromptEvaluationError are rolled back, recorded and re-raised"),
        ("E-04", "DeadlineExceededError becomes PromptEvaluationError"),
        ("E-05", "CancelledError, KeyboardInterrupt and any other BaseException are rolled back and re-raised"),
        ("E-05a", "a cancellation of what a call awaits, which is not one of the call, is a failed result"),
        ("E-06", "a handler's timeout is rolled back and fenced; an external tool's outcome is told as unknown"),
        ("E-07", "any other Exception is logged, and a failed result with type and message but no traceback"),
    ),
)

_ROLLBACK = _rows(
    "rollback is exact in session and files",
    (
        ("M-03a", "after an error result"),
        ("M-03b", "after an exception"),
        ("M-03c", "after a BaseException"),
        ("M-03d", "after a cancellation"),
        ("M-03e", "after a timeout"),
        ("M-03f", "after a failing reducer"),
        ("M-03g", "after a failing subscriber"),
        ("M-03h", "after a failing on_result"),
        ("M-03i", "a timed-out thread that writes later changes nothing"),
        ("M-03j", "a thread or task that writes through the context of an ended call changes nothing"),
    ),
)

_TOGETHER = _rows(
    "calls side by side",
    (
        ("M-04a", "of twenty calls on one session, writers run one at a time in the order asked"),
        ("M-04b", "readers run in parallel"),
        ("M-04c", "a failing call never undoes another's committed change"),
        ("M-05", "64 threads with one idempotency key start one handler, and all get the same answer"),
    ),
)

_DOORS = _rows(
    "documents and doors",
    (
        ("M-01", "every code block of documents 000, 001 and 003 runs with only the package name changed"),
        ("M-02", "one script of calls leaves the same state, ledger and events through every door"),
    ),
)

_BAD_INPUT = _rows(
    "bad input is answered with what to do",
    (
        ("M-06a", "malformed JSON"),
        ("M-06b", "a JSON array"),
        ("M-06c", "an unknown tool"),
        ("M-06d", "an unknown field"),
        ("M-06e", "a wrong type"),
        ("M-06f", "a missing field"),
        ("M-06g", "NaN"),
        ("M-06h", "10 MB of arguments"),
        ("M-06i", "deep nesting"),
        ("M-06j", "lone surrogates"),
        ("M-06k", "a params type that is not a dataclass"),
        ("M-06l", "a handler with the wrong signature"),
        ("M-06m", "a result of the wrong type"),
        ("M-06n", "circular resources"),
        ("M-06o", "duplicate tools"),
        ("M-06p", "two policies of one name"),
        ("M-06q", "a naive deadline"),
    ),
)

_AGENTS = _rows(
    "agents by name",
    (
        ("A-01", "the lists `tools` and `toolsets` of an agent file are read in order; absent or empty means none"),
        ("A-02", "a list that is none, or holds what is no name, is told with file, field and item"),
        ("A-03", "settings of toolsets in an agent file are refused: names only, the rest in Python"),
        ("A-04", "an unknown key is told with the nearest one, a bad name with the allowed pattern"),
        ("A-05", "a module without TOOLS and __all__ has no tools, whatever functions it has"),
        ("A-06", "TOOLS as a list, tuple or dict registers functions and tools by name"),
        ("A-07", "TOOLS wins over __all__; empty means none, and None is an error"),
        ("A-08", "without TOOLS, exactly the names of __all__ are registered"),
        ("A-09", "one error lists every offender of a module"),
        ("A-10", "a toolset among TOOLS, and a tool among TOOLSETS, is told where it belongs"),
        ("A-11", "a toolset class is refused: an instance or a factory is due"),
        ("A-12", "two of one name are told with both origins"),
        ("A-13", "a name that is not the tool's own, and what has no name, is a clear error"),
        ("A-14", "functions that are decorated for an agent are not picked up"),
        ("A-15", "a module is imported once, with its siblings; one that fails is told by its file and can be mended"),
        ("A-16", "one name may stand for a tool and a toolset; the field decides"),
        ("A-17", "a name in the wrong field is told with agent, file, field, and where it belongs"),
        ("A-18", "what a program registers is the same object, unchanged, after runs"),
        ("A-19", "a factory is called once for each run, or for each step if Python says so"),
        ("A-20", "an async factory works; None means no tools"),
        ("A-21", "a factory that makes no toolset is told with its name and what it returned, and nothing was entered"),
        ("A-22", "a factory may return dynamic, combined and prefixed toolsets; their tools are there"),
        ("A-23", "a function that takes no context is refused as a factory before any run"),
        ("A-24", "each run enters and leaves a toolset once, also when it fails or is cancelled"),
        ("A-25", "runs after each other share an instance; runs side by side have products of their own"),
        ("A-26", "nested runs have factories of their own, shared instances nest and return to zero"),
        ("A-27", "a toolset that cannot be entered has those before it left, and its error reaches the caller"),
        ("A-28", "what a call has changed is undone when its run fails"),
        ("A-29", "each call is asked about once over several runs, and no instance is wrapped"),
        ("A-30", "deny-all runs nothing of any kind of tool; the model reads a failed result, and the run goes on"),
        ("A-31", "PydanticAI's own approvals work unchanged, and are asked once"),
        ("A-32", "nested agents are asked about by the same policy, with the path of agents and validated arguments"),
        ("A-33", "questions come one at a time, all before any call of the reply runs; nothing is open meanwhile"),
        ("A-34", "tool names that are taken twice are told all at once, with every origin"),
        ("A-35", "PydanticAI's own check stays behind ours; a prefix resolves a conflict"),
        ("A-36", "built-in toolsets are factories, fresh for each run, confined to their root"),
        ("A-37", "agents that call each other too deep are stopped, and the caller is told"),
        ("A-38", "a made agent has no more than its maker, and can be called in the reply that makes it"),
    ),
)

REQUIREMENTS: tuple[Requirement, ...] = (*_STEPS, *_EXCEPTIONS, *_DOORS, *_ROLLBACK, *_TOGETHER, *_BAD_INPUT, *_AGENTS)
"""All of them, in the order in which a reader of the pipeline meets them."""
