"""Names the calls of a run in its progress, so that a reader can distinguish concurrent calls of one reply.

A call is shown as `move_file(path="a.txt", new_path="done/a.txt")`. When it ends, and the reply has other calls of the
same tool, only the arguments that differ among them are shown, with `…` for the others. Values are cut in their middle
to the room that the line has. Arguments that differ may continue on a second line; others are left out. Calls that
still look alike are numbered in the order in which they started: `pay(cents=5) #2`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from handrail.agents.run.events import CallStarted
from handrail.cli.call_format import fitted_call, format_call, json_cell
from handrail.cli.cells import ELLIPSIS
from handrail.cli.screen import clean


@dataclass(slots=True)
class _Reply:
    """The calls of the last reply of an agent, by id, in the order in which they started."""

    name: str | None
    calls: dict[str, CallStarted] = field(default_factory=dict[str, CallStarted])


class CallLabels:
    """The labels of the calls of a run. One for each run; it remembers the calls of the last reply of each agent."""

    __slots__ = ("_replies",)

    def __init__(self) -> None:
        self._replies: dict[tuple[str, ...], _Reply] = {}

    def start(self, event: CallStarted) -> None:
        """Take note of a call that starts."""
        reply = self._replies.get(event.path)
        # A model replies when all calls of its last reply have ended, so those are not needed any more.
        if reply is None or reply.name != event.reply:
            reply = self._replies[event.path] = _Reply(event.reply)
        reply.calls[event.call_id] = event

    def end(self, path: tuple[str, ...]) -> None:
        """Forget the calls of an agent that has ended."""
        self._replies.pop(path, None)

    def label(self, path: tuple[str, ...], call_id: str, tool: str, *, room: int, more: int = 0) -> str:
        """A call in at most `room` cells, if that is possible.

        A call that never started, because its tool does not exist or its arguments are invalid, is shown without its
        arguments: nothing is known of the secrets in them.

        Args:
            path: its agent.
            call_id: its id.
            tool: its tool.
            room: the cells of the line.
            more: the cells of a second line, for arguments by which the calls of the reply are distinguished.
        """
        reply = self._replies.get(path)
        call = None if reply is None else reply.calls.get(call_id)
        if reply is None or call is None:
            return f"{clean(tool)}({ELLIPSIS})"
        alike = [other for other in reply.calls.values() if other.tool == call.tool]
        differing = {name for name in call.arguments if any(_differs(call, other, name) for other in alike)}
        label = _labelled(call, differing, room, more)
        same = [other for other in alike if _labelled(other, differing, room, more) == label]
        if len(same) == 1:
            return label
        number = f" #{same.index(call) + 1}"
        return _labelled(call, differing, room - len(number), more) + number


def _labelled(call: CallStarted, differing: set[str], room: int, more: int) -> str:
    names = [name for name in call.arguments if name in differing]
    if not names:
        return format_call(call.tool, call.arguments, room=room)
    texts = {clean(name): json_cell(call.arguments[name]) for name in names}
    is_partial = len(names) < len(call.arguments)
    on_a_line = fitted_call(clean(call.tool), texts, room, is_partial=is_partial)
    shown = {name: call.arguments[name] for name in names}
    return on_a_line or format_call(call.tool, shown, room=room + more, is_partial=is_partial)


def _differs(call: CallStarted, other: CallStarted, name: str) -> bool:
    return name not in other.arguments or json_cell(call.arguments[name]) != json_cell(other.arguments[name])
