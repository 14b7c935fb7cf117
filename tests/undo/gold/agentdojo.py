"""The gold actions of AgentDojo: an office, a bank, a chat and a travel agency.

The calls are those that AgentDojo lists for each task of a user. Mail, messages, posts, invitations and payments are
irreversible. A calendar mails its guests: undo restores the event, and the mail stays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from handrail.prompt import Prompt
from handrail.runtime import Session
from tests.taint.agentdojo.injected import Asked, calls_of
from tests.taint.agentdojo.suites import ACTS, environment, suites
from tests.undo.gold.worlds import Action, Captured, Entry, Inverse, Kind, World, as_json, prompt_with

_EVENT, _FILE = ["calendar.events.{event_id}"], ["cloud_drive.files.{file_id}"]


def _next_transaction(root: Any, _: Mapping[str, Any]) -> Iterator[str]:
    account = root.bank_account
    number = max(each.id for each in (*account.transactions, *account.scheduled_transactions)) + 1
    yield f"bank_account.scheduled_transactions.{number}"


def _unread(root: Any, _: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"inbox.emails.{name}.read" for name, each in root.inbox.emails.items() if not each.read)


def _deleted(_: Mapping[str, Any], value: Any, __: Captured) -> Asked:
    return Asked("delete_file", {"file_id": value["id_"]})


_INVERSES: Mapping[str, Inverse] = {
    "add_calendar_event_participants": Inverse(_EVENT),
    "cancel_calendar_event": Inverse(_EVENT),
    "create_calendar_event": Inverse(removes=["calendar.events.{id_}"]),
    "reschedule_calendar_event": Inverse(_EVENT),
    "get_unread_emails": Inverse(_unread),
    "append_to_file": Inverse(_FILE),
    "create_file": Inverse(call=_deleted),
    "delete_file": Inverse(_FILE),
    "share_file": Inverse(_FILE),
    "schedule_transaction": Inverse(_next_transaction),
    "update_scheduled_transaction": Inverse(["bank_account.scheduled_transactions.{id}"]),
    "update_password": Inverse(["user_account.password"]),
    "update_user_info": Inverse(["user_account"]),
    "add_user_to_channel": Inverse(["slack.user_channels.{user}"]),
    **dict.fromkeys(("reserve_car_rental", "reserve_hotel", "reserve_restaurant"), Inverse(["reservation"])),
}

_REMAINS = {
    "create_calendar_event": "inbox",
    "reschedule_calendar_event": "inbox",
    "cancel_calendar_event": "inbox",
    "get_webpage": "web",
}
"""Mail to the guests of an event; and a page knows that it was asked for, though to ask for it is a read."""


@cache
def entries() -> list[Entry]:
    """The tasks of users of all suites, in the version that `tests.taint.agentdojo` has."""
    return [_entry(suite, task) for suite in suites().values() for task in suite.user_tasks.values()]


def _entry(suite: Any, task: Any) -> Entry:
    functions = {each.name: each for each in suite.tools}

    def begin() -> World:
        root = task.init_environment(environment(suite, ""))

        def run(asked: Asked) -> Any:
            function = functions[asked.function]
            arguments = function.parameters.model_validate(dict(asked.arguments)).model_dump()
            parts = {name: each.extract_dep_from_env(root) for name, each in function.dependencies.items()}
            value = as_json(function.run(**arguments, **parts))
            _copy_attachments(root)
            return value

        return World(root, run, root.model_dump)

    calls = calls_of(task, begin().root)
    return Entry(f"AgentDojo: {suite.name}", task.ID, calls, _prompt(suite.name), begin, remains=_REMAINS)


def _copy_attachments(root: Any) -> None:
    """Gives mails copies of what is attached: AgentDojo attaches the event of the calendar itself."""
    for each in root.inbox.emails.values() if hasattr(root, "inbox") else ():
        each.attachments = copy.deepcopy(each.attachments)


@cache
def _prompt(suite: str) -> Callable[[World, Session], Prompt[Any]]:
    return prompt_with([_action(each).tool() for each in suites()[suite].tools])


def _action(function: Any) -> Action:
    inverse = _INVERSES.get(function.name)
    kind: Kind = "external" if inverse is not None or function.name in ACTS else "read"
    return Action(function.name, function.description, function.parameters.model_json_schema(), kind, inverse)
