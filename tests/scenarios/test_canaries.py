"""Secrets are planted wherever a program may have some, and none is found in anything that leaves it.

What leaves: messages, events, logs, files and databases as their raw bytes, and the output of the commands. The calls
of a program's own loop, of an agent and of the command line are looked at, over SQLite and PostgreSQL.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest
from psycopg import sql
from pydantic import Field, SecretBytes, SecretStr
from pydantic_ai import Agent, FunctionToolset, ToolReturnPart

from handrail import store as stores
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.adapters.pydantic_ai.pipeline import PipelineCapability
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import ToolValidationError
from handrail.prompt import Approval, IdempotencyConfig, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.redaction import NAMES_VARIABLE, Redaction, use_redaction
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.session.calls import CallRef
from handrail.store import Store
from handrail.taint import DelimiterSecret, Tainted, make_delimiter
from handrail.testing import ScriptedModel
from handrail.testing.script import Call, Reply, Script
from tests.cli.agent_folders import call, script, write
from tests.cli.desk import Command
from tests.kit import Decides, prompt

PLAIN = "plain-text-that-is-found"
"""What is no secret, and stands beside the secrets, so that a search that finds nothing at all fails."""


@dataclass(slots=True)
class Canaries:
    """Planted secrets by the places where they were planted."""

    planted: dict[str, str] = field(default_factory=dict[str, str])

    def plant(self, place: str, form: str = "{}") -> str:
        """A secret of its own for a place, 20 characters long, within the text that recognizes it."""
        secret = f"q{sha256(place.encode()).hexdigest()[:19]}"
        self.planted[place] = secret
        return form.format(secret)

    def plant_number(self, place: str) -> int:
        """The same as a number."""
        number = int(sha256(place.encode()).hexdigest()[:12], 16)
        self.planted[place] = str(number)
        return number

    def found_in(self, surfaces: Surfaces) -> list[str]:
        """Which secret leaked where: `PLACE in SURFACE`."""
        planted = [(place, _forms(secret)) for place, secret in self.planted.items()]
        seen = [(surface, place, data, forms) for surface, data in surfaces.seen for place, forms in planted]
        return [f"{place} in {surface}" for surface, place, data, forms in seen if any(form in data for form in forms)]


def _forms(secret: str) -> tuple[bytes, ...]:
    plain = secret.encode()
    return plain, base64.b64encode(plain).rstrip(b"="), plain.hex().encode()


@dataclass(slots=True)
class Surfaces:
    """All that leaves a scenario: what was written, by where."""

    seen: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def add(self, surface: str, text: object) -> None:
        """Take note of what was written; anything but bytes as its text."""
        self.seen.append((surface, text if isinstance(text, bytes) else str(text).encode(errors="backslashreplace")))

    def add_files(self, folder: Path, *, but: Collection[str] = ()) -> None:
        """The raw bytes of all files below a folder, without those of the names of files that they were planted in."""
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name not in but:
                self.add(f"file {file.relative_to(folder)}", file.read_bytes())

    def add_rows(self, url: str) -> None:
        """All rows of all tables in the schema of a PostgreSQL URL."""
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
            for (table,) in found:
                rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()
                self.add(f"table {table}", b"\n".join(map(_bytes_of, (value for row in rows for value in row))))

    def without(self, text: str) -> set[str]:
        """The kinds of surfaces, by their first word, of which none has a text."""
        kinds = {surface.partition(" ")[0] for surface, _ in self.seen}
        return kinds - {surface.partition(" ")[0] for surface, data in self.seen if text.encode() in data}


def _bytes_of(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class LogSurface(logging.Handler):
    """What is logged, as a handler formats it, with tracebacks."""

    def __init__(self, surfaces: Surfaces) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))
        self._surfaces = surfaces

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of a record."""
        self._surfaces.add(f"log {record.name}", self.format(record))

    def listening(self) -> Iterator[None]:
        """Listen to all loggers, at every level, for the body of a fixture."""
        root = logging.getLogger()
        level = root.level
        root.addHandler(self)
        root.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            root.removeHandler(self)
            root.setLevel(level)


FORMS: Mapping[str, str] = {
    "a URL": "postgresql://ada:{}@db.example/desk", "a URL with a question mark": "postgresql://ada:x?{}@db.example/desk",
    "a connection string": "host=db.example password={}", "HTTP credentials": "Authorization: Bearer {}",
    "a private key": "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "a key of a provider": "sk-{}",
    "a signed token": "eyJhbGciOiJub25l.{}.sig", "a token of a forge": "ghp_{}",
}  # fmt: skip
"""Texts of exceptions in which a secret is recognized by its form."""

