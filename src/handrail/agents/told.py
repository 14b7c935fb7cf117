"""What an error of somebody else's code says, for a message about it."""

from __future__ import annotations


def message_of(error: BaseException) -> str:
    """The message of an error; its class may fail to say one."""
    try:
        return str(error).strip() or "no message"
    except Exception as failed:  # noqa: BLE001 - a program's class may raise anything here
        return f"its message cannot be had, because __str__ raises {type(failed).__name__}"
