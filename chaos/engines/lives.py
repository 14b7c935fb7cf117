"""Lives of a program: `python -m chaos.engines.lives MODULE SCENE` forks one after the other, until one is not killed.

What the module imports is imported once. Its function `live` is one life.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback

from chaos.engines.scene import Scene

_MOST_LIVES = 10_000
_IMPORTED_LATE = ("handrail.runtime.ledger.ledger", "handrail.store.postgres", "handrail.store.sqlite")
"""What Handrail imports only when it needs it."""


def main(module_name: str, text: str) -> int:
    """Has a program live until it is not killed; its exit code."""
    module, *_ = map(importlib.import_module, (module_name, *_IMPORTED_LATE))
    scene = Scene.read(text)
    for _ in range(_MOST_LIVES):
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                module.live(scene)
                code = 0
            except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            return code
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
