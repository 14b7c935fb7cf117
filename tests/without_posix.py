"""A plugin of pytest that has Handrail run as on a system without the modules of POSIX: `-p tests.without_posix`.

They are hidden while the core, the sessions in memory and the store in a file are imported. The tests themselves may
use them.
"""

from __future__ import annotations

import sys
from importlib import import_module

HIDDEN = ("fcntl", "grp", "pwd", "resource", "termios")

CORE = (
    "handrail.process",
    "handrail.adapters.tool_executor",
    "handrail.contrib.tools.planning",
    "handrail.contrib.tools.vfs",
    "handrail.filesystem.host.filesystem",
    "handrail.prompt",
    "handrail.resources",
    "handrail.runtime",
    "handrail.session",
    "handrail.store.memory",
    "handrail.store.sqlite.store",
    "handrail.testing",
)
"""What is imported without them."""


def _import_without(names: tuple[str, ...]) -> None:
    standing = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type] # `None` makes an import fail
    try:
        for name in CORE:
            import_module(name)
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(standing)


_import_without(HIDDEN)