TOOLS = """
import os
from pydantic import SecretStr
from pydantic_ai.mcp import MCPToolset
def log_in(user: str, password: SecretStr) -> str:
    "Logs in."
    return f"{user} is in"
def fail(user: str) -> str:
    "Fails."
    raise RuntimeError(f"{user}: {os.environ['DESK_MESSAGE_TOKEN']}") from KeyError(dict(os.environ))
TOOLS = [log_in, fail]
TOOLSETS = {"far": MCPToolset("http://127.0.0.1:1/mcp", headers={"Authorization": os.environ["DESK_CAUSE_TOKEN"]})}
"""

RAISED = ("message", "cause", "context", "note", "environment", "group", "reason of a policy", "question of a policy")
"""Where the text of a variable of the environment is put."""


@dataclass(frozen=True)
class Inner:
    """A part of the parameters."""

    key: SecretStr


@dataclass(frozen=True)
class Login:
    """Parameters with secrets of every kind."""

    user: str
    password: SecretStr
    pepper: SecretBytes | None = None
    pin: int = field(default=0, metadata={"secret": True})
    phrase: str = field(default="", metadata={"secret": True})
    answer: Annotated[str, Field(json_schema_extra={"writeOnly": True})] = ""
    iban: str = ""
    inner: Inner | None = None
    tokens: list[SecretStr] = field(default_factory=list[SecretStr])


@dataclass(frozen=True)
class Ticket:
    """A result with secrets, which the session takes in."""

    user: str
    token: SecretStr
    code: str = field(metadata={"secret": True})


@dataclass(frozen=True)
class Fails:
    """What a handler is to fail with."""

    how: str


