"""The second act: the night desk is killed, looked at as it lies there, and started again until its work is done."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pydantic_ai.models import infer_model

from day import DAY, run_agent
from day_proof import Proof, pay_past_the_runtime
from deaths import Death
from desk import INBOX, Desk, inbox_files
from handrail import store
from handrail.runtime import Session
from night_desk import SESSION_ID, NightFolder, night_model
from night_proof import Found, Night, contents_of, prove_night
from payments import Payments, running_service
from refunds import Rules
from screen import PlainScreen, Screen
from shop import Shop

PROGRAM = Path(__file__).with_name("night_desk.py")
"""What runs as the desk."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the act is shown.

    Attributes:
        screen: what this process shows it on.
        out: what the desk's processes show it on, themselves.
        plain: whether they show plain lines only.
        fault: whether to pay a refund past the runtime, so that a promise is broken.
    """

    screen: Screen
    out: TextIO
    plain: bool
    fault: bool = False


def work_at_night(model: str | None, path: Path, stage: Stage) -> Proof:
    """Let a desk work for a night in which its process dies; the folder is left as the last process left it.

    Args:
        model: a model by its PydanticAI name; `None` for the scripted one.
        path: the folder of the night; what an earlier night has left there is removed.
        stage: where it is shown.

    Raises:
        UserError, ImportError: PydanticAI cannot use the model.
    """
    if model is not None:
        infer_model(model)  # a model that cannot be used is told of before anything starts
    folder = prepare(path)
    with running_service() as payments:
        found = tuple(_killed(folder, payments, death, model, stage) for death in Death)
        returncode = _live(folder, payments, None, model, stage)
        if stage.fault:
            pay_past_the_runtime(payments)
        with store.open(folder.store_url) as kept, Session.open(kept, SESSION_ID) as session:
            proof = prove_night(
                Night(
                    session=session,
                    effects=tuple(kept.rows()),
                    charges=payments.counts(),
                    found=found,
                    ended_well=returncode == 0,
                    files=contents_of(folder.files),
                    undisturbed=None if model is not None else _undisturbed(Shop(folder.shop)),
                )
            )
    stage.screen.closed("", proof)
    return proof


def prepare(path: Path) -> NightFolder:
    """Make the folder as the first life finds it; what an earlier night has left there is removed."""
    folder = NightFolder(path)
    if folder.shop.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True, exist_ok=True)
    Shop.make(folder.shop)
    shutil.copytree(INBOX, folder.files)
    return folder


def _killed(folder: NightFolder, payments: Payments, death: Death, model: str | None, stage: Stage) -> Found:
    """Let the desk die, and look at what it has left: at the database and the folder, with nobody there to help."""
    returncode = _live(folder, payments, death, model, stage)
    with store.open(folder.store_url, read_only=True) as kept:
        row = kept.find(SESSION_ID)
        effects = tuple(kept.rows())
    found = Found(
        death=death,
        returncode=returncode,
        head=0 if row is None else row.head,
        paid=sum(payments.counts().values()),
        recorded=sum(effect.status == "done" for effect in effects),
        in_doubt=tuple(effect.key for effect in effects if effect.status == "running"),
        files=tuple(contents_of(folder.files)),
    )
    for line in found.told():
        stage.screen.noted(line)
    return found


def _live(folder: NightFolder, payments: Payments, death: Death | None, model: str | None, stage: Stage) -> int:
    """One life of the desk, in a process of its own; returns its return code. Whatever ends the wait ends the desk."""
    stage.out.flush()
    command = [sys.executable, str(PROGRAM), str(folder.path), str(payments.port)]
    command += [] if death is None else ["--death", death]
    command += [] if model is None else ["--model", model]
    command += ["--plain"] if stage.plain else []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stage.out) as desk:  # noqa: S603 - our own program
        try:
            return desk.wait()
        finally:
            desk.kill()  # it can be ended at any moment, which is what this act is about


def _undisturbed(shop: Shop) -> dict[str, bytes]:
    """The files after the same night, if nobody dies: in this process, and all in memory."""
    files = inbox_files()
    with running_service() as payments:
        desk = Desk(shop, payments, Rules(DAY), Session(session_id=SESSION_ID), files)
        run_agent(night_model(), desk, PlainScreen(io.StringIO()))
    return {stat.path: files.read_bytes(stat.path) for stat in files.list()}
