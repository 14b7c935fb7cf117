"""A session as one file: that it is the same each time, needs nothing else, and has all that a page of it has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic_ai import RunContext

from benchmarks.transcripts import fill, loop_items
from handrail import ToolExecutor, tool, undo
from handrail import store as stores
from handrail.agents import RunOptions, current_run
from handrail.errors import SessionNotFoundError
from handrail.prompt import ToolContext
from handrail.redaction import MASK
from handrail.runtime import Session, ToolCall
from handrail.session import stored_as
from handrail.store import MemoryStore, Store
from handrail.telemetry import instrument
from handrail.testing import Call, Reply, ScriptedModel
from handrail.view.export import export_run
from tests.agents.kit import DONE, agent, desk
from tests.cli.desk import Command
from tests.kit import call, executor
from tests.kit import tool as kit_tool
from tests.telemetry.kit import Traces
from tests.undo.desk import Desk
from tests.view import sample
from tests.wording import Wording


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store that real calls have filled."""
    url = f"sqlite:///{tmp_path_factory.mktemp('export')}/desk.db"
    sample.fill(url)
    return url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """It, to be read."""
    with stores.open(url, read_only=True) as store:
        yield store


@pytest.fixture
def handrail(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command over it, in a folder of its own."""
    monkeypatch.setenv("HANDRAIL_STORE", url)
    monkeypatch.chdir(tmp_path)
    return Command(url, capsys)


class Elements(HTMLParser):
    """The elements of a page.

    Attributes:
        attributes: each with its element and its value.
        paths: for each call, the calls and sessions that it is below.
        texts: the texts below each call, the outermost first.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.paths: dict[str, list[str]] = {}
        self.texts: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "details":
            name = dict(attrs)["id"] or ""
            self.paths[name] = [*self._open]
            self._open.append(name)

    def handle_endtag(self, tag: str) -> None:
        if tag == "details":
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for name in self._open:
            self.texts[name] = self.texts.get(name, "") + data


def addresses(page: str) -> list[str]:
    """What the attributes of a page lead to, other than a place in it."""
    leading = {"src", "href", "action", "data", "poster", "srcset", "formaction", "background", "manifest", "ping"}
    found = [value for _, name, value in Elements(page).attributes if name in leading]
    return [address for address in found if not address.startswith("#")]


def test_same_session_is_the_same_file(store: Store) -> None:
    """There is no clock and no chance in it, so that it can be compared, and kept with others."""
    assert export_run(store, sample.NIGHT) == export_run(store, sample.NIGHT)


@pytest.mark.parametrize("session", [sample.NIGHT, sample.SALES, sample.FORK])
def test_file_needs_nothing_else(store: Store, session: str) -> None:
    """It leads nowhere, and has its style and its script in it, which its policy names by their digests."""
    page = export_run(store, session)
    assert addresses(page) == []
    assert not [value for _, _, value in Elements(page).attributes if re.search(r"https?:|//", value, re.IGNORECASE)]
    assert not re.search(r"@import|url\(", page)
    (policy,) = [value for _, name, value in Elements(page).attributes if name == "content" and "default-src" in value]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/=]{44}'; script-src 'sha256-[\w+/=]{44}'; base-uri 'none'", policy
    )


def test_child_session_is_below_its_caller(store: Store) -> None:
    """With its own calls, folded."""
    elements = Elements(export_run(store, sample.SALES))
    (analyst,) = [name for name in elements.paths if name.endswith("/regions")]
    inner = [name for name, path in elements.paths.items() if path == [analyst]]
    assert [name.rpartition("/")[2] for name in inner] == ["capital", "by-region"]
    assert "I sum the sales up by region." in elements.texts[analyst]
    assert not [name for _, name, _ in elements.attributes if name == "open"]


async def ask_two(context: RunContext) -> list[str]:
    """Ask two clerks."""
    return [await current_run().call_agent("clerk", order, context) for order in ("A-1", "A-2")]


def test_each_agent_that_one_call_has_asked_is_below_it(tmp_path: Path) -> None:
    """In the order in which they were asked."""
    clerks = desk(tmp_path, tools=[ask_two], others={"clerk.agent": agent("clerk")})
    answers = [Reply(text=text, within="c1") for text in ("It is paid.", "It is not.")]
    replies = [Reply(calls=[Call("ask_two", {}, id="c1")]), *answers, DONE]
    with stores.open(f"sqlite:///{tmp_path}/desk.db") as store:
        with Session.open(store, "desk") as session, ScriptedModel(replies) as model:
            clerks.run("Go.", RunOptions(session=session, model=model, mode="approve-all"))
        page = export_run(store, "desk")
    texts = re.findall(r'(?:<h2>|="text">)(Session|A-.|It [a-z ]+)', page)
    assert texts == ["Session", "A-1", "It is paid", "Session", "A-2", "It is not"]


def test_failed_call_has_what_was_rolled_back(store: Store) -> None:
    """Files and slices, also those that calls of its handler have changed."""
    failed = Elements(export_run(store, sample.NIGHT)).texts[f"{sample.NIGHT}/reply-4/call-1"]
    assert "What was rolled back" in failed
    for line in ("+| A-19 | 2490 |", "+2 orders", '+{"order": "A-19", "text": "in the report"}'):
        assert line in failed


