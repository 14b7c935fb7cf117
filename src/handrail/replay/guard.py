"""The guard of a replay: what is outside comes from the record, and each call is compared once it has ended.

| | comes from |
|---|---|
| a reply of a model | the record; the model is not asked |
| a result of a tool that may act outside, or did then | the record of the same call; its handler never runs |
| an answer to a question of a policy | the record of the call |
| the time that a call asks its context for | the record of the call |
| a folder | a copy, as of the beginning |
| anything else | today's code |

A call that may act outside, and whose handler has not run in the record, is a difference. So is one of a tool that
acted outside in the record, and does not now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from handrail.errors import PlanRefusedError, ReplayEndedError, SessionError
from handrail.prompt import Approval, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.replay.journal import Difference, DifferenceKind, Journal, JournalCall, JournalReply, first_difference
from handrail.runtime.calls import declared_result
from handrail.runtime.execution import ASYNC
from handrail.runtime.guard import AskModel, Workplace
from handrail.session import DatabaseConnection, Session
from handrail.session.calls import CallRef
from handrail.session.conversation import RECORDED_REPLY
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.store.protocol import change_effect
from handrail.undo.guards import CopyGuard


@dataclass(slots=True, eq=False)
class ComparedSession:
    """A recorded session and its replay.

    Attributes:
        original: the journal of the one.
        replayed: the journal of the other, as far as it was read.
        compared: the calls that were compared.
        given: how many of the recorded replies were given.
        asked: how many of the requests were compared.
        changed: the parts of requests that are known to differ.
    """

    original: Journal
    replayed: Journal
    compared: set[CallRef] = field(default_factory=set[CallRef])
    given: int = 0
    asked: int = 0
    changed: dict[str, Any] = field(default_factory=dict[str, Any])

    def place(self, call: JournalCall) -> float:
        """The place of a call in the recorded session; further ones come last."""
        original = self.original.calls.get(call.ref)
        return math.inf if original is None else original.entry.number


class ReplayGuard(CopyGuard):
    """The guard of a replay; see this module.

    Attributes:
        differences: those that were found, in the order in which they were.
        sessions: the sessions of the run, by the ids of the replay.
    """

    name = "replay"
    kind = "a replay"

    def __init__(  # noqa: PLR0913 - what is compared, and how
        self,
        store: Store,
        original: Journal,
        replay: SessionRow,
        copy: Callable[[Path, int], Workplace],
        *,
        acting: Collection[str],
        reports_all: bool,
    ) -> None:
        super().__init__(replay.session_id)
        self.differences: list[Difference] = []
        replayed = Journal(store, replay.session_id, replay.head, self._clean)
        self.sessions: dict[str, ComparedSession] = {replay.session_id: ComparedSession(original, replayed)}
        self._store = store
        self._copy = copy
        self._reports_all = reports_all
        self._acting = acting
        self._in_doubt: set[str] = set()
        self._ids: set[str] = {replay.session_id}
        self._acts: set[tuple[str, CallRef]] = set()
        self._asked: set[tuple[str, CallRef]] = set()
        self._free_keys(original)

    # ---------------------------------------------------------------------------------------------- what is outside

    def stand_in(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        """The tool with its record for a handler, if it may act outside, or did in the record."""
        if not (tool.may_act or tool.name in self._acting):
            return tool

        def answer(_params: object, /, *, context: ToolContext) -> ToolResult[Any]:
            return self._answer(tool, context)

        return self.replaced(tool, handler=answer, undo=None, capture=None, preview=None)

    def _answer(self, tool: Tool[Any, Any], context: ToolContext) -> ToolResult[Any]:
        pair, ref = self.pair(context.session.session_id), context.call.storable
        call = pair.original.calls.get(ref)
        record = {} if call is None else call.record
        doubt = _doubt(record.get("effect_key"), tool.name)
        # What a repeat of an effect in doubt reads comes from the record, unless it would act today.
        acts_again = tool.on_orphan == "retry" or (
            tool.idempotency is None and tool.external is not None and tool.external.repeat_unknown == "allow"
        )
        is_repeat = doubt in self._in_doubt and not acts_again
        if call is None or (tool.may_act and not is_repeat and record.get("handler_seconds") is None):
            self._acts.add((pair.original.session_id, ref))
            return ToolResult.error(f"{tool.name} was not run: the recorded run has not acted outside by this call")
        if record["success"]:
            return declared_result(tool, pair.original.event(call))
        if not record["final"]:
            self._in_doubt.add(doubt)
        return ToolResult.error(str(record["message"]))

    async def reply(self, session: Session, request: Mapping[str, Any], ask: AskModel) -> Any:  # noqa: ANN401, ARG002 - the protocol's
        """The next recorded reply of the session, once the calls before it have been compared."""
        self._ids.add(session.session_id)
        await ASYNC.write_to(session.store, self.compare_new)
        self.raise_end()
        pair = self.sessions[session.session_id]
        if pair.given == len(pair.original.replies):
            self._add("request", pair, None, "an answer", "the model is asked once more")
            raise ReplayEndedError("the replay asks the model more often than the recorded run")
        reply = pair.original.replies[pair.given]
        pair.given += 1
        if isinstance(reply.message, list):
            raise SessionError("a reply of several messages is replayed by the executor, and not by the run")
        message: dict[str, Any] = reply.message
        if message.get("kind") == "response":
            metadata: dict[str, Any] = message.get("metadata") or {}
            message = {**message, "metadata": {**metadata, RECORDED_REPLY: reply.name}}
        return message

    def note_questions(self, session_id: str, call: CallRef, questions: Iterable[str]) -> Approval:  # noqa: ARG002 - the protocol's
        """The recorded answer to questions about a call; no, if it has none."""
        name = self._recorded_id(session_id)
        self._asked.add((name, call.storable))
        if (decision := self.sessions[self.root].original.approvals.get((name, call))) is not None:
            return Approval(approved=decision["verdict"] == "allow", reason=decision["reason"])
        verdict, _, reason = (self._record(session_id, call).get("decisions") or [""])[-1].partition(": ")
        return Approval(approved=verdict == "approved", reason=reason)

    def times(self, session_id: str, call: CallRef) -> Sequence[datetime]:
        """The recorded times of a call."""
        return [datetime.fromisoformat(text) for text in self._record(session_id, call).get("times") or ()]

    def _record(self, session_id: str, call: CallRef) -> dict[str, Any]:
        pair = self.sessions.get(session_id)
        original = None if pair is None else pair.original.calls.get(call.storable)
        return {} if original is None else original.record

    def _recorded_id(self, session_id: str) -> str:
        return self.sessions[self.root].original.session_id + session_id.removeprefix(self.root)

    def workplace(self, folder: Path) -> Workplace:
        """The copy of a folder, as it was at the beginning."""
        copies = [place for place in self.places.values() if place.folder == folder]
        if not copies and folder not in self.places:
            self.places[folder] = self._copy(folder, len(self.places))
        return copies[0] if copies else self.places[folder]

    def _clean(self, text: str) -> str:
        text = text.replace(self.root, self.sessions[self.root].original.session_id)
        for folder, place in self.places.items():
            text = text.replace(str(place.folder), str(folder))
        return text

    def watch(self, session: Session, connection: DatabaseConnection, call: CallRef) -> DatabaseConnection:  # noqa: ARG002 - the protocol's
        """The database as it is."""
        return connection

    def _free_keys(self, original: Journal) -> None:
        # Keys that all sessions share are claimed anew, as by the recorded run. What a killed process has left in doubt
        # is refused again, though no call of the replay has begun it.
        name = original.session_id
        shared = (self._store.get("", str(call.record.get("effect_key"))) for call in original.calls.values())
        own = {row for row in shared if row is not None and f"{row.owner.session_id}/".startswith(f"{name}/")}
        for row in (*own, *(row for row in self._store.effects_below(name) if row.partition == name)):
            owner = original.calls.get(row.owner.call.storable)
            is_refused = owner is not None and owner.record.get("refused_at") == "claim"
            if is_refused or row.status in {"unknown", "running"}:
                self._in_doubt.add(_doubt(row.key, row.tool))
        for row in own:
            change_effect(self._store, row, None)

    # ------------------------------------------------------------------------------------------------ what is compared

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:  # noqa: ARG002 - the protocol's
        """Stops a replay that has ended; refuses a call that would change a real folder."""
        self.raise_end()
        self._ids.add(context.session.session_id)
        self.hold(context)
        return PolicyDecision.allow()

    def pair(self, session_id: str) -> ComparedSession:
        """A session of the replay with its recorded one; raises `StoreError`."""
        pair = self.sessions.get(session_id)
        if pair is None:
            original = Journal(self._store, self._recorded_id(session_id), 0)
            original.read()
            self._free_keys(original)
            replayed = Journal(self._store, session_id, 0, self._clean)
            pair = self.sessions[session_id] = ComparedSession(original, replayed)
        return pair

    def compare_new(self, answers: Mapping[CallRef, str] | None = None) -> None:
        """Compares the calls that have ended since; `answers` is what the model read of some."""
        for pair in [self.pair(session_id) for session_id in sorted(self._ids)]:
            ended = pair.replayed.read()
            asked = zip(pair.original.replies[pair.asked :], pair.replayed.replies[pair.asked :], strict=False)
            pair.asked = len(pair.replayed.replies)
            for original, replayed in asked:
                self.compare_request(pair, original, replayed)
            for call in sorted(ended, key=pair.place):
                if answers is not None and call.ref in answers:
                    call.answer = answers[call.ref]
                self._compare(pair, call)

    def compare_request(self, pair: ComparedSession, original: JournalReply, replayed: JournalReply) -> None:
        """Compares two requests; what is known to differ is not reported again."""
        changes = original.changes(replayed)
        names = [name for name, change in changes.items() if pair.changed.get(name) != change]
        pair.changed = changes
        if names:
            first = next((call for call in pair.original.calls.values() if call.ref.reply == original.name), None)
            was, now = ({name: changes[name][side] for name in names} for side in (0, 1))
            self._add("request", pair, first, was, now)

    def _compare(self, pair: ComparedSession, call: JournalCall) -> None:
        original, session_id = pair.original.calls.get(call.ref), pair.original.session_id
        pair.compared.add(call.ref)
        if original is None:
            self._add("further call", pair, call, None, call.record.get("arguments"))
            return
        decision = self.sessions[self.root].original.approvals.get((session_id, call.ref)) or {"by": "rule"}
        original.asked = original.record.get("decisions") is not None or decision["by"] != "rule"
        call.asked = (session_id, call.ref) in self._asked
        original.acts = original.acts and (session_id, call.ref) not in self._acts
        if (kind := first_difference(original, call)) is not None:
            self._add(kind, pair, original, original.side(kind), call.side(kind))

    def finish(self, end: BaseException | None) -> None:
        """Compares what is left; recorded calls that were not made are differences. Raises what ended it at once."""
        self.compare_new()
        has_begun = self.differences or any(pair.compared for pair in self.sessions.values())
        if isinstance(end, PlanRefusedError) or (end is not None and not has_begun):
            raise end
        now = None if end is None else f"the run has ended with {type(end).__name__}: {end}"
        for pair in self.sessions.values():
            for call in (one for ref, one in pair.original.calls.items() if ref not in pair.compared):
                self._add("missing call", pair, call, call.record.get("arguments"), now)

    def _add(self, kind: DifferenceKind, pair: ComparedSession, call: JournalCall | None, was: Any, now: Any) -> None:  # noqa: ANN401 - JSON
        if self._reports_all or not self.differences:
            ref, tool = ("", "") if call is None else (str(call.ref), call.tool)
            self.differences.append(Difference(kind, ref, tool, pair.original.session_id, was, now))

    def raise_end(self) -> None:
        """Raises `ReplayEndedError` once there is a difference, unless all are reported."""
        if self.differences and not self._reports_all:
            raise ReplayEndedError("the replay has ended with its first difference")


def _doubt(key: str | None, tool: str) -> str:
    # What is in doubt: an effect by its key, or by its tool if the key is that of one call.
    return tool if key is None or key.startswith("call:") else key
