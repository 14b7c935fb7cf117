"""`handrail replay` and `handrail sessions export`: a recorded session against today's program, and it as a file."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from cyclopts import Parameter

from handrail.cli.options import StoreOptions, import_object
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Screen
from handrail.cli.undo import find_command
from handrail.operations.sessions import find_session, know_conversations
from handrail.replay import Recording, Replay, replay
from handrail.replay.replaying import Against
from handrail.serde.formatting import count_noun
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.waiting import run_on_new_loop

_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def replay_session(  # noqa: PLR0913 - the options of the command
    session: str,
    /,
    *,
    against: Annotated[str | None, Parameter(metavar="NAME")] = None,
    all: Annotated[bool, Parameter(negative="")] = False,
    junit: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    html: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    options: StoreOptions = StoreOptions(),
) -> int:
    """Run a recorded session again on copies, and compare each call: exit code 1 if something differs.

    The model gives its recorded replies. Tools that act outside answer from the record; all others run. It ends with
    the first difference, which names the call and shows what has changed.

    Example: `handrail replay runs/desk.json --against desk:executor`

    Args:
        session: The session, or a file of `sessions export`.
        against: MODULE:NAME of a function that takes a Session and returns its ToolExecutor, or of the function of a
            run; or an agent file. By default the agent of the run.
        all: Continue after the first difference, with the recorded reply.
        junit: Write the calls as test cases to this file, as JUnit XML.
        html: Write the recorded session and its replay beside each other to this file.
        options: The store and the output format.
    """
    screen, is_file = Screen(), Path(session).is_file()
    recording = Recording.load(session) if is_file else None
    with options.open() if recording is None else recording.restore() as store:
        name = session if recording is None else recording.session_id
        row = find_session(store, name)
        with redirect_stdout(sys.stderr):  # what modules and tools print
            program = _find_program(store, row, against)
            look = None if html is None else partial(_write_page, html)
            source = {"store": store} if recording is None else {}
            outcome = run_on_new_loop(replay(recording or name, program, all=all, look=look, **source))
    if junit is not None:
        _write_cases(outcome, junit)
    _report(screen, outcome, options)
    return DONE if outcome.equal else FAILED


def export_session(
    session: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    options: StoreOptions = StoreOptions(),
) -> None:
    """Print a session as a file that `handrail replay` and tests replay: its entries and effects, without secrets.

    Example: `handrail sessions export desk-7 > runs/desk.json`

    Args:
        session: The session.
        out: Write it to this file; one that exists is replaced.
        options: The store.
    """
    with options.open() as store:
        recording = Recording.of(store, session)
    if out is None:
        Screen().raw(recording.text, end="")
        return
    recording.save(out)
    Screen().say(f"Session {session} is in {out}.")


def _report(screen: Screen, outcome: Replay, options: StoreOptions) -> None:
    differences = [{**one._asdict(), "diff": one.diff} for one in outcome.differences]
    if options.as_json:
        counts = {"calls": len(outcome.calls), "compared": outcome.compared}
        screen.json({"session_id": outcome.session_id, "equal": outcome.equal, **counts, "differences": differences})
        return
    for one in outcome.differences:
        screen.text(str(one))
    count = f"{outcome.compared} of {count_noun(len(outcome.calls), 'call')} compared"
    screen.say(f"{count}: {'equal' if outcome.equal else count_noun(len(differences), 'difference')}.")


def _write_cases(outcome: Replay, path: Path) -> None:
    failed = {(one.session_id, one.call): one for one in reversed(outcome.differences)}
    suite = Element("testsuite", name=outcome.session_id)
    for call in outcome.calls:
        case = SubElement(suite, "testcase", classname=call.session_id, name=f"{call.name} {call.tool}")
        if (one := failed.pop((call.session_id, call.name), None)) is not None:
            SubElement(case, "failure", message=one.kind).text = str(one)
        elif not call.is_compared:
            SubElement(case, "skipped", message="the replay ended before it")
    for (session_id, call), one in failed.items():
        case = SubElement(suite, "testcase", classname=session_id, name=call or "the end")
        SubElement(case, "failure", message=one.kind).text = str(one)
    counts = {"tests": len(suite), "failures": len(outcome.differences)}
    suite.attrib |= {name: str(number) for name, number in counts.items()}
    path.write_text(_NOT_XML.sub("\ufffd", tostring(suite, encoding="unicode")), encoding="utf-8")


def _write_page(path: Path, store: Store, original: SessionRow, again: SessionRow) -> None:
    from handrail.view.export import export_comparison  # noqa: PLC0415 - needs the extra `view`

    know_conversations()
    path.write_text(export_comparison(store, original, again), encoding="utf-8")


def _find_program(store: Store, row: SessionRow, name: str | None) -> Against:
    if name is not None and not name.endswith(".agent"):
        against: Against = import_object(name, "name an agent file, or MODULE:FUNCTION")
        return against
    command = find_command(store, row, name, option="--against")
    from handrail.cli.agents.plan import prepare_again  # noqa: PLC0415 - needs the extra, which is there
    from handrail.cli.agents.run import set_up_process  # noqa: PLC0415 - as above

    set_up_process()
    if name is not None or not Path(command.folder, command.agent_file).is_file():  # recorded on another machine
        command = replace(command, agent_file=name or command.agent_file, folder=str(Path.cwd()))
    run = prepare_again(command, "replayed")
    return run.agent.task(replace(run.options, mode=command.mode))
