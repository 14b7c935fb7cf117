"""A process that runs the case of the kills over SQLite by one way in; with `kill` it is killed in that."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path

from handrail import store as stores
from tests.ways_in.desk import Desk
from tests.ways_in.script import KILLED
from tests.ways_in.ways import WAYS, run


def main(way: str, folder: str, *kill: str) -> None:
    """Runs the case to its end, and prints what the model has read, and what is left."""
    logging.disable(logging.ERROR)
    with stores.open(f"sqlite:///{folder}/desk.db") as store:
        desk = Desk(KILLED, store, Path(folder), memory=dict.fromkeys(kill))
        answers = run(WAYS[way], desk)
        sys.stdout.write(json.dumps([answers, asdict(desk.left())]))
        sys.stdout.flush()
