"""The coding agent: it solves an issue in a copy of a small package, and runs the tests in a sandbox.

    python examples/coding_agent/demo.py --help

Where to read on: `coder.py` is the agent, `model.yaml` is what the scripted model does wrong, `outcome.py` is what must
be true at the end. Screen and trace are those of the refund desk.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.append(str(Path(__file__).resolve().parents[1] / "refund_desk"))

from pydantic_ai.models import Model

from call_trace import CallTrace
from coder import PROJECT, Place, coder_prompt, copy_project, place_here
from day_proof import Finding
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.errors import HandrailError
from handrail.filesystem import HostFilesystem
from handrail.limits import Deadline
from handrail.prompt import Prompt
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Script, ScriptedModel
from handrail.testing.script_file import parse_script
from handrail.waiting import synchronous_entry
from outcome import findings, promises
from replies import replies_shown
from rich_screen import screen_on
from screen import Act, Screen, Step, Verdict
from termination import exit_code_of, run_interruptible
from typed_paths import typed_path

ABOUT = """\
A coding agent solves an issue in a copy of a small package: it reads, edits, and runs the tests in a sandbox of
bubblewrap. It is played by a scripted model, which errs the way models do; with --model a real one is asked.
"""

OUTCOMES = """\
At the end each promise is PASS or FAIL. The exit code is 0 if all hold, 1 if one does not, 2 if the model cannot be
used. --fault breaks a promise on purpose.
"""

FIRST_LINE = (
    "Handrail makes each tool call of an agent a transaction. This demo shows what that means for a coding agent."
)
"""The first line of the demo."""

TITLE = "A coding agent, with a model that errs"

SCRIPT = Path(__file__).with_name("model.yaml")
"""What the scripted model says."""

OUTSIDE = frozenset({"beside", "network"})
"""The calls of the script that try to get out of the sandbox."""

PATIENCE = timedelta(minutes=10)
"""How long the agent may work."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    model: str | None
    out: Path | None
    plain: bool
    fault: bool


def main() -> int:
    """Let an agent solve the issue, and show what came of it; returns the exit code."""
    options = _options()
    folder = TemporaryDirectory(prefix="coding-agent-") if options.out is None else nullcontext(options.out)

    def perform() -> int:
        try:
            with folder as path:
                return 0 if _perform(options, Path(path), place_here()) else 1
        except FileExistsError as error:
            print(f"coding agent: {error.filename} is there already; give --out another folder", file=sys.stderr)
            return 2

    return exit_code_of("coding agent", options.model, perform)


def scripted_model(place: Place) -> ScriptedModel:
    """The model that errs the way models do; on the host it does not try to get out."""
    name = f"scripted by {SCRIPT.name}"
    script = parse_script(SCRIPT.read_text(encoding="utf-8").replace("shell_execute", place.tool), name=SCRIPT.name)
    if place.is_sandbox:
        return ScriptedModel(script, name=name)
    replies = [reply for reply in script.replies if not OUTSIDE & {call.id for call in reply.calls}]
    inside = [
        replace(reply, expect=None) if reply.expect and OUTSIDE & reply.expect.messages.keys() else reply
        for reply in replies
    ]
    return ScriptedModel(Script(inside, SCRIPT.name), name=name)


def _perform(options: Options, folder: Path, place: Place) -> bool:
    """Show the run; whether all promises hold."""
    screen = screen_on(sys.stdout, plain=options.plain, about=FIRST_LINE)
    act = Act(TITLE, promises(place))
    screen.promised([act])
    screen.headed(TITLE)
    screen.noted(place.sentence)
    found = work(options.model or scripted_model(place), folder, screen, place, fault=options.fault)
    screen.judged([Verdict(act, found)])
    screen.advised(_next_steps(options))
    return all(finding.holds for finding in found)


def work(model: Model | str, folder: Path, screen: Screen, place: Place, *, fault: bool = False) -> tuple[Finding, ...]:
    """Let a model solve the issue in a copy of the package, which is left in the folder; returns what was found.

    Args:
        model: the model, or its PydanticAI name.
        folder: where the copy is made.
        screen: where the run is shown.
        place: where commands run.
        fault: whether to change a test past the runtime, so that a promise is broken.

    Raises:
        FileExistsError: there is a copy already.
        UserError, ImportError, UnknownModelError: PydanticAI cannot use the model.
    """
    root = copy_project(folder)
    session = Session(session_id="coding-agent")
    with HostFilesystem(root, journal=folder / "journal", durability="normal") as files:
        trace = CallTrace(session, files, screen.called)
        # It reads the files where a call ends, and may hold the loop for that: this process has one agent.
        session.dispatcher.subscribe(ToolInvoked, synchronous_entry(trace))
        failure = _run_agent(model, coder_prompt(place, files), session, screen)
        if fault:
            (root / "durations" / "tests" / "test_writing.py").write_text("", encoding="utf-8")
        return findings(place, files, trace, len(session[ToolInvoked]), failure=failure)


def _run_agent(model: Model | str, prompt: Prompt[str], session: Session, screen: Screen) -> str:
    """Run the agent to its answer; what went wrong instead, or nothing."""
    adapter = PydanticAIAdapter(model, capabilities=[replies_shown(screen)])
    try:
        evaluation = adapter.evaluate_async(prompt, session=session, deadline=Deadline.after(PATIENCE))
        response = run_interruptible(evaluation)
        if isinstance(model, ScriptedModel):
            model.assert_finished()
    except HandrailError as error:
        return f"{type(error).__name__}: {error}"
    return "" if response.text else "it has not said what it has changed"


def _next_steps(options: Options) -> list[Step]:
    """What to try next, in commands that work as they are typed."""
    python, main = typed_path(Path(sys.executable)), typed_path(Path(__file__))
    steps: list[Step] = []
    if options.out is None:
        steps.append(Step("leave the package in a folder", (python, main, "--out", "coding-files")))
    out = Path("coding-files") if options.out is None else options.out
    if shutil.which("diff"):
        before, after = typed_path(PROJECT), typed_path(out / "project")
        steps.append(Step("see what the agent has changed", ("diff", "-ru", before, after)))
    steps += [
        Step("see a promise broken: exit code 1", (python, main, "--fault")),
        Step("see the refund desk", (python, typed_path(PROJECT.parents[1] / "refund_desk" / "main.py"))),
    ]
    return steps


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="coding_agent", description=ABOUT, epilog=OUTCOMES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", metavar="NAME", help="a model by its PydanticAI name, e.g. openai:gpt-5.2")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the copy of the package there")
    parser.add_argument("--plain", action="store_true", help="plain lines, as without a terminal")
    parser.add_argument("--fault", action="store_true", help="break a promise on purpose, to see it FAIL")
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
