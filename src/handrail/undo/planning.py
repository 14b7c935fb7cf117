"""The plan of an undo: a function of the record of a session and of what is there now. It changes nothing.

Calls are looked at from the newest to the oldest, as they would be undone. What a step would restore is what the older
ones are compared with.

| outcome | the call |
|---|---|
| `restored` | changed slices or files, which are as it left them: they are restored exactly |
| `compensated` | has an effect outside, and its tool has `undo`; what it changed besides is restored |
| `unknown` | has perhaps had an effect: settle that first |
| `impossible` | cannot be undone: the tool has no `undo`, what is needed is not kept, or it called an agent |
| `conflict` | left something that has been changed since, and not by a call of the session |
| `blocked` | left something that a later call which stays has changed, or was asked for with |

The first in this order counts: unknown, impossible, conflict, blocked. A call that changed nothing needs no step. A
change that only appended to a slice does not depend on later ones that did the same, so these do not block it.

A call is undone once. Its undo is not undone: what it has taken back is done anew.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, cast

from handrail.adapters.loop import check_one_store
from handrail.adapters.settlement import SETTLED
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import SessionUseError
from handrail.errors.developer import check_argument
from handrail.filesystem import Filesystem
from handrail.prompt import Tool
from handrail.prompt.undo import FILES_ALONE
from handrail.runtime.calls import written_arguments
from handrail.runtime.environment import Environment
from handrail.runtime.undo_records import registrations
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.transaction import current
from handrail.transaction.changes import MOST_CHANGES
from handrail.transaction.undoing import NOT_KEPT, KeepsUndo, UndoImage
from handrail.undo.plan_file import Names, plain_value
from handrail.undo.records import OF_SESSION, CallHistory, SessionHistory, SliceEntry, read_history
from handrail.undo.steps import KeptFiles, Stay, UndoPlan, UndoStep, UndoWork, load_params, slice_kind, with_result

_RANK: Final[Mapping[str, int]] = {"unknown": 0, "impossible": 1, "conflict": 2, "blocked": 3}

_SHORTEST_NAME: Final = 4  # a shorter one occurs by chance


def plan(
    session: Session,
    to: tuple[str | None, str] | str | None = None,
    *,
    executors: ToolExecutor | Iterable[ToolExecutor],
    after: int = 0,
) -> UndoPlan:
    """Plans the undo of the calls of a stored session; changes nothing.

    Args:
        session: the session, open.
        to: the oldest call that is undone, as `(reply, call id)` or as a plan writes it; its id alone if that is
            unique, and `/ID` for one without a reply; by default the first call of the session.
        executors: those that have the tools, and the files, of its calls. `executor.settle_open()` asks the reconcilers
            of effects that are unknown, before a plan is made.
        after: without `to`, the entry of the journal after which the calls are recorded.

    Raises:
        SessionUseError: the session is not stored, has no such call, or a call runs here; or an executor has another.
        SecondStoreError: an executor has its ledger in another store.
        StoreError: the store cannot be read.
    """
    together = (executors,) if isinstance(executors, ToolExecutor) else tuple(executors)
    environments = _check(session, together)
    if (recorder := session.recorder) is None:
        raise AssertionError
    if error := recorder.flush():
        raise error
    row = recorder.session_lock.row._replace(head=recorder.head)
    history = read_history(recorder.store, row, environments[0].find_ledger(), recorder.kinds)
    if to is not None:
        oldest = _find_call(history, to)
        # The calls nested in it are recorded before it.
        inside = [call.number for call in history.calls.values() if oldest.ref in call.ref.ancestors]
        after = min(oldest.number, *inside, oldest.number) - 1
    return UndoPlan(session, tuple(_Planning(session, environments, history, after).steps()), after, together)


def _find_call(history: SessionHistory, to: tuple[str | None, str] | str) -> CallHistory:
    ref = CallRef.parse(to) if isinstance(to, str) else CallRef(*to)
    own = history.calls.get(CallRef(ref.reply or None, ref.call_id).storable)
    calls = [call for call in history.calls.values() if call is own or (own is None and call.ref.call_id == to)]
    if len(calls) != 1:
        raise SessionUseError(
            f"the session has {len(calls)} calls {ref}; handrail undo SESSION --dry-run names its calls"
        )
    return calls[0]


def _check(session: Session, executors: tuple[ToolExecutor, ...]) -> tuple[Environment, ...]:
    if session.recorder is None:
        raise SessionUseError(
            f"session {session.session_id!r} is in memory, so its calls cannot be undone later: open it with "
            "Session.open(store, session_id)"
        )
    if current() is not None:
        raise SessionUseError("calls are undone between calls, not by one")
    for executor in executors or cast("tuple[ToolExecutor, ...]", (None,)):
        check_argument("undo.plan", "executors", executor, ToolExecutor, "a ToolExecutor of the session, or several")
        if executor.environment.session is not session.unbound:
            raise SessionUseError(f"undo.plan: an executor has another session than {session.session_id!r}")
        check_one_store("undo", executor.environment)
    return tuple(executor.environment for executor in executors)


class _Planning:
    def __init__(
        self, session: Session, environments: tuple[Environment, ...], history: SessionHistory, after: int
    ) -> None:
        self.session = session
        self.environments = environments
        self.history = history
        self.calls = [call for call in history.calls.values() if call.number > after and not call.cancelled]
        self.registrations = registrations(session)
        self.slices = history.slices  # the changes of each that are not undone by the plan so far
        self.participants = _participants(environments)
        self.images: dict[tuple[int, str], UndoImage] = {}  # what is at each path, when the newer calls are undone
        self.path_users: dict[tuple[int, str], CallRef] = {}  # of the calls that stay: who has changed a path
        self.names: dict[CallRef, Names] = {}  # and what they were made with

    def steps(self) -> Iterator[UndoStep]:
        for call in sorted(self.calls, key=lambda one: one.number, reverse=True):
            if (step := self._step(call)) is not None:
                if not step.is_undone:
                    self._let_stay(call, step)
                yield step

    def _step(self, call: CallHistory) -> UndoStep | None:
        places = self._find_tool(call)
        tool, environment = places[0] if places else (None, None)
        acts = _acts(tool) and (call.effect == "this" or (call.result is not None and call.effect == "none"))
        acts |= tool is None and call.effect == "this"
        ids = () if call.event is None or call.result is None else call.event.undo or ()
        child = self._find_child(call)
        if not (acts or ids or call.changes or child or call.effect == "unknown"):
            return None
        arguments = None if call.event is None else written_arguments(call.event.call)
        step = UndoStep(call.ref, call.tool, arguments, "impossible")
        if (key := self._unknown_key(call, tool)) is not None:
            returns = call.effect == "unknown" and tool is not None and tool.result_type is not None
            words = ["handrail", "ledger", "reconcile", key, "--happened", *(["--value", "JSON"] if returns else [])]
            if len(list(self.environments[0].find_ledger().store.rows(key))) > 1:
                words += ["--partition", self.session.session_id if key.startswith(OF_SESSION) else ""]
            why = f"it is unknown whether it has happened; if it has: {shlex.join(words)}"
            return replace(step, outcome="unknown", why=why)
        if child:
            return replace(step, why=f"it ran an agent, whose calls stay; handrail undo {child}")
        if tool is None or environment is None or call.event is None:
            return replace(step, why=f"no executor here has the tool {call.tool}")
        if len(places) > 1 and acts:
            return replace(step, why=f"several executors have a tool {call.tool}; plan with the one whose call it is")
        work = self._work(UndoWork(call, call.event, environment, tool), ids, compensates=acts)
        return replace(step, why=work) if isinstance(work, str) else self._compare(step, work)

    def _work(self, work: UndoWork, ids: Iterable[str], *, compensates: bool) -> UndoWork | str:
        """What it takes to undo a call; text if that is impossible."""
        call, tool = work.call, work.tool
        if compensates and tool.undo is None:
            return f"{tool.name} has no undo"
        unkept = [name.removeprefix(NOT_KEPT) for name in ids if name.startswith(NOT_KEPT)]
        if unkept and not compensates:
            return f"{', '.join(unkept)} keeps nothing for undo, and {tool.name} has no undo"
        every: list[KeptFiles] = []
        for undo_id in ids:
            if not undo_id.startswith(NOT_KEPT):
                if (files := self._find_kept(undo_id)) is None:
                    return "what its files were before is not kept here, or no longer"
                every.append(files)
        for change in call.changes:
            if slice_kind(self.session, change.entry.type_name) is None:
                return f"the class of the slice {change.entry.type_name} is not known here"
        if isinstance(params := load_params(tool, work.event), str):
            return params
        work = replace(work, params=params[0], files=tuple(every))
        # What the program has settled is recorded inside the call, which was registered.
        outer = call.ref.parent if call.ref.call_id == SETTLED else None
        return with_result(work, self.registrations.get(outer or call.ref)) if compensates else work

    def _compare(self, step: UndoStep, work: UndoWork) -> UndoStep:
        verdicts = [*map(self._judge_slice, work.call.changes), *map(self._judge_paths, work.files)]
        verdicts.append(self._judge_use(work))
        if stays := [verdict for verdict in verdicts if verdict is not None]:
            outcome, why = min(stays, key=lambda verdict: _RANK[verdict[0]])
            changes = tuple(islice(work.describe(self.session), MOST_CHANGES if outcome == "conflict" else 0))
            return replace(step, outcome=outcome, why=why, changes=changes)
        for change in work.call.changes:
            self.slices[change.entry.type_name].remove(change)
        for files in work.files:
            self.images |= {(id(files.participant), change.path): change.before for change in files.changes}
        changes = tuple(islice(work.describe(self.session), MOST_CHANGES))
        return replace(step, outcome="restored" if work.result is None else "compensated", changes=changes, work=work)

    def _judge_slice(self, change: SliceEntry) -> Stay | None:
        name = change.entry.type_name
        changes = self.slices[name]
        if changes[-1] is change:
            return None
        later = changes[changes.index(change) + 1 :]
        if change.is_append and all(other.is_append for other in later):
            return None
        if (user := later[-1].call) is None:
            return "conflict", f"the slice {name} has been changed outside of calls since"
        return "blocked", f"call {user}, which stays, has changed the slice {name} since"

    def _judge_paths(self, files: KeptFiles) -> Stay | None:
        own = id(files.participant)
        if unseen := [change.path for change in files.changes if (own, change.path) not in self.images]:
            self.images |= {(own, path): image for path, image in files.participant.present_images(unseen).items()}
        others = [change.path for change in files.changes if self.images[own, change.path] != change.after]
        for path in others:
            if (own, path) not in self.path_users:
                return "conflict", f"{path} has been changed since, and not by a call of this session"
        if others:
            return "blocked", f"call {self.path_users[own, others[0]]}, which stays, has changed {others[0]} since"
        return None

    def _judge_use(self, work: UndoWork) -> Stay | None:
        if not self.names:
            return None
        paths = [change.path for files in work.files for change in files.changes]
        value = plain_value(work.event.result.value) if work.event.value_read is None else work.event.value_read
        result = Names.read([value, paths], work.event.result.message)
        own = Names.read(written_arguments(work.event.call))
        for user, names in self.names.items():
            for name in sorted(names.in_common(result, own, besides=paths)):
                if len(name) >= _SHORTEST_NAME:
                    return "blocked", f"call {user}, which stays, was made with {name!r}"
        return None

    def _let_stay(self, call: CallHistory, step: UndoStep) -> None:
        self.names[call.ref] = Names.read(step.arguments)
        for undo_id in () if call.event is None else call.event.undo or ():
            if (files := self._find_kept(undo_id)) is not None:
                self.path_users |= {(id(files.participant), change.path): call.ref for change in files.changes}

    def _find_kept(self, undo_id: str) -> KeptFiles | None:
        for participant in self.participants:
            if (changes := participant.undo_changes(undo_id)) is not None:
                return KeptFiles(participant, undo_id, changes)
        return None

    def _find_tool(self, call: CallHistory) -> list[tuple[Tool[Any, Any], Environment]]:
        places: list[tuple[Tool[Any, Any], Environment]] = []
        for environment in self.environments:
            placed = (tool for tool, _ in environment.prompt.template.placed_tools() if tool.name == call.tool)
            if (tool := environment.tool(call.tool) or next(placed, None)) is not None:
                places.append((tool, environment))
        return places

    def _unknown_key(self, call: CallHistory, tool: Tool[Any, Any] | None) -> str | None:
        """The key of the effect of a call, or of its undo, that has to be settled first."""
        if call.effect == "unknown":
            return (call.event and call.event.effect_key) or (call.claim and call.claim.key) or ""
        if (undo := call.undo) is None or undo.claim is None or undo.claim.state == "unapplied":
            return None
        # One that can find out is asked when the undo is made again.
        effect = None if tool is None or tool.undo is None else tool.undo.effect
        is_asked = effect is not None and (effect.reconcile is not None or effect.on_orphan == "retry")
        return None if is_asked else undo.claim.key

    def _find_child(self, call: CallHistory) -> str:
        """The session of an agent that a call has run, if something of it is left; else empty."""
        if (store := self.session.store) is None:
            return ""
        for ref in (call.ref, CallRef.nested(call.ref, "2")):
            if (row := store.find(f"{self.session.session_id}/{ref.key}")) is None:
                break
            calls = read_history(store, row, self.environments[0].find_ledger(), {}).calls.values()
            if any(map(_leaves, calls)):
                return row.session_id
        return ""


def _acts(tool: Tool[Any, Any] | None) -> bool:
    return tool is not None and tool.undo is not FILES_ALONE and (tool.effect == "external" or tool.undo is not None)


def _leaves(call: CallHistory) -> bool:
    ids = None if call.event is None or call.result is None else call.event.undo
    return not call.cancelled and bool(call.changes or ids or call.effect in {"this", "unknown"})


def _participants(environments: Iterable[Environment]) -> list[KeepsUndo]:
    values: dict[int, object] = {}
    for resources in (environment.resources for environment in environments):
        own = resources.get(Filesystem, None)  # first: it may make others
        values |= {id(value): value for value in (own, *resources.lifetime.values.values())}
    return [value for value in values.values() if isinstance(value, KeepsUndo)]