def test_wait_for_a_later_answer_is_part_of_the_time_of_its_call(store: Store) -> None:
    """From the question on: until the answer, then until the program has begun again."""
    page = export_run(store, sample.NIGHT)
    refund = Elements(page).texts[f"{sample.NIGHT}/reply-6/call-1"]
    assert {"95.0 s", "2.0 s", "340 ms"} <= {*re.findall(r"\d[\d.]* m?s", refund)}
    assert "for 97.3 s" in page


KEY = "sk-ant-api03-abcdefghijklmnop"


@stored_as("tests.view.memo")
@dataclass(frozen=True)
class Memo:
    """What a handler writes to the session."""

    text: str


@tool
def write(text: str, context: ToolContext) -> str:
    """Write a memo."""
    context.session[Memo].append(Memo(text))
    return "written"


@pytest.mark.parametrize("text", [f"the key {KEY}", f"first\n{KEY}\nlast"])
def test_what_looks_like_a_secret_is_masked_wherever_it_stands(tmp_path: Path, text: str) -> None:
    """In the row of a call and below it, in what it has changed, in a tag; also after the end of a line in JSON."""
    with (
        stores.open(f"sqlite:///{tmp_path}/desk.db") as store,
        Session.open(store, "desk", tags={"note": KEY}) as session,
    ):
        ToolExecutor([write], session=session).execute(ToolCall("a", "write", {"text": text}), reply="r")
        page = export_run(store, "desk")
    assert KEY not in page
    assert page.count(MASK) >= 4


def test_secrets_stay_masked(store: Store) -> None:
    """Wherever the call has them: arguments, effect, question."""
    page = export_run(store, sample.NIGHT)
    assert sample.SECRET not in page
    assert sample.SECRET.rpartition("-")[0] not in page
    assert page.count("**********") > 5


def test_long_value_is_cut_with_length_and_digest(store: Store) -> None:
    """The file says how much is missing, and by the digest whether another text is the same."""
    log = Elements(export_run(store, sample.NIGHT)).texts[f"{sample.NIGHT}/reply-7/call-1"]
    lengths = re.findall(r"… ([\d,]+) more characters; SHA-256 of all ([0-9a-f]{16})…", log)
    assert len(lengths) == 2
    assert len({*lengths}) == 2  # the result, and the message, which has a part of it


def test_link_leads_to_the_trace_that_was_asked_for(tmp_path: Path) -> None:
    """With the ids of the trace and the span of the call; without an address, they are text."""
    traces = Traces()
    with (
        instrument(**traces.options),
        stores.open(f"sqlite:///{tmp_path}/desk.db") as store,
        Session.open(store, "traced") as session,
    ):
        executor(kit_tool("pay"), session=session).execute(call("pay"))
        span = traces.call().context
        assert span is not None
        plain = export_run(store, "traced")
        linked = export_run(store, "traced", trace_url="https://traces.example/{trace}?span={span}")
    assert addresses(plain) == []
    trace, name = f"{span.trace_id:032x}", f"{span.span_id:016x}"
    assert f"trace {trace}-{name}" in plain
    assert addresses(linked) == [f"https://traces.example/{trace}?span={name}"]
    assert urlsplit(addresses(linked)[0]).hostname == "traces.example"


def test_file_of_a_thousand_calls_is_small(tmp_path: Path) -> None:
    """It is sent by mail."""
    with stores.open(f"sqlite:///{tmp_path}/long.db", durability="normal") as store:
        fill(store, "long", loop_items(1_000))
        page = export_run(store, "long")
    assert page.count('<details class="call ok"') == 1_000
    assert len(page.encode()) < 5_000_000


def test_empty_session_is_a_file(tmp_path: Path) -> None:
    """One that was opened, and in which nothing was said."""
    with stores.open(f"sqlite:///{tmp_path}/empty.db") as store, Session.open(store, "empty"):
        page = export_run(store, "empty")
    assert "0 calls" in page


def test_session_that_is_not_there_is_not_written(store: Store) -> None:
    """The error names it."""
    with pytest.raises(SessionNotFoundError) as raised:
        export_run(store, "none")
    assert raised.value.session_id == "none"


def test_command_writes_the_file(handrail: Command, store: Store, tmp_path: Path, wording: Wording) -> None:
    """What was there is replaced."""
    (tmp_path / "run.html").write_text("before", encoding="utf-8")
    ran = handrail("view", sample.NIGHT, "--export", "run.html")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == wording
    assert (tmp_path / "run.html").read_text("utf-8") == export_run(store, sample.NIGHT)


def test_command_says_what_it_needs(handrail: Command, url: str, wording: Wording) -> None:
    """A session to write, which is there, and a port that can be."""
    for words in (["--export", "x.html"], ["none", "--export", "x.html"], ["none"], ["--port", "65536"]):
        ran = handrail("view", *words)
        assert (ran.code, ran.out) != (0, "")
        assert ran.err.replace(url, "URL") == wording


def test_undone_call_leads_to_the_call_that_has_undone_it() -> None:
    """It is marked, because its result does not hold any more."""
    memory = MemoryStore()
    desk = Desk(memory)
    desk.ask("pay", order="A-1")
    desk.ask("note", text="one")
    page = export_run(memory, "desk")
    assert ", undone<" not in page
    asyncio.run(undo.apply(desk.plan(("r", "c2"))))
    page = export_run(memory, "desk")
    assert page.count(", undone<") == 1
    assert 'href="#desk/r/undo%3Ac2"' in page
    assert 'id="desk/r/undo:c2"' in page
