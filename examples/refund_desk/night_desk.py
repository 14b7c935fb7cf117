"""The night desk: the program of a process that may be killed at any moment, and is started again.

What it knows stands in its folder. The session with the ledger beside it is in a database, the files are on disk with
the journal that undoes them. So there is no code here for going on: opening them is going on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from call_trace import CallTrace
from day import DAY, run_agent
from deaths import Death, NightFiles, NightPayments
from desk import Desk
from handrail import store
from handrail.filesystem import HostFilesystem
from handrail.runtime import Session, ToolInvoked
from handrail.testing import ScriptedModel
from refunds import Rules
from rich_screen import screen_on
from screen import Screen
from shop import Shop

SCRIPT = Path(__file__).with_name("night.yaml")
"""What the scripted model says at night, from the beginning in each life."""

SESSION_ID = "night-desk"
"""Under which name the session is stored."""


@dataclass(frozen=True, slots=True)
class NightFolder:
    """The folder of a night, which outlives the processes that work in it."""

    path: Path

    @property
    def database(self) -> Path:
        """Sessions and ledger."""
        return self.path / "desk.db"

    @property
    def store_url(self) -> str:
        """The database, as `handrail.store.open` and the command line want it named."""
        return f"sqlite:///{quote(str(self.database.absolute()))}"

    @property
    def shop(self) -> Path:
        """The database of the shop."""
        return self.path / "shop.db"

    @property
    def files(self) -> Path:
        """What the model sees."""
        return self.path / "files"

    @property
    def journal(self) -> Path:
        """What undoes the files of a call that was not committed."""
        return self.path / "journal"


@dataclass(frozen=True, slots=True)
class Life:
    """What one life of the desk is given.

    Attributes:
        folder: where everything is kept.
        port: the port of the payment service.
        death: how it will end; `None` for well.
        model: a model by its PydanticAI name; `None` for the scripted one.
    """

    folder: Path
    port: int
    death: Death | None
    model: str | None


def night_model() -> ScriptedModel:
    """The model of the night, which stands before its first reply."""
    return ScriptedModel.from_file(SCRIPT, name=f"scripted by {SCRIPT.name}")


def live(life: Life, screen: Screen) -> bool:
    """Work until the model has answered, or death comes; whether the model has answered."""
    folder = NightFolder(life.folder)
    model = life.model or night_model()
    open_files = NightFiles if life.death is Death.BETWEEN_TWO_FILES else HostFilesystem
    with (
        store.open(folder.store_url) as kept,
        Session.open(kept, SESSION_ID) as session,
        open_files(folder.files, journal=folder.journal, store=kept) as files,
    ):
        screen.opened(model if isinstance(model, str) else model.model_name)
        calls = len(session[ToolInvoked])
        screen.noted(f"session {SESSION_ID} is {f'resumed, with {calls} calls in it' if calls else 'begun'}")
        payments = NightPayments(life.port, life.death, screen.noted)
        desk = Desk(Shop(folder.shop), payments, Rules(DAY), session, files)
        session.dispatcher.subscribe(ToolInvoked, CallTrace(session, None, screen.called))
        fault = run_agent(model, desk, screen)
    if fault:
        screen.noted(fault)
    return not fault


def main() -> int:
    """Live one life; returns the exit code, unless it is the last thing that the process does not do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has started us, who then ends us
    parser = argparse.ArgumentParser(description="One life of the night desk; `main.py --act 2` starts it.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--death", type=Death, choices=list(Death))
    parser.add_argument("--model")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    life = Life(options.folder, options.port, options.death, options.model)
    return 0 if live(life, screen_on(sys.stdout, plain=options.plain, compact=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
