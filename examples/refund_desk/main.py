"""The refund desk: an agent decides refunds, and each of its tool calls is a transaction.

    python examples/refund_desk/main.py --help

Where to read on: `desk.py` is the agent, `refunds.py` and `report.py` are its tools and policies, `day.py` brings them
together with a model, `model.yaml` is what the scripted model does wrong, `day_proof.py` is what must hold at the end.
In the second act the desk dies: `night_desk.py` is its process, `deaths.py` kills it, `night.py` starts it again.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from urllib.parse import quote

from day import scripted_model, work
from day_proof import DAY_PROMISES, Proof
from handrail import store
from handrail.serde import dump
from handrail.view.export import export_run
from night import Stage, work_at_night
from night_desk import SESSION_ID, NightFolder
from night_proof import NIGHT_PROMISES, OF_ANY_MODEL
from rich_screen import screen_on
from screen import Act, Step, Verdict
from termination import exit_code_of
from typed_paths import path_from_here, typed_path

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
  replayed     it had been done before: the result comes from the ledger, the handler did not run; or it was done now,
               its answer was lost, and the tool's reconciler has found it
  refused      a step of the pipeline turned it away before its handler ran; the trace names the step
  rolled back  it failed, and what it had changed in files and session was undone; if it may have happened outside all
               the same, its message says so

At the end each promise is PASS or FAIL. The exit code is 0 if all hold, 1 if one does not, 2 if the model cannot be
used. --fault breaks a promise on purpose.
"""

DAY, NIGHT = 1, 2
"""The numbers of the acts."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    model: str | None
    act: int | None
    out: Path | None
    plain: bool
    json: bool
    fault: bool

    @property
    def acts(self) -> dict[int, Act]:
        """The acts that are performed, by their numbers."""
        acts = {
            DAY: Act("Act 1: a day at the desk, with a model that errs", DAY_PROMISES),
            NIGHT: Act(
                "Act 2: a night at the desk, which is killed twice",
                NIGHT_PROMISES if self.model is None else OF_ANY_MODEL,
            ),
        }
        return acts if self.act is None else {self.act: acts[self.act]}


def main() -> int:
    """Let an agent work at the desk, for a day and for a night, and show what came of it; returns the exit code."""
    options = _options()
    folder = TemporaryDirectory(prefix="refund-desk-") if options.out is None else nullcontext(options.out)

    def perform() -> int:
        with folder as path:
            proofs = _perform(options, Path(path))
        if options.json:
            print(json.dumps(dump(proofs), indent=2))
        return 0 if all(proof.holds for proof in proofs.values()) else 1

    return exit_code_of("refund desk", options.model, perform)


def _perform(options: Options, folder: Path) -> dict[str, Proof]:
    """Both acts, or the one that was asked for."""
    out = sys.stderr if options.json else sys.stdout
    screen = screen_on(out, plain=options.plain)
    acts = options.acts
    screen.promised(tuple(acts.values()))
    proofs: dict[str, Proof] = {}
    if DAY in acts:
        screen.headed(acts[DAY].title)
        proofs["day"] = work(options.model or scripted_model(), folder, screen, fault=options.fault)
    if NIGHT in acts:
        screen.headed(acts[NIGHT].title)
        stage = Stage(screen, out, options.plain, options.fault)
        proofs["night"] = work_at_night(options.model, folder / "night", stage)
    screen.judged([Verdict(act, proof.findings) for act, proof in zip(acts.values(), proofs.values(), strict=True)])
    screen.advised(_next_steps(options))
    if NIGHT in acts:
        screen.noted(f"the night as a page, for a browser: {_write_page(options, folder / 'night')}")
    return proofs


def _write_page(options: Options, night: Path) -> Path:
    """Write the session of the night to a file, which stays when the folder of the demo does not."""
    page = night / "night.html" if options.out else Path(mkdtemp(prefix="refund-desk-"), "night.html")
    with store.open(NightFolder(night).store_url, read_only=True) as kept:
        page.write_text(export_run(kept, SESSION_ID), encoding="utf-8")
    return page


def _next_steps(options: Options) -> list[Step]:
    """What to try next, in commands that work as they are typed."""
    python, main = typed_path(Path(sys.executable)), typed_path(Path(__file__))
    handrail = typed_path(Path(sys.executable).with_name("handrail"))
    out = Path("desk-files") if options.out is None else options.out
    steps: list[Step] = []
    if options.out is None or NIGHT not in options.acts:
        command = (python, main, "--act", str(NIGHT), "--out", typed_path(out))
        steps.append(Step("leave the files of the night in a folder", command))
    url = shlex.quote(f"sqlite:///{quote(path_from_here(NightFolder(out / 'night').database))}")
    steps += [
        Step("look at its refunds", (handrail, "ledger", "list", "--store", url)),
        Step("look at its session", (handrail, "sessions", "show", SESSION_ID, "--store", url)),
        Step("see a promise broken: exit code 1", (python, main, "--act", str(DAY), "--fault")),
        Step("make an agent of your own", (handrail, "new", "notes")),
    ]
    return steps


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="refund_desk", description=ABOUT, epilog=OUTCOMES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", metavar="NAME", help="a model by its PydanticAI name, e.g. openai:gpt-5.2")
    parser.add_argument("--act", type=int, choices=(DAY, NIGHT), help="one act alone")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the files there, and in DIR/night the database")
    parser.add_argument("--plain", action="store_true", help="plain lines, as without a terminal")
    parser.add_argument("--fault", action="store_true", help="break a promise on purpose, to see it FAIL")
    parser.add_argument("--json", action="store_true", help="the counts as JSON; the trace goes to standard error")
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
