"""`handrail proxy` and `handrail serve`: MCP servers behind the pipeline, and tools as an MCP server."""

from __future__ import annotations

import asyncio
import gc
import shlex
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from uuid import uuid4

from cyclopts import CycloptsError, Group, Parameter

from handrail import store as stores
from handrail.adapters.tool_executor import ToolExecutor
from handrail.cli.options import A_FILE, COUNT, EXAMPLES, FILLED, IN_GROUP, PORT, import_object
from handrail.cli.process_exit import DONE
from handrail.cli.screen import Field, Screen
from handrail.errors import SessionLockedError
from handrail.prompt import Prompt, PromptTemplate, Section, Tool, ToolPolicy
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import SessionRow

try:
    import uvicorn

    from handrail.adapters.mcp import McpServer, McpToolsSection, ToolServer, ToolSettings, serve_stdio
    from handrail.adapters.mcp.http import HttpSettings, http_app
    from handrail.adapters.mcp.proxy import open_proxy
    from handrail.adapters.mcp.settings import ConfiguredServer, passed_on, read_servers
    from handrail.adapters.mcp.tool_server import ServerOptions
    from handrail.adapters.mcp.tools import tool_name
except ModuleNotFoundError as _error:
    raise ImportError(f'MCP needs {_error.name}, not installed here: pip install "handrail[mcp]"') from _error

if TYPE_CHECKING:
    from handrail.agents.agent import LoadedAgent

_SERVER = Group("The server", sort_key=1)
_RUNNERS = frozenset({"python", "node", "npx", "uvx", "bunx"})
_EXPECTED = "name a prompt, a section or a list of tools by a module or file, a colon and its name: tools.py:TOOLS"
_NO_CALL = CallRef(None, "")
_OWN = "/own-"


@Parameter(name="*", group=_SERVER)
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChoices:
    """How clients reach the tools, and what is recorded.

    Attributes:
        rules: Approval rules. Without them every call that the client makes may run.
        http: Serve streamable HTTP on this port of 127.0.0.1, instead of standard input and output.
        max_calls: How many calls run at the same time.
        store: the URL of the store, as it was typed.
        session: The session that records the calls. By default that of the command, or the first of its name with a
            number that no other process has.
    """

    rules: Annotated[Path | None, A_FILE] = None
    http: Annotated[int | None, PORT] = None
    max_calls: Annotated[int, COUNT] = 64
    store: Annotated[
        str | None,
        FILLED,
        Parameter(
            metavar="URL",
            env_var="HANDRAIL_STORE",
            group=IN_GROUP,
            help=f"Where calls and effects are recorded: {EXAMPLES}. It is made if it does not exist. By default in "
            "memory, until the process ends.",
        ),
    ] = None
    session: Annotated[str | None, FILLED, Parameter(metavar="NAME", group=IN_GROUP)] = None

    def policies(self, caller: str, is_claim: Callable[[str], bool] = lambda _: False) -> tuple[ToolPolicy, ...]:
        """The policies of the rules; `is_claim` says of a tool whether only its server says that it reads."""
        if self.rules is None:
            return ()
        from handrail.agents.approval.gate import rule_policies  # noqa: PLC0415 - needs the extra `agents`
        from handrail.agents.approval.rules import read_rules  # noqa: PLC0415

        return rule_policies(read_rules(self.rules), caller, is_claim)

    def check_rules(self, caller: str, tools: Iterable[Tool[Any, Any]]) -> None:
        """Raises `ApprovalRulesError` if the rules name what the tools are not."""
        if self.rules is None:
            return
        from handrail.agents.unmatched_rules import check_rules_of_tools  # noqa: PLC0415 - needs the extra `agents`

        check_rules_of_tools(self.rules, tools, caller)

    def options(self, name: str, session: Session) -> ServerOptions:
        """The options of the server."""
        hint = "This client cannot ask a person, and without --store no other process can."
        if session.store is not None:
            answer = f"handrail approvals answer {{session}} {{call}} yes --store {shlex.quote(session.store.url)}"
            hint = f"A person answers by: {answer}. Then call it again."
        takes_keys = _OWN not in session.session_id
        return {"name": name, "max_calls": self.max_calls, "approve_hint": hint, "takes_keys": takes_keys}


