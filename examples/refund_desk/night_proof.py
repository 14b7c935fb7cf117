"""What was found when the night desk had died, and whether its end proves that nothing was lost or done twice."""

from __future__ import annotations

import hashlib
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from call_trace import Outcome, outcome_of
from day_proof import ANSWERED, CHARGED_ONCE, RECORDED, Finding, Proof, charged_once, recorded
from deaths import Death
from handrail.runtime import Session, ToolInvoked
from handrail.store import EffectRow
from refunds import Refund
from report import REFUNDS, REPORT, ReportFiled

KILLED = {death: f"the process is killed {death.value.replace('-', ' ')}" for death in Death}
CERTAIN = "the ledger is in no doubt about any refund"
FOUND_OUT = "what was in doubt is found out, and not done again"
FILED_WHOLE = "the report is filed, whole"
SAME_FILES = "all files are, to the byte, those of a night without a death"

NIGHT_PROMISES = (*KILLED.values(), ANSWERED, CHARGED_ONCE, RECORDED, CERTAIN, FOUND_OUT, FILED_WHOLE, SAME_FILES)
"""What must be true at the end of the night."""

OF_ANY_MODEL = NIGHT_PROMISES[:-1]
"""The same for a model that may say something else in another night."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a desk has left that was to die.

    Attributes:
        death: the moment that was chosen.
        returncode: how the process ended; for a signal, its number below zero.
        head: the number of the session's newest entry.
        paid: how many refunds the payment service has paid.
        recorded: how many refunds the ledger knows to be done.
        in_doubt: the keys of the effects that the ledger says are running, with nobody there to run them.
        files: the files on disk, before anybody has opened them again.
    """

    death: Death
    returncode: int
    head: int
    paid: int
    recorded: int
    in_doubt: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def as_meant(self) -> bool:
        """Whether the desk has died of SIGKILL, in the moment that was chosen."""
        if self.returncode != -signal.SIGKILL:
            return False
        if self.death is Death.BETWEEN_CHARGE_AND_RECORD:
            return self.paid == self.recorded + 1 and len(self.in_doubt) == 1
        return REPORT in self.files and REFUNDS not in self.files

    def told(self) -> tuple[str, ...]:
        """What was found, in lines for people."""
        how = "killed by SIGKILL" if self.returncode == -signal.SIGKILL else f"ended with exit code {self.returncode}"
        lines = [f"the desk was {how}", f"found: {self.paid} refunds paid, {self.recorded} of them recorded"]
        lines += [f"found: {key} is running, and nobody runs it" for key in self.in_doubt]
        lines.append(f"found: the session ends with entry {self.head}, on disk are {', '.join(self.files)}")
        if self.death is Death.BETWEEN_TWO_FILES and self.as_meant:
            lines.append(f"{REPORT} is half of a report: {REFUNDS} is missing, and the session knows of neither")
        return (*lines, "the desk is started again")


@dataclass(frozen=True, slots=True)
class Night:
    """Everything that there is at the end of the night.

    Attributes:
        session: the session of all lives.
        effects: the rows of the ledger.
        charges: how often each order was refunded, as the payment service counted.
        found: what was found after each death.
        ended_well: whether the last life has come to its end.
        files: the files on disk.
        undisturbed: the files of the same night without any death; `None` if that cannot be told.
    """

    session: Session
    effects: tuple[EffectRow, ...]
    charges: Mapping[str, int]
    found: tuple[Found, ...]
    ended_well: bool
    files: Mapping[str, bytes]
    undisturbed: Mapping[str, bytes] | None


def contents_of(folder: Path) -> dict[str, bytes]:
    """What is in a folder, as the operating system has it."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def prove_night(night: Night) -> Proof:
    """Hold against each other what the service counted, the session and the ledger hold, and the disk has."""
    calls = night.session[ToolInvoked].all()
    report = night.files.get(REPORT, b"")
    outcomes = Counter(outcome_of(call) for call in calls)
    told = "it has answered" if night.ended_well else "the last process has failed; what it printed says why"
    return Proof(
        charges=night.charges,
        report_sha256=hashlib.sha256(report).hexdigest() if report else "",
        slices={kind.__name__: len(night.session[kind]) for kind in night.session.kinds},
        outcomes={outcome.value: outcomes[outcome] for outcome in Outcome},
        findings=(
            *(_died(found) for found in night.found),
            Finding(ANSWERED, night.ended_well, told),
            charged_once(night.charges),
            recorded(night.charges, night.session[Refund].all()),
            _all_done(night.effects),
            _found_out(night.found, calls),
            _filed(night),
            *(() if night.undisturbed is None else (_same_files(night.files, night.undisturbed),)),
        ),
    )


def _died(found: Found) -> Finding:
    state = f"{found.paid} paid, {found.recorded} recorded"
    if found.death is Death.BETWEEN_TWO_FILES:
        state = f"on disk: {', '.join(found.files)}"
    return Finding(KILLED[found.death], found.as_meant, f"return code {found.returncode}; {state}")


def _all_done(effects: Sequence[EffectRow]) -> Finding:
    counts = Counter(effect.status for effect in effects)
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    certain = bool(effects) and counts.keys() <= {"done", "failed"}
    return Finding(CERTAIN, certain, told or "no refunds")


def _found_out(found: Sequence[Found], calls: Sequence[ToolInvoked]) -> Finding:
    """The handler of a call in doubt ran in the life that ended; it must not have run in any other."""
    in_doubt = {key for state in found for key in state.in_doubt}
    answers = [call for call in calls if call.effect_key in in_doubt and call.success]
    again = [call.call_id for call in answers if not call.replayed]
    return Finding(
        FOUND_OUT,
        bool(answers) and not again,
        f"done again: {', '.join(again)}" if again else f"{len(in_doubt)} in doubt, then answered without a handler",
    )


def _filed(night: Night) -> Finding:
    filed = len(night.session[ReportFiled])
    there = [name for name in (REPORT, REFUNDS) if name in night.files]
    return Finding(
        FILED_WHOLE,
        filed > 0 and there == [REPORT, REFUNDS],
        f"{filed} in the session, on disk {' and '.join(there) or 'nothing'}",
    )


def _same_files(files: Mapping[str, bytes], undisturbed: Mapping[str, bytes]) -> Finding:
    differ = sorted(name for name in files.keys() | undisturbed.keys() if files.get(name) != undisturbed.get(name))
    return Finding(SAME_FILES, not differ, f"{', '.join(differ)} differ" if differ else f"{len(files)} files")
