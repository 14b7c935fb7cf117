"""A process that opens more sessions than it may have descriptors: `python -m tests.store.sqlite.store.many <url>`."""

from __future__ import annotations

import resource
import sys
from contextlib import ExitStack

import handrail.store
from handrail.session import Session

DESCRIPTORS, SESSIONS = 64, 200


def main(url: str) -> None:
    """Open the sessions, write to the last one, and say how many are held."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    with handrail.store.open(url, durability="normal") as store, ExitStack() as opened:
        for number in range(SESSIONS):
            opened.enter_context(Session.open(store, f"s{number}"))
        print(len(store.held_sessions()))  # noqa: T201 - what its parent reads


if __name__ == "__main__":
    main(*sys.argv[1:])
