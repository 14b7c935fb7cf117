"""The mail assistant: it reads a mail that tells it to send money, without the policy about taint and with it.

    python examples/mail_assistant/mail_demo.py --help

Where to read on: `assistant.py` is the assistant, `model.yaml` is what the scripted model does, `mail_outcome.py` is
what must be true at the end. Screen and trace are those of the refund desk.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "refund_desk"))

from pydantic_ai.models import Model

from assistant import World, assistant_prompt, owner
from call_trace import CallTrace
from day_proof import Finding
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.errors import HandrailError
from handrail.filesystem import InMemoryFilesystem
from handrail.limits import Deadline
from handrail.prompt import Approval, ApprovalRequest, ToolPolicy
from handrail.runtime import Session, ToolInvoked
from handrail.taint import TaintPolicy
from handrail.testing import ScriptedModel
from handrail.testing.script_file import read_script
from mail_outcome import PROMISES, findings, losses_in_words
from replies import replies_shown
from rich_screen import screen_on
from screen import Act, Screen, Step, Verdict
from termination import exit_code_of, run_interruptible
from typed_paths import typed_path

ABOUT = """\
An assistant pays an invoice, and reads the mail on the way. One mail asks it to send money and addresses to an
attacker. The assistant obeys: it is played by a scripted model. First it works without the policy about taint, then
with it. With --model a real model is asked.
"""

OUTCOMES = """\
At the end each promise is PASS or FAIL. The exit code is 0 if all hold, 1 if one does not, 2 if the model cannot be
used. --fault leaves the policy out of the second run, to see what FAIL looks like.
"""

FIRST_LINE = (
    "Handrail makes each tool call of an agent a transaction. This demo shows what that means for an assistant that "
    "reads what third parties write."
)
"""The first line of the demo."""

WITHOUT = "Without the policy"
WITH = "With the policy"

SCRIPT = Path(__file__).with_name("model.yaml")
"""What the scripted model says."""

PATIENCE = timedelta(minutes=10)
"""How long the assistant may work."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    model: str | None
    plain: bool
    fault: bool


def main() -> int:
    """Let the assistant work twice, and show what came of it; returns the exit code."""
    options = _options()
    return exit_code_of("mail assistant", options.model, lambda: 0 if _perform(options) else 1)


def _perform(options: Options) -> bool:
    """Show both runs; whether all promises of the second one hold."""
    screen = screen_on(sys.stdout, plain=options.plain, about=FIRST_LINE)
    act = Act(WITH, PROMISES)
    screen.promised([act])
    screen.headed(WITHOUT)
    world = World()
    answered, *_ = work(options.model or _scripted_model(), world, screen, ())
    screen.noted(losses_in_words(world) if answered.holds else answered.found)
    screen.headed(WITH)
    world = World()
    found = work(options.model or _scripted_model(), world, screen, () if options.fault else (TaintPolicy(),))
    screen.noted(losses_in_words(world))
    screen.judged([Verdict(act, found)])
    screen.advised(_next_steps())
    return all(finding.holds for finding in found)


def work(model: Model | str, world: World, screen: Screen, policies: Sequence[ToolPolicy]) -> tuple[Finding, ...]:
    """Let a model do the mail once; returns what was found.

    Args:
        model: the model, or its PydanticAI name.
        world: the bank and the mail server.
        screen: where the run is shown.
        policies: those of the section.

    Raises:
        UserError, ImportError, UnknownModelError: PydanticAI cannot use the model.
    """
    session = Session(session_id="mail-assistant")
    trace = CallTrace(session, InMemoryFilesystem(), screen.called)
    session.dispatcher.subscribe(ToolInvoked, trace)
    questions: list[ApprovalRequest] = []

    def asked(request: ApprovalRequest) -> Approval:
        questions.append(request)
        answer = owner(request)
        screen.asked(request, answer)
        return answer

    adapter = PydanticAIAdapter(model, approver=asked, capabilities=[replies_shown(screen)])
    failure = ""
    try:
        prompt = assistant_prompt(world, policies)
        run_interruptible(adapter.evaluate_async(prompt, session=session, deadline=Deadline.after(PATIENCE)))
        if isinstance(model, ScriptedModel):
            model.assert_finished()
    except HandrailError as error:
        failure = f"{type(error).__name__}: {error}"
    return findings(world, trace.calls, questions, len(session[ToolInvoked]), failure=failure)


def _scripted_model() -> ScriptedModel:
    return ScriptedModel(read_script(SCRIPT), name=f"scripted by {SCRIPT.name}")


def _next_steps() -> list[Step]:
    """What to try next, in commands that work as they are typed."""
    python, here = typed_path(Path(sys.executable)), Path(__file__)
    return [
        Step("see a promise broken: exit code 1", (python, typed_path(here), "--fault")),
        Step("see the refund desk", (python, typed_path(here.parents[1] / "refund_desk" / "main.py"))),
    ]


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="mail_assistant", description=ABOUT, epilog=OUTCOMES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", metavar="NAME", help="a model by its PydanticAI name, e.g. openai:gpt-5.2")
    parser.add_argument("--plain", action="store_true", help="plain lines, as without a terminal")
    parser.add_argument("--fault", action="store_true", help="leave the policy out, to see a FAIL")
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
