"""The refund desk: an agent decides refunds, and each of its tool calls is a transaction.

    python examples/refund_desk/main.py --help

Where to read on: `desk.py` is the agent, `refunds.py` and `report.py` are its tools and policies, `day.py` brings them
together with a model, `model.yaml` is what the scripted model does wrong, `proof.py` is what must be true at the end.
In the second act the desk dies: `night_desk.py` is its process, `deaths.py` kills it, `night.py` starts it again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai import UserError

from day import scripted_model, work
from handrail.errors import UnknownModelError
from handrail.serde import dump
from night import Stage, work_at_night
from proof import Proof
from rich_screen import screen_on
from termination import interrupt_on_sigterm

ABOUT = """\
Act 1: an agent works through a CSV of refund requests. It plans, looks orders up in a SQLite shop, pays refunds through
a payment service (a process of its own, which pays twice if it is asked twice), and files a report. It is played by a
scripted model, which errs the way models do; with --model a real one is asked.

Act 2: the same desk at night, with session and ledger in a database and its files on disk. Its process is killed with
SIGKILL after a refund was paid and before that was recorded, started again, killed in the middle of its report, and
started again. Each process resumes the session, and each order is refunded once.
"""

OUTCOMES = """\
what the trace says of a call:
  committed    it succeeded, and what it changed was kept
  replayed     it had been done before: the result comes from the ledger, the handler did not run
  refused      a step of the pipeline turned it away before its handler ran; the trace names the step
  rolled back  it failed, and what it had changed in files and session was undone

The exit code is 0 if all that is claimed at the end holds, 1 if something does not, 2 if the model cannot be used.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    model: str | None
    act: int | None
    out: Path | None
    plain: bool
    json: bool


def main() -> int:
    """Let an agent work at the desk, for a day and for a night, and show what came of it; returns the exit code."""
    options = _options()
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # it would stand in the middle of the trace
    interrupt_on_sigterm()
    folder = TemporaryDirectory(prefix="refund-desk-") if options.out is None else nullcontext(options.out)
    try:
        with folder as path:
            proofs = _perform(options, Path(path))
    except (UserError, ImportError, UnknownModelError) as error:
        told = f"the model {options.model} cannot be used: {error}"
        # That of Handrail begins with the same words.
        print(f"refund desk: {error if isinstance(error, UnknownModelError) else told}", file=sys.stderr)
        print("Without --model, the desk runs on a scripted model, which needs no key.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("refund desk: interrupted; what it had started has been stopped", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps(dump(proofs), indent=2))
    return 0 if all(proof.holds for proof in proofs.values()) else 1


def _perform(options: Options, folder: Path) -> dict[str, Proof]:
    """Both acts, or the one that was asked for."""
    out = sys.stderr if options.json else sys.stdout
    screen = screen_on(out, plain=options.plain)
    proofs: dict[str, Proof] = {}
    if options.act in {None, 1}:
        screen.headed("Act 1: a day at the desk, with a model that errs")
        proofs["day"] = work(options.model or scripted_model(), folder, screen)
    if options.act in {None, 2}:
        screen.headed("Act 2: a night at the desk, which is killed twice")
        stage = Stage(screen, out, options.plain)
        proofs["night"] = work_at_night(options.model, folder / "night", stage, stays=options.out is not None)
    return proofs


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="refund_desk", description=ABOUT, epilog=OUTCOMES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", metavar="NAME", help="a model by its PydanticAI name, e.g. openai:gpt-5.2")
    parser.add_argument("--act", type=int, choices=(1, 2), help="one act alone")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the files there, and in DIR/night the database")
    parser.add_argument("--plain", action="store_true", help="plain lines, as without a terminal")
    parser.add_argument("--json", action="store_true", help="the counts as JSON; the trace goes to standard error")
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
