"""A process that is forked for each life of a contender's program: `python -m proof.child CONTENDER`.

What the program imports is imported once. A line of the standard input is a scene, which starts a life and is answered
with its process, or the number of a process, which is waited for and answered with its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from proof.desk import Desk, Scene
from proof.sets import load_environment


def main(contender: str) -> None:
    """Starts lives, and waits for them, until the input ends."""
    module = importlib.import_module(f"proof.contenders.{contender}")
    print("ready", flush=True)
    gc.freeze()
    for line in sys.stdin:
        request: Any = json.loads(line)
        if isinstance(request, int):
            _, status = os.waitpid(request, 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            scene = Scene(**request)
            if scene.entry:
                load_environment(scene.entry)  # its package is imported, and its data read, once
            answer = os.fork()
            if answer == 0:
                _live(module, scene)
        print(answer, flush=True)


def _live(module: Any, scene: Scene) -> None:
    code = 1
    try:
        log = os.open(Path(scene.folder, "log.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        desk = Desk(scene)
        try:
            module.run(desk)
            code = 0
        except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
            desk.fail(traceback.format_exc())
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