def serve_proxy(  # noqa: PLR0913 - the options of the command
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    config: Annotated[Path | None, A_FILE] = None,
    url: Annotated[str | None, FILLED, Parameter(metavar="URL")] = None,
    env: tuple[str, ...] = (),
    explain: bool = False,
    format: Literal["table", "json"] = "table",
    choices: ServerChoices = ServerChoices(),
) -> int:
    """Put MCP servers behind Handrail: each call of a client is validated, judged by rules, and recorded.

    A call that may have had an effect without an answer is not repeated. A server that ends is started again. Give the
    command of a server behind two hyphens, the URL of one, or a file that describes several.

    Example: `handrail proxy --store sqlite:///calls.db -- uvx mcp-server-git`

    Args:
        command: The command of the server, with its arguments.
        config: A file that describes servers, and what is declared about their tools.
        url: The URL of a remote server.
        env: Variables that the server gets: `NAME` of this process, or `NAME=value`.
        explain: Print the tools with their effects, and what the rules say, and serve nothing.
        format: Of `--explain`.
        choices: How it is served.
    """
    if command and command[0].startswith("-"):
        raise CycloptsError(msg=f"there is no option {command[0]}")
    if sum(map(bool, (command, url, config))) != 1:
        raise CycloptsError(msg="give one of these: -- and the command of a server, --url, or --config")
    if config is not None:
        servers: Sequence[ConfiguredServer] = read_servers(config)
    else:
        try:
            variables = passed_on(env)
        except ValueError as error:
            raise CycloptsError(msg=f"--env: {error}") from error
        server = McpServer(name=_server_name(command), command=command, url=url or "", env=variables)
        servers = (ConfiguredServer(server, ToolSettings()),)
    first, *others = servers
    name = "proxy" if others else tool_name(f"proxy-{first.server.name}")
    with nullcontext(Session()) if explain else _session(choices, name) as session:
        _run(_proxy(servers, session, choices, explain=explain, as_json=format == "json"))
    return DONE


def _server_name(command: Sequence[str]) -> str:
    # What a runner runs: `python bank.py` and `npx -y @acme/bank` are `bank`.
    words = [Path(word).stem for word in command if not word.startswith("-") and " " not in word]
    if not words:
        return "server"
    return words[1] if words[0].rstrip(".0123456789") in _RUNNERS and len(words) > 1 else words[0]


def serve_tools(target: str, /, *, choices: ServerChoices = ServerChoices()) -> int:
    """Serve tools to MCP clients: those of an agent, or of a prompt, a section or a list in a Python module.

    The tools of an agent file are judged by the approval rules of its project.

    Example: `handrail serve desk.agent --store sqlite:///desk.db`

    Args:
        target: An agent file; or a module or file and a name in it, such as desk/tools.py:TOOLS.
        choices: How they are served.
    """
    if target.endswith(".agent"):
        from handrail.agents.agent import load_agent  # noqa: PLC0415 - needs the extra `agents`

        agent = load_agent(target)  # before the session, which holds values of its types
        with _session(choices, "serve") as session:
            _run(_serve_agent(agent, session, choices))
        return DONE
    prompt = _with_policies(_load_prompt(target), choices.policies("serve"))
    choices.check_rules("serve", (tool for tool, _ in prompt.template.placed_tools()))
    with _session(choices, "serve") as session, ToolExecutor(prompt=prompt, session=session) as executor:
        _run(_serve(ToolServer(executor, **choices.options(prompt.name, session)), choices))
    return DONE


async def _serve_agent(agent: LoadedAgent, session: Session, choices: ServerChoices) -> None:
    from handrail.agents.approval.rules import read_rules  # noqa: PLC0415 - needs the extra `agents`
    from handrail.agents.run.interface import RunOptions  # noqa: PLC0415
    from handrail.agents.serve import open_agent  # noqa: PLC0415

    rules = None if choices.rules is None else read_rules(choices.rules)
    async with open_agent(agent, RunOptions(session=session, rules=rules)) as source:
        options: ServerOptions = {**choices.options(agent.name, session), "instructions": source.instructions}
        await _serve(ToolServer(source, **options), choices)


@contextmanager
def _session(choices: ServerChoices, name: str) -> Generator[Session]:
    if choices.store is None:
        Screen().remark("Nothing is stored: calls are recorded in memory. --store URL keeps them.")
        yield Session(session_id=choices.session or name)
        return
    with stores.open(choices.store) as store, _first_free(store, choices.session, name) as session:
        yield session