@dataclass(slots=True)
class Scene:
    """One scenario: what was planted, what the handlers got, and what left."""

    canaries: Canaries
    surfaces: Surfaces
    variables: Mapping[str, str]
    got: list[Login] = field(default_factory=list[Login])

    def arguments(self, place: str, **more: Any) -> dict[str, Any]:
        """The arguments of a login, whose password is planted at a place."""
        return {"user": PLAIN, "password": self.canaries.plant(f"arguments: {place}"), **more}

    def all_arguments(self) -> dict[str, Any]:
        """Arguments with a secret in each place that can have one."""
        plant = self.canaries.plant
        return self.arguments(
            "SecretStr",
            pepper="".join(("AAAA", plant("arguments: SecretBytes"))),
            pin=self.canaries.plant_number("arguments: a marked number"),
            phrase=plant("arguments: a marked text"),
            answer=plant("arguments: an annotated text"),
            iban=plant("arguments: a name of the operator"),
            inner={"key": plant("arguments: a nested secret")},
            tokens=[plant("arguments: a list of secrets")],
        )

    def log_in(self, params: Login, *, context: ToolContext) -> ToolResult[Ticket]:
        """Take note of what the handler gets, and return secrets."""
        self.got.append(params)
        token = SecretStr(self.canaries.plant(f"result: SecretStr, {len(self.got)}"))
        return ToolResult.ok(Ticket(params.user, token, self.canaries.plant(f"result: marked, {len(self.got)}")))

    def fail(self, params: Fails, *, context: ToolContext) -> ToolResult[None]:
        """Raise an exception with a secret."""
        secret, hidden = self.variables.get(params.how, ""), RuntimeError(f"{PLAIN} {self.variables.get(params.how)}")
        match params.how:
            case "cause":
                raise ValueError(PLAIN) from hidden
            case "context":
                try:
                    raise hidden
                except RuntimeError:
                    raise ValueError(PLAIN)  # noqa: B904 - the context is what is tested
            case "note":
                error = ValueError(PLAIN)
                error.add_note(secret)
                raise error
            case "environment":
                raise KeyError({"PLAIN": PLAIN, **self.variables})
            case "group":
                raise ExceptionGroup(PLAIN, [hidden])
            case "message":
                raise hidden
            case _:
                raise ToolValidationError(f"{PLAIN} {self.canaries.plant(params.how, FORMS[params.how])}")

    def burst(self, params: Login, *, context: ToolContext) -> ToolResult[None]:
        """Raise an exception with the secret of the call itself."""
        secret = params.password.get_secret_value()
        error = RuntimeError(f"{PLAIN} {secret}")
        error.add_note(secret)
        raise error from KeyError({"password": secret})

    def judge(self, tool: Tool[Any, Any], params: Any) -> PolicyDecision:
        """Deny, or ask, in a text with a secret."""
        if tool.name not in {"denied", "asked"}:
            return PolicyDecision.allow()
        secret = params.password.get_secret_value()
        if tool.name == "denied":
            return PolicyDecision.deny(f"{PLAIN} {self.variables['reason of a policy']} {secret}")
        return PolicyDecision.ask(f"{self.variables['question of a policy']} {secret}")

    def executor(self, session: Session) -> ToolExecutor:
        """The tools of the scenario, on a session."""
        done_once = IdempotencyConfig(scope="app")

        def login(name: str, **options: Any) -> Tool[Login, Ticket]:
            return Tool[Login, Ticket](name=name, description="Logs in.", handler=self.log_in, **options)

        tools = (
            login("login"),
            login("pay", effect="external", idempotency=done_once),
            login("book", effect="external"),
            login("denied"),
            login("asked"),
            Tool[Login, None](name="burst", description="Fails.", handler=self.burst, effect="external"),
            Tool[Fails, None](name="fail", description="Fails.", handler=self.fail),
        )
        session.dispatcher.subscribe(ToolInvoked, lambda event: self.surfaces.add("event", repr(event)))
        later = Approval.later(f"{PLAIN}: {self.variables['question of a policy']}")
        policies = [Decides(self.judge)]
        return ToolExecutor(prompt=prompt(*tools, policies=policies), session=session, approver=lambda _request: later)

    def deliver(self, messages: tuple[ToolMessage, ...]) -> None:
        """Take note of what the model reads."""
        for message in messages:
            self.surfaces.add("message", message.content)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A process whose environment has secrets, and whose logs are listened to."""
    canaries, surfaces = Canaries(), Surfaces()
    variables = {place: canaries.plant(f"environment: {place}") for place in RAISED}
    named = {f"DESK_{place.replace(' ', '_').upper()}_TOKEN": value for place, value in variables.items()}
    named["DESK_URL"] = canaries.plant("environment: a URL", "https://ada:{}@example.org")
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    before = use_redaction(Redaction.of_environment({**named, NAMES_VARIABLE: "iban"}))
    listening = LogSurface(surfaces).listening()
    next(listening)
    yield Scene(canaries, surfaces, variables)
    next(listening, None)
    use_redaction(before)


def message_of(calls: list[ToolCall], said: str) -> dict[str, Any]:
    """The reply that asks for calls, as a provider says it."""
    functions = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in calls]
    asked = [{"id": call_id, "type": "function", "function": function} for call_id, function in functions]
    return {"role": "assistant", "content": said, "tool_calls": asked}


def own_loop(scene: Scene, store: Store) -> None:
    """Replies with calls of every outcome, and one that another process resumes."""
    with Session.open(store, "loop", types=[Ticket]) as session:
        everything, plant = scene.all_arguments(), scene.canaries.plant
        calls = [
            ToolCall("1", "login", json.dumps(everything)),
            ToolCall("2", "login", json.dumps(scene.arguments("misspelled", pasword=plant("a typo")))),
            ToolCall("3", "login", plant("arguments: not JSON", '{{"user": "{}')),
            ToolCall("4", "login", json.dumps({"user": PLAIN, "password": [plant("arguments: misfit")]})),
            ToolCall("5", "pay", json.dumps(scene.arguments("of an effect"))),
            ToolCall("6", "book", json.dumps(scene.arguments("of a slot"))),
            ToolCall("7", "denied", json.dumps(scene.arguments("denied"))),
            ToolCall("8", "asked", json.dumps(scene.arguments("asked about"))),
            ToolCall("9", "burst", json.dumps(scene.arguments("in the text of an exception"))),
            *(ToolCall(how, "fail", json.dumps({"how": how})) for how in (*RAISED[:6], *FORMS)),
        ]
        session.conversation.append({"role": "user", "content": PLAIN})
        said = f"{PLAIN}: I log in with {everything['password']}."
        session.conversation.append(message_of(calls, said), calls=calls, reply="r1")
        executor = scene.executor(session)  # what is stored of the reply is known by it
        waiting = executor.answer()
        assert isinstance(waiting, PendingAnswers)
        scene.deliver(waiting.messages)
        # The process has the values: its handlers got them, and the provider is sent what the model said.
        assert scene.got[0].password.get_secret_value() == everything["password"]
        assert (scene.got[0].pin, scene.got[0].iban) == (everything["pin"], everything["iban"])
        assert everything["password"] in json.dumps(session.conversation.messages)
        assert scene.got[0].phrase == everything["phrase"]


@pytest.mark.short(1)
def test_own_loop(scene: Scene, url: str, tmp_path: Path, handrail: Command) -> None:
    """Also what another process reads of it, and what the commands print."""
    with stores.open(url) as store:
        own_loop(scene, store)
        if url.startswith("sqlite"):
            scene.surfaces.add_files(tmp_path)  # while the store is open: it has a write-ahead log
    with stores.open(url) as store, Session.open(store, "loop", types=[Ticket, Login]) as session:
        executor = scene.executor(session)
        executor.answer()
        scene.surfaces.add("resumed", json.dumps(session.conversation.messages))
        scene.surfaces.add("resumed", repr([item for kind in session.kinds for item in session[kind]]))
    print_all(scene, handrail, "loop")
    look_into_store(scene, url, tmp_path)
    assert scene.canaries.found_in(scene.surfaces) == []
    assert scene.surfaces.without(PLAIN) == set()
    assert len(scene.canaries.planted) >= 38


def test_the_secret_of_a_session(scene: Scene, url: str, handrail: Command) -> None:
    """A tainted session has a secret, which delimiters are made from: it is in its store, and nowhere else."""
    read = Tool[Fails, str](
        name="read", description="Reads.", handler=lambda params, context: ToolResult.ok(PLAIN), untrusted=True
    )
    with stores.open(url) as store, Session.open(store, "tainted") as session:
        session.dispatcher.subscribe(ToolInvoked, lambda event: scene.surfaces.add("event", repr(event)))
        executor = ToolExecutor(prompt=prompt(read), session=session)
        call = ToolCall("1", "read", json.dumps({"how": PLAIN}))
        session.conversation.append(message_of([call], PLAIN), calls=[call], reply="r1")
        answered = executor.answer()
        assert not isinstance(answered, PendingAnswers)
        scene.deliver(answered)
        (secret,) = session[DelimiterSecret]
        scene.canaries.planted["the secret of a session"] = secret.secret
        scene.surfaces.add("repr", f"{PLAIN} {secret!r} {session[Tainted].all()!r}")
        assert f"untrusted {make_delimiter(session, CallRef('r1', '1'))}" in answered[0].content
    print_all(scene, handrail, "tainted")
    assert scene.canaries.found_in(scene.surfaces) == []
    assert scene.surfaces.without(PLAIN) <= {"log"}


async def in_agent(scene: Scene, store: Store) -> None:
    """Tools of a prompt and of PydanticAI's own, in one reply; the next one is resumed."""
    plant, arguments = scene.canaries.plant, scene.arguments

    def open_door(user: str, password: SecretStr) -> str:
        """Opens."""
        scene.got.append(Login(user, password))
        return f"opened for {user}"

    def turn_key(key: Annotated[str, Field(json_schema_extra={"writeOnly": True})], pin: int) -> str:
        """Turns."""
        raise RuntimeError(f"{PLAIN} {pin} {scene.variables['message']}")

    calls = (
        Call("login", arguments("of an agent"), id="1"),
        Call("pay", arguments("of an agent's effect"), id="2"),
        Call("open_door", arguments("of a function"), id="3"),
        Call("open_door", {"user": PLAIN, "pasword": plant("arguments: a typo in a function")}, id="4"),
        Call("turn_key", {"key": plant("arguments: marked in a schema"), "pin": 7}, id="5"),
        Call("turn_key", {"key": plant("arguments: misfit of a function"), "pin": "7"}, id="6"),
    )
    replies = Script((Reply(calls=calls), Reply(text=PLAIN)))
    with Session.open(store, "agent", types=[Ticket, Login]) as session:
        executor = scene.executor(session)
        kept = StoredHistory(session, "desk")
        with ScriptedModel(replies) as model:
            capability = PipelineCapability(executor, conversation=kept)
            agent = Agent(model, toolsets=[FunctionToolset([open_door, turn_key])], capabilities=[capability])
            ran = await agent.run(PLAIN, message_history=kept.history)
        for message in ran.all_messages():
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    scene.surfaces.add("message", part.model_response_str())
    assert scene.got[-1].password.get_secret_value() == scene.canaries.planted["arguments: of a function"]


