"""Messages of Celery in files that are whole when they are read; those of kombu may be read while they are empty.

A worker that reads an empty file ends, and its message is lost.
"""

from __future__ import annotations

import fcntl
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

filesystem: Any = importlib.import_module("kombu.transport.filesystem")  # which has no types


def _alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a channel, under a lock of all processes."""

    def run(channel: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        with Path(channel.data_folder_in, "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return method(channel, *arguments, **options)

    return run


_METHODS = ("_get", "_put", "_queue_bind", "get_table")
Channel: Any = type("Channel", (filesystem.Channel,), {m: _alone(getattr(filesystem.Channel, m)) for m in _METHODS})
Transport: Any = type("Transport", (filesystem.Transport,), {"Channel": Channel})
"""For the setting `broker_transport`."""