def _first_free(store: stores.Store, named: str | None, name: str) -> Session:
    if named is not None:
        try:
            return Session.open(store, named)
        except SessionLockedError as error:
            cure = "end what has it open, or name another one by --session"
            raise CycloptsError(msg=f"the session {named!r} is in use; {cure}") from error
    try:
        return Session.open(store, name)
    except SessionLockedError:
        # Never opened again, so that no call gets the record of another client's; made for the first, so that equal
        # calls of both are of one run: what one has left unknown, the other does not repeat.
        own = f"{name}{_OWN}{uuid4().hex[:8]}"
        Screen().remark(
            f"The session {name} is in use. This process has the session {own}, and takes no keys in _meta."
        )
        store.create(SessionRow(own, {}, name, store.now()))
        return Session.open(store, own)


def _run(serving: Any) -> None:  # noqa: ANN401 - a coroutine
    async def main() -> None:
        task, loop = asyncio.ensure_future(serving), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait((task,))
        error = None if task.cancelled() else task.exception()
        if error is not None and not task.cancelling():  # streams of the SDK fail if a message is under way at SIGTERM
            raise error

    asyncio.run(main())


async def _serve(tools: ToolServer, choices: ServerChoices) -> None:
    gc.collect()
    gc.freeze()  # what has been made so far lives as long as the process
    if choices.http is None:
        await serve_stdio(tools)
        return
    app = http_app(tools, HttpSettings())
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5))

    def stop() -> None:
        server.should_exit = True

    # uvicorn obeys both while it serves, and raises the signal again when it has ended, for who had it before.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    with socket.create_server(("127.0.0.1", choices.http)) as listener:
        # What it accepts has it, too. asyncio sets it only on sockets that name their protocol: others wait 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Screen().remark(f"Serving on http://127.0.0.1:{choices.http}/mcp")
        await server.serve([listener])


async def _proxy(
    servers: Sequence[ConfiguredServer], session: Session, choices: ServerChoices, *, explain: bool, as_json: bool
) -> None:
    policies: list[ToolPolicy] = []

    def make_policies(is_claim: Callable[[str], bool]) -> Sequence[ToolPolicy]:
        policies.extend(choices.policies("proxy", is_claim))
        return policies

    options = choices.options(servers[0].server.name if len(servers) == 1 else "handrail", session)
    async with open_proxy(servers, session=session, policies=make_policies, **options) as proxy:
        choices.check_rules("proxy", (tool for section in proxy.sections for tool in section.tools))
        screen = Screen()
        for section in proxy.sections:
            names = section.settings.unknown_names({tool.name for tool in section.connection.tools})
            settings = section.settings
            if void := {*settings.keys, *settings.forward_key, *settings.reconcile}.intersection(names):
                raise CycloptsError(msg=f"{section.title} has no tool {void.pop()}, whose effects are declared")
            unknown = (f"{section.title} has no tool {name}, which is declared for it" for name in names)
            for fault in (*section.faults, *unknown):
                screen.remark(f"{fault}.")
        if not explain:
            await _serve(proxy.server, choices)
            return
        rows = [row for section in proxy.sections for row in _rows(section, policies)]
        if as_json:
            screen.json({"tools": rows})
        else:
            screen.table(_COLUMNS, rows)


_Row = dict[str, str]
_COLUMNS = tuple(Field[_Row](name, itemgetter(name)) for name in ("tool", "server", "effect", "from", "calls"))


def _rows(section: McpToolsSection, policies: Sequence[ToolPolicy]) -> Generator[_Row]:
    for tool in section.tools:
        _, source = section.settings.effect(section.definitions[tool.name])
        verdict = "allow: there are no rules"
        if policies:
            gated: Any = policies[0]
            judgement = gated.gate.judge(gated.describe(tool, {}, _NO_CALL, None))
            verdict = f"{judgement.verdict}: {judgement.reason}"
        yield {"tool": tool.name, "server": section.title, "effect": tool.effect, "from": source, "calls": verdict}


def _load_prompt(target: str) -> Prompt[Any]:
    value = import_object(target, _EXPECTED)
    there: Any = value  # of any parameters
    kind = type(there).__name__
    if isinstance(value, Prompt):
        return cast("Prompt[Any]", there)
    if isinstance(value, PromptTemplate):
        return Prompt(there)
    if isinstance(value, Section):
        return Prompt(PromptTemplate[str](ns="mcp", key="serve", name=there.key, sections=[there]))
    if isinstance(value, list | tuple) and value and all(isinstance(one, Tool) for one in there):
        return Prompt.from_tools(there)
    raise CycloptsError(msg=f"{target} is of type {kind}: {_EXPECTED}")


def _with_policies(prompt: Prompt[Any], policies: tuple[ToolPolicy, ...]) -> Prompt[Any]:
    gated = prompt.bind()
    gated.template = replace(prompt.template, policies=(*policies, *prompt.template.policies))
    return gated