@pytest.mark.short(1)
def test_an_agent(scene: Scene, url: str, tmp_path: Path, handrail: Command) -> None:
    """Tools of a prompt, and functions with secrets that only their JSON Schema shows."""
    with stores.open(url) as store:
        asyncio.run(in_agent(scene, store))
        if url.startswith("sqlite"):
            scene.surfaces.add_files(tmp_path)
    with stores.open(url) as store, Session.open(store, "agent", types=[Ticket, Login]) as session:
        scene.surfaces.add("resumed", repr(StoredHistory(session, "desk").history))
    print_all(scene, handrail, "agent")
    look_into_store(scene, url, tmp_path)
    assert scene.canaries.found_in(scene.surfaces) == []
    assert scene.surfaces.without(PLAIN) == set()


@pytest.mark.short(1)
def test_the_command_line(scene: Scene, url: str, tmp_path: Path, handrail: Command) -> None:
    """Runs that wait, are resumed and fail, a project that cannot be imported, and stores that do not answer."""
    place = tmp_path / "place"
    agent = "---\nname: desk\ntools: [log_in, fail]\n---\nBe brief.\n"
    file = write(place, desk__agent=agent, tools__py=TOOLS, away__agent="---\nname: away\ntoolsets: [far]\n---\nHi.\n")
    plant = scene.canaries.plant

    def command(*words: str, code: int) -> None:
        ran = handrail(*words)
        scene.surfaces.add(f"output {' '.join(words[:2])}", ran.out + ran.err)
        assert ran.code == code, (words, ran.err)

    for form in ("text", "json"):
        calls = [
            call("log_in", "1", **scene.arguments(f"of a run that waits, {form}")),
            call("fail", "2", user=PLAIN),
            call("log_in", "3", user=PLAIN, pasword=plant(f"arguments: a typo in a run, {form}")),
        ]
        run = ("run", str(file), PLAIN, "--session", form, "--format", form, "--root", str(place))
        command(*run, "--model", script(place, {"text": PLAIN, "calls": calls}), "--approve", "later", code=3)
        resumed = ("run", str(file), "--session", form, "--format", form, "--root", str(place))
        print_all(scene, handrail, form)
        command(*resumed, "--model", script(place, {"text": PLAIN}), "--approve", "approve-all", code=0)
        print_all(scene, handrail, form)
    done = [call("log_in", "1", **scene.arguments("of a run")), call("fail", "2", user=PLAIN)]
    model = script(place, {"text": PLAIN, "calls": done}, {"text": PLAIN})
    command("run", str(file), PLAIN, "--model", model, "--approve", "approve-all", "--debug", code=0)
    command("run", str(place / "away.agent"), PLAIN, "--model", model, "--debug", code=1)
    broken = write(tmp_path / "broken", tools__py=f"import os\nraise ValueError('{PLAIN}' + str(dict(os.environ)))\n")
    command("check", str(broken), code=1)
    for form in ("postgresql://ada:{}@127.0.0.1:1/a", "postgresql://ada:x?{}@127.0.0.1:1/a", "postgre://ada:{}@db/a"):
        command("ledger", "list", "--store", plant(f"store: {form}", form), code=1)
    command("ledger", "list", "--store", plant("store: a connection string", "host=127.0.0.1 password={}"), code=1)
    look_into_store(scene, url, tmp_path)
    assert scene.canaries.found_in(scene.surfaces) == []
    assert scene.surfaces.without(PLAIN) == set()


def print_all(scene: Scene, handrail: Command, session: str) -> None:
    """Take note of what the commands print of a session and of the ledger."""
    shown = ("sessions", "show", session, "--full")
    listed = ("sessions", "list"), ("ledger", "list"), ("approvals", "list")
    forms = [(*shown, "--format", form) for form in ("table", "json")]
    for words in (*listed, *forms, *((*words, "--format", "json") for words in listed[1:])):
        ran = handrail(*words)
        scene.surfaces.add(f"output {' '.join(words)}", ran.out + ran.err)
        assert ran.code == 0, (words, ran.err)
        if words[:2] == ("ledger", "list") and "json" in words:
            for line in ran.out.splitlines():
                ran = handrail("ledger", "show", json.loads(line)["key"])
                scene.surfaces.add("output ledger show", ran.out + ran.err)


def look_into_store(scene: Scene, url: str, folder: Path) -> None:
    """Take note of all that is stored."""
    if url.startswith("sqlite"):
        scene.surfaces.add_files(folder, but={"script.yaml"})
    else:
        scene.surfaces.add_rows(url)


@pytest.fixture
def handrail(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, over the store."""
    monkeypatch.setenv("HANDRAIL_STORE", url)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return Command(url, capsys)
