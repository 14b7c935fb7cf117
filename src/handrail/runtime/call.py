"""The state of one call in the pipeline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from handrail.crash_points import reached
from handrail.errors import (
    CallIdReusedError,
    CallPostponed,
    DeadlineExceededError,
    RecordingError,
    SessionBusyError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.interrupts import allow_interrupts
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.disclosure import OpenSections
from handrail.redaction import CALL_SECRETS, CallSecrets, redacted, redacted_logger
from handrail.resources.context import CallScope
from handrail.runtime.calls import CallObserver, CallPoint, Step, ToolInvoked, masked_record, masked_result, secrets_in
from handrail.runtime.environment import Environment
from handrail.runtime.execution import CallTurn, ExecutionMode, ReadingForm, run_to_end
from handrail.runtime.failures import STORE_GONE, as_sentence
from handrail.runtime.ledger.replays import NO_CLAIM, Claim, leave_unread
from handrail.runtime.plan import ToolPlan, find_plan
from handrail.serde import Masking
from handrail.session.calls import CallRef, ToolCall
from handrail.transaction import Transaction, current
from handrail.transaction.changes import CallChange, collect_changes, has_files
from handrail.transaction.transaction import NestedCall, NestedCalls
from handrail.transaction.undoing import keep_undo

if TYPE_CHECKING:
    from handrail.prompt import ApprovalRequest, ToolPolicy
    from handrail.session import Session
    from handrail.session.persistence.protocol import SessionHeld

T = TypeVar("T")

_log = redacted_logger("handrail.runtime")


class CallState:
    """The state that changes while a call runs; created by `invoke`, passed to its steps.

    Attributes:
        ref: the identity of the call within its session.
        reply: the reply of the model that asked for it, as the caller named it.
        reply_end: the newest end of that reply by an interrupt when this one arrived; `None` if there was none.
        resources: where the handler gets its resources; owns those of this call alone.
        refused_at: the step that refused the call or failed.
        raises: what is raised after the call has been recorded.
        claim_conditions: the locks that must be valid for the claim to be granted.
        claim: the right to run the handler, once the transaction has begun.
        committed_event: the event that records the call, if it was committed together with it.
        has_identity: the session recognizes a repeat: without a reply only a stored one does, and of nested calls none.
        is_final: a repeat is answered from the record, unless the claim is unsettled; see `ToolInvoked.final`.
        opening: which sections of the prompt the call opens, written in one unit with its record.
        refusal: what the handler raised to fail the call.
        open_question: what an approver was asked and has not answered.
        secrets: those of its arguments and result, which all texts about it are searched for; `None` until it has some.
        taint_place: the place of the item that says what it has read; `None` if it has read nothing untrusted.
        failure: the type of the exception that `refused_at` has let through; `None` for a failed result of the handler.
        observer: observes the call, for traces and metrics; `None` if nothing does.
        changes, decisions, undo, times, turn_seconds, approval_seconds: as of `ToolInvoked`.
    """

    params: Any = None
    handler_seconds: float | None = None
    turn_seconds: float | None = None
    approval_seconds: float | None = None
    effect_key: str | None = None
    refused_at: Step | None = None
    raises: BaseException | None = None
    committed_event: ToolInvoked | None = None
    claim_conditions: tuple[SessionHeld, ...] = ()
    claim: Claim = NO_CLAIM
    is_final: bool = True
    has_identity: bool = False
    opening: OpenSections | None = None
    refusal: ToolValidationError | None = None
    open_question: ApprovalRequest | None = None
    secrets: CallSecrets | None = None
    taint_place: int | None = None
    failure: type[BaseException] | None = None
    observer: CallObserver | None = None
    changes: tuple[CallChange, ...] | None = None
    decisions: tuple[str, ...] | None = None
    undo: tuple[str, ...] | None = None

    def __init__(self, call: ToolCall, reply: str | None, environment: Environment, mode: ExecutionMode) -> None:
        self.arrived: float = environment.clock.monotonic()
        self.call = call
        self.environment = environment
        self.reply: str | None = reply
        self.mode = mode
        # An adapter may hand over any value as the name, and one that is not hashable would raise.
        plan = find_plan(environment, call.name if type(call.name) is str else "", reply)
        self.plan: ToolPlan = plan
        self.tool: Tool[Any, Any] | None = plan.tool
        self.reply_end: object = environment.reply_ends.get(reply)
        self.ref: CallRef = CallRef(reply, call.id)
        self.nested_calls: NestedCalls = {}
        self.times: list[Any] | None = [] if plan.is_stored else None
        self.resources: CallScope = plan.open_scope()
        self.turn: CallTurn = CallTurn(plan.tool, environment.session)
        outer = self.turn.outer
        if outer is None:
            is_named = reply is not None or (plan.is_stored and bool(call.id))
            self.has_identity = is_named and environment.settles is None  # what is settled anew has a record
        else:
            self.is_final = False
            if reply is None and isinstance(outer.call, CallRef):
                self.ref = CallRef.nested(outer.call, call.id)
        try:  # the last: the ticket has to be released, whatever happens
            self.turn.queue(plan.tool, environment.session, environment.resources)
        except BaseException:  # interrupted; the traceback keeps this object, so `__del__` may come late
            if hasattr(self.turn, "ticket"):
                self.turn.ticket.release()
            raise

    def notify(self, point: CallPoint) -> None:
        """Notifies the observer, if there is one, of a point that the call has come to."""
        if self.observer is not None:
            self.observer.notify(point)

    @contextmanager
    def ask_approver(self, question: ApprovalRequest) -> Generator[None]:
        """A block in which the approver is asked; the question stays open if it is interrupted, or postpones."""
        questions, self.open_question = self.environment.open_questions, question
        questions.add(self.ref)
        self.notify("question_opened")
        try:
            yield
        except Exception as error:
            questions.discard(self.ref)
            if not isinstance(error, CallPostponed):
                self.open_question = None
            raise
        questions.discard(self.ref)
        self.open_question = None

    def hold(self, claim: Claim) -> None:
        """Stores the right to run the handler."""
        self.claim = claim
        self.notify("claimed")

    def record_taint(self) -> None:
        """Records that the session has read untrusted content; if it raises, the message must not leave."""
        tool, environment = self.tool, self.environment
        if tool is None or self.plan.taints is None or self.taint_place is not None:
            return  # it returns nothing untrusted, or the refusal of the effect that it repeats was read before
        from handrail.taint import Provenance, shown_arguments, taint  # noqa: PLC0415

        arguments = self.plan.dump(self.call, self.params).decode()
        provenance = Provenance(tool.name, *self.ref.storable, shown_arguments(arguments))
        # Without a reply, and inside of another call, several calls may have one name.
        is_one = self.turn.outer is None and (self.ref.reply is not None or self.has_identity)
        after = None if is_one else len(environment.session[ToolInvoked])
        self.taint_place = taint(self.plan.taints, provenance, after=after)

    def end_run(self, error: BaseException | None, *, is_final: bool = True) -> None:
        """Stores what ends the run once the call is recorded, `None` for nothing; `is_final` allows a final record."""
        self.raises = error
        self.is_final &= is_final

    def open(self, request: VisibilityExpansionRequired) -> None:
        """Stores which sections of the prompt the call opens; raises `PromptRenderError`."""
        self.opening = self.environment.rendering.opening(request, self.ref.reply)

    async def commit_opening(self, result: ToolResult[Any]) -> None:
        """Writes which sections are open in one unit with the record of the call, whose changes were rolled back."""
        session, turn, raises = self.environment.session, self.turn, self.raises
        if isinstance(raises, VisibilityExpansionRequired):
            # Once more, in the turn: an earlier call that ran at the same time may have opened others meanwhile.
            self.open(raises)
            raises.open_sections = raises.section_keys
        event = self.event(result) if self.plan.is_stored and turn.outer is None else None
        with Transaction(
            self.call.name, ticket=turn.ticket, writes=not turn.shared, parent=turn.outer, call=self.ref
        ) as transaction:
            transaction.open_for_results(session)
            if self.opening is not None:
                session[OpenSections].append(self.opening)
            if event is not None:
                session.slices.record_with(event, self.ref, transaction)
            await self.mode.commit(transaction)
        self.committed_event = event
        self.notify("committed")

    def close(self) -> None:
        """Ends the claim and closes the resources of this call, and releases its ticket, whatever the outcome."""
        try:
            self.claim.close(nested=self.turn.outer is not None)
            self.resources.close()
        except Exception:  # noqa: BLE001 - logged, because the call is over
            _log.exception("a resource of the call of %s could not be closed", self.call.name)
        finally:
            self.turn.leave()
            if self.turn.caller is not None:
                notes = self.effect_notes()  # what is final is stored; the method would keep the call in memory
                nested = NestedCall(lambda: notes, partial(leave_unread, self.claim, self.nested_calls))
                self.turn.caller.nested_calls[self.turn.ticket] = nested
            if self.secrets is not None:
                CALL_SECRETS.set(self.secrets.outer)

    def __del__(self) -> None:
        # Ctrl-C may come before `invoke` has this object, and again before `close` has begun.
        # Not through `__dict__`: that makes a dictionary, which a collection takes for a reference from outside.
        # Not `suppress`, which is three calls of Python: every call passes here.
        try:
            if not self.turn.ticket.released:
                self.turn.ticket.release()
        except AttributeError:  # interrupted before it had a turn
            pass

    def add_secrets(self, value: object, masking: Masking) -> None:
        """Adds the secrets of arguments, or of a result, to those that texts about the call are searched for."""
        if self.secrets is None:
            self.secrets = CallSecrets(CALL_SECRETS.get())
            CALL_SECRETS.set(self.secrets)
        self.secrets.add(partial(secrets_in, value, masking))

    async def take_turn(self) -> None:
        """Step TURN: waits for the turn. Raises `ReplyEndedError` if an interrupt has ended the reply meanwhile."""
        await self.turn.acquire(self.mode, self.environment.deadline)
        self.turn_seconds = self.environment.clock.monotonic() - self.arrived
        self.notify("turn_acquired")
        # Who runs the calls of the reply cancels this one, too, but its turn may come before that.
        if self.environment.reply_ends.get(self.reply) is not self.reply_end:
            from handrail.runtime.handler_loop import ReplyEndedError  # noqa: PLC0415

            raise ReplyEndedError(f"{self.call.name} was not begun: an earlier call of the reply was interrupted")

    async def by_policy(self, policy: ToolPolicy, act: Callable[[], T]) -> T:
        """Calls a method of a policy; off the event loop if that may block it."""
        if self.mode.inline:
            return allow_interrupts(act)
        from handrail.prompt.policy import policy_may_block  # noqa: PLC0415

        if self.tool is None or not policy_may_block(policy, self.tool, self.environment.session):
            return act()
        acted: T = await self.mode.run(act, is_async=False, seconds=None)
        return acted

    async def check_ready(self) -> None:
        """Step DEADLINE: checks it, and that a stored session is open; the store is asked only if the claim cannot.

        Raises:
            DeadlineExceededError: the deadline has passed.
            StoreError: the store of the session is unavailable.
            SessionError: the session has passed to another process, or the program has closed it.
        """
        deadline = self.environment.deadline
        if deadline is not None and deadline.expired:
            raise DeadlineExceededError(f"the deadline ({deadline.expires_at.isoformat()}) has passed; it was not run")
        recorder = self.environment.session.recorder
        if recorder is None:
            return
        store: object = self.environment.find_ledger().units if self.plan.claims else recorder.store
        other_store = None if store is recorder.store else recorder.store
        self.claim_conditions = await self.mode.write_to(other_store, partial(recorder.claim_conditions, store))

    async def store_deferred(self) -> Claim:
        """Step CLAIM, for a call without a claim: stores its reply, if that was deferred; raises as `write_pending`."""
        recorder = self.environment.session.recorder
        if recorder is not None and recorder.deferred:
            await self.mode.write(recorder.store, recorder.write_pending)
        return NO_CLAIM

    def recording_error(self, error: Exception, what: str) -> RecordingError:
        """The end of the run; `what` says how far the call came. See `handrail.runtime.failures`."""
        session_id, tool = self.environment.session.session_id, self.call.name
        return RecordingError(f"{tool} {what}", error, session_id=session_id, tool=tool)

    def is_unrecorded(self, error: BaseException) -> bool:
        """True if a call that raises has no record: it is still open, or its identity belongs to another call."""
        if isinstance(error, CallPostponed | CallIdReusedError):
            return True
        # Nothing of it has run by then, so that it was interrupted is not its outcome.
        is_held_back = self.refused_at is Step.TURN and self.environment.is_held_back(self.reply, self.reply_end)
        return not isinstance(error, Exception) and (self.open_question is not None or is_held_back)

    def begin(self, tool: Tool[Any, Any], claim: Claim) -> Transaction:
        """Step BEGIN: the transaction of this call, which settles the claim; a savepoint for a nested call."""
        # First: if the transaction cannot begin, the claim is settled, and the record has to state the outcome.
        self.claim = claim
        turn, recorder = self.turn, self.environment.session.recorder
        if turn.caller is not None:
            leave = partial(leave_unread, claim, self.nested_calls)
            turn.caller.nested_calls[turn.ticket] = NestedCall(self.effect_notes, leave)
        return Transaction(
            tool.name,
            ticket=turn.ticket,
            writes=tool.writes,
            parent=turn.outer,
            concurrent=tool.concurrent,
            untracked=self.plan.participants(),
            enlisted=claim.enlisted,
            call=self.ref,
            # None of a session that ends with the process.
            session_store=recorder.store if recorder is not None and recorder.store.waits else None,
            nested_calls=self.nested_calls,
        )

    async def read_by(self, form: ReadingForm, *args: object, cure: str) -> Any:  # noqa: ANN401 - whatever it returns
        """Runs a function of the tool that may only read, within its timeout; `cure` is for one that writes."""
        seconds = None if self.plan.time_limit is None else self.plan.time_limit()[0]
        keywords = {"context": self.context()} if form.has_context else {}
        ticket, outer = self.turn.ticket, self.turn.outer
        # Never committed, because there is nothing to keep.
        with Transaction(self.call.name, ticket=ticket, writes=False, parent=outer, call=self.ref, cure=cure):
            reads = partial(form.function, *args, **keywords)
            return await run_to_end(self.mode, reads, is_async=form.is_async, seconds=seconds)

    def context(self, claim: Claim = NO_CLAIM) -> ToolContext:
        """The context for policies and the handler, bound to the call once that has begun; before, to its caller."""
        effect, own = claim.effect, (self.environment, self.resources, self.ref)
        return ToolContext(*own, effect and effect.key, claim.fence, claim.renew, current(), self.times)

    async def commit(self, result: ToolResult[Any], claim: Claim, transaction: Transaction) -> None:
        """Step COMMIT: closes the resources of the call, and commits what was written, with its effect and its record.

        Raises:
            RecordingError, SessionLostError: a store or the session is gone; all but an external effect is rolled back.
            Exception: a resource of the call cannot be closed; it is rolled back.
        """
        # Before the commit: a resource that cannot be closed fails the call while it can still be rolled back.
        self.resources.close()
        claim.record_on_commit(result)
        if self.plan.is_stored and transaction.parent is None:
            await self._describe_changes(transaction, committed=True, is_here=self.mode.inline)
            self.undo = await keep_undo(transaction, self.environment.session, self.ref, self.mode.in_thread)
            self.committed_event = self.event(result)
            self.environment.session.slices.record_with(self.committed_event, self.ref, transaction)
        reached("before-commit")
        try:
            await self.mode.commit(transaction)
        except STORE_GONE as error:
            claim.leave_unrecorded()
            raise self.undone(error) from error
        finally:
            # The event was not stored, or it is unknown whether it was: `record_call` appends another.
            if not transaction.committed:
                self.committed_event = None
        reached("after-commit")
        self.notify("committed")

    async def roll_back(self, transaction: Transaction) -> None:
        """Rolls back a call that was not committed, without holding an event loop; raises `RollbackError`."""
        # A coroutine that is being closed with its loop cannot await anything.
        is_here = self.mode.inline or isinstance(sys.exception(), GeneratorExit)
        await self._describe_changes(transaction, committed=False, is_here=is_here)
        await transaction.rollback_by(None if is_here else self.mode.in_thread)
        self.notify("rolled_back")

    async def _describe_changes(self, transaction: Transaction, *, committed: bool, is_here: bool) -> None:
        if transaction.snapshots and getattr(self.environment.session.recorder, "records_changes", False):
            collect = partial(collect_changes, transaction, self.secrets, committed=committed)
            self.changes = collect() if is_here or not has_files(transaction) else await self.mode.in_thread(collect)

    @property
    def shares_store(self) -> bool:
        """True if session and ledger are in one store, so that a call and its effect are committed together."""
        store = self.environment.session.store
        return store is not None and store is self.environment.find_ledger().units

    def reopen(self) -> None:
        """Prepares to answer the call once more: its claim has ended, and the commit has closed its resources."""
        self.claim = NO_CLAIM
        self.refused_at = None
        self.is_final = self.turn.outer is None
        self.resources = self.environment.resources.call_scope()

    def drop_claim(self, failed: ToolResult[Any]) -> ToolResult[Any]:
        """A failed result, once it is known that the effect has not happened; the claim has ended."""
        message = failed.message.removesuffix(self.claim.unresolved_note())
        self.claim = NO_CLAIM
        return ToolResult.error(f"{message}{self.call.name} has not taken effect.")

    def undone(self, error: Exception) -> RecordingError:
        """The end of the run for a call that is rolled back, because it could not be recorded."""
        what = " ".join(("was rolled back, because it could not be recorded.", *self.effect_notes()))
        ends = self.recording_error(error, what.removesuffix("."))
        if self.claim.unresolved_note():
            ends.effect = "unknown" if self.claim.unsettled else "done"
        return ends

    def event(self, result: ToolResult[Any]) -> ToolInvoked:
        """The record of the call so far."""
        environment, masking = self.environment, self.plan.masking
        call, params, arguments_digest = self.call, self.params, None
        if masking is not None:
            call, params = masked_record(call, params, masking)
            arguments_digest = environment.digest_arguments(self.call)
        return ToolInvoked(
            call,
            params,
            result if self.plan.result_masking is None else masked_result(result, self.tool),
            environment.session.session_id,
            environment.run_context,
            environment.clock.now(),
            self.ref[0],
            self.refused_at,
            self.handler_seconds,
            environment.clock.monotonic() - self.arrived,
            self.effect_key,
            self.claim.result is not None,
            self.is_final and not self.claim.unsettled and (result.success or environment.final_failures),
            None,
            arguments_digest,
            self.changes,
            self.turn_seconds if self.turn.waits else None,
            self.approval_seconds,
            None if self.observer is None else self.observer.trace,
            self.decisions,
            self.undo,
            tuple(self.times or ()) or None,
            (self.tool is not None and self.tool.may_act) or None,
        )

    def fail_in_handler(self, result: ToolResult[Any]) -> ToolResult[Any]:
        """Takes a failed result from the handler; returns it with the note on its effect, if there is one."""
        self.refused_at = Step.HANDLER
        return self.with_aftermath(replace(result, message=redacted(result.message)))

    def effect_notes(self) -> tuple[str, ...]:
        """Sentences for the model, if the call fails: its effect and those of nested calls that are done or unknown."""
        nested = dict.fromkeys(note for call in tuple(self.nested_calls.values()) for note in call.notes())
        if nested:
            nested[f"The same holds for {self.call.name}, which calls it."] = None
        return tuple(filter(None, (*nested, self.claim.unresolved_note())))

    def with_aftermath(self, result: ToolResult[Any]) -> ToolResult[Any]:
        """A failed result with what the model has to know of effects; see `effect_notes`."""
        aftermath = " ".join(self.effect_notes())
        return replace(result, message=f"{as_sentence(result.message)}{aftermath}") if aftermath else result


def announce_alone(session: Session, event: ToolInvoked) -> None:
    """Notifies reducers and subscribers of a recorded call that has no turn; reducers only if the session is free."""
    try:
        announce = session.slices.announce if current() is None else session.dispatcher.dispatch
        try:
            announce(event)
        except SessionBusyError:  # another call holds it
            session.dispatcher.dispatch(event)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("%s was recorded, but a reducer or subscriber failed", event.name)
