"""Faults of agents: folders, acts and commands, each with the words of its error."""

from __future__ import annotations

import asyncio
import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from handrail.adapters.pydantic_ai.conversation import one_at_a_time
from handrail.agents import CallEnded, LoadedAgent, Project, RunEvent, RunOptions, current_run, load_agent
from handrail.agents.run.interface import RunCommand, record_command
from handrail.cli import main
from handrail.runtime import Session
from handrail.session.conversation import ConversationPart
from handrail.testing import Call, Reply, ScriptedModel
from tests.adapters.kit import closed_port, openai_at

Files = Mapping[str, str | bytes]
"""The files of a folder that differ from a sound one."""


DESK = "---\nname: desk\ntools: [ping]\n---\nBe kind.\n"
"""A sound agent file."""


TOOLS = 'def ping() -> str:\n    "Pings."\n    return ""\n\nTOOLS = [ping]\n'
"""The module that it takes its tool from."""


def _front(text: str) -> Files:
    return {"desk.agent": f"---\nname: desk\n{text}\n---\nBe kind.\n"}


def _settings(text: str) -> Files:
    return {"pyproject.toml": f"[tool.handrail]\n{text}\n"}


def _exports(text: str) -> Files:
    return {
        "tools.py": f"from pydantic_ai.toolsets import FunctionToolset\n{TOOLS.partition('TOOLS')[0]}"
        f"\nfrom pydantic_ai import Tool\n{text}\n"
    }


def _toolset(made: str, *, above: str = "") -> Files:
    """An agent with one toolset, `made`, beside a tool."""
    front = "---\nname: desk\ntools: [ping]\ntoolsets: [made]\n---\nBe kind.\n"
    module = _exports(f"{above}\nTOOLS = [ping]\nTOOLSETS = {{'made': {made}}}")["tools.py"]
    return {"desk.agent": front, "tools.py": module}


def _rules(text: str) -> Files:
    return {**_settings('approval = "approval.yaml"'), "approval.yaml": text}


AGENT_FILES: Mapping[str, Files] = {
    "is not UTF-8": {"desk.agent": b"---\nname: desk\n---\nSei h\xf6flich."},
    "has more than 1,000,000 bytes": {"desk.agent": "-" * 1_000_001},
    "the front matter is missing": {"desk.agent": "Be kind.\n"},
    "the front matter is not closed": {"desk.agent": "---\nname: desk\n"},
    "the front matter is a mapping": {"desk.agent": "---\n- name: desk\n---\nBe kind.\n"},
    "mapping values are not allowed here": _front("description: this: that"),
    "the key 'name' is missing": {"desk.agent": "---\ntools: [ping]\n---\nBe kind.\n"},
    "cannot name an agent": {"desk.agent": "---\nname: a b\n---\nBe kind.\n"},
    "known fields: name, description": _front("toolz: [ping]"),
    "stands here twice": _front("model: a\nmodel: b"),
    "input should be a valid array": _front("tools: ping"),
    "only names stand here": _front("tools: [7]"),
    "'ping' stands here twice": _front("tools: [ping, ping]"),
    "model: this is blank": _front("model: ' '"),
    "the instructions are missing": {"desk.agent": "---\nname: desk\n---\n"},
}
"""Agent files."""


PROJECTS: Mapping[str, Files] = {
    "problems:": {"tools.py": "1 / 0", "other.agent": ""},
    "is not an agent of its project": {**_settings('agents = ["other.agent"]'), "other.agent": DESK},
    "pyproject.toml is not TOML": _settings("model = = 7"),
    "known fields: agents, python": _settings('modle = "x"'),
    "matches no file": _settings('python = ["nothing.py"]'),
    "leaves the project folder": _settings('python = ["../tools.py"]'),
    "input should be a valid string": _settings("model = 7"),
    "give one of them another name": {"tools/more.py": TOOLS},
}
"""Folders and their settings."""


MODULES: Mapping[str, Files] = {
    "cannot be imported": {"tools.py": "1 / 0"},
    "beside it": {"tools/__init__.py": ""},
    "would both be stored as": {
        "tools.py": "from dataclasses import dataclass\nfrom handrail.session import stored_as\n"
        "@stored_as('faults.one')\n@dataclass\nclass One: ...\n\n"
        "@stored_as('faults.one')\n@dataclass\nclass Two: ...\n"
    },
    "must be a list, tuple or dict": _exports("TOOLS = None"),
    "is in __all__, but not in the module": _exports("__all__ = ['pingg']"),
    "is there twice as a tool": _exports("TOOLS = [ping, ping]"),
    "is exported as": _exports("TOOLS = {'pong': ping}"),
    "put it in TOOLSETS": _exports("TOOLS = [FunctionToolset()]"),
    "put it in TOOLS, and": _exports("TOOLSETS = {'ping': Tool(ping)}"),
    "and no tool;": _exports("TOOLS = [7]"),
    "is of type function, and no tool": _exports("TOOLS = [lambda: '']"),
    "cannot be a tool": _exports("def turn(by: complex, *more) -> str:\n    'Turn.'\n    return ''\n\nTOOLS = [turn]"),
    "export an instance, or a factory": _exports("TOOLSETS = {'made': FunctionToolset}"),
    "without an id": _exports("TOOLSETS = [FunctionToolset()]"),
    "a name is 1 to 64 letters": _exports("TOOLSETS = {'a b': FunctionToolset()}"),
    "a factory takes the run context": _exports("def make():\n    return None\n\nTOOLSETS = [make]"),
    "cannot begin the name of a tool": _exports(
        "from handrail.agents import files_toolset\nTOOLSETS = {'a': files_toolset('a', prefix='A B')}"
    ),
}
"""Modules."""


AGENTS: Mapping[str, Files] = {
    "but that tool does not exist": _front("tools: [pingg]"),
    "A toolset of that name exists": _front("tools: [files]"),
    "A tool of that name exists": _front("toolsets: [ping]"),
    "a factory returns a toolset": _toolset("make", above="def make(ctx):\n    return 'tools'"),
    "lie one inside the other": {
        **_toolset("files_toolset('within')", above="from handrail.agents import files_toolset"),
        "within/note.md": "",
        "desk.agent": "---\nname: desk\ntoolsets: [project_files_ro, made]\n---\nBe kind.\n",
    },
    "or External(...)": _exports("TOOLS = [Tool(ping, metadata={'effect': 'reads'})]"),
    "are taken more than once": _toolset("FunctionToolset([ping])"),
}
"""What agents name, and what is made of it."""


RULES: Mapping[str, Files] = {
    "known fields: defaults": _rules("alow: [ping]"),
    "missing field tool": _rules("allow: [{agent: desk}]"),
    "is quoted": _rules("deny:\n- *\n"),
    "this is blank; write a glob": _rules("allow: ['']"),
    "leads to no argument": _rules("allow: [{tool: ping, arguments: {a..b: x}}]"),
    "several are several rules": _rules("allow: [{tool: ping, arguments: {path: [a, b]}}]"),
    "input should be 'allow', 'ask' or 'deny'": _rules("defaults: {read: perhaps}"),
    "input should be 'unmatched'": _rules("deny: [{tool: ping, expect: nothing}]"),
}
"""Approval rules."""


FOLDERS: Mapping[str, Files] = {**AGENT_FILES, **PROJECTS, **MODULES, **AGENTS, **RULES}
"""All of them."""


Fault = tuple[str, str]
"""What kind of error it is, as the page has it, and its message."""


def written(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A sound project with some files of its own; its agent file."""
    for name, content in {"desk.agent": DESK, "tools.py": TOOLS, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "desk.agent"


def raised(act: Callable[[], object]) -> Fault:
    """The exception that ends an act."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever ends the act is what is looked for
        return type(error).__name__, str(error)
    raise AssertionError("nothing was raised")


def inspected(agent_file: Path) -> object:
    """What an agent would be offered, its rules included."""
    agent = load_agent(agent_file)
    return agent.rules(), asyncio.run(agent.inspect(RunOptions(root=agent_file.parent / "within")))


def failed_call(agent: LoadedAgent, call: Call, options: RunOptions) -> Fault:
    """What the model reads of a call that fails."""
    failed: list[str] = []

    def hear(event: RunEvent) -> None:
        if isinstance(event, CallEnded) and not event.success:
            failed.append(event.content)

    model = ScriptedModel([Reply(calls=[call]), Reply(text="Done.")])
    agent.run("Go.", replace(options, model=model, listener=hear))
    (message,) = failed
    return "a failed call", message


def _run(agent_file: Path, *replies: Reply, session: Session | None = None, input: str | None = "Go.") -> object:
    options = RunOptions(model=ScriptedModel(replies), session=session, request_limit=1)
    return load_agent(agent_file).run(input, options)


def _linked(folder: Path, name: str, target: str) -> Fault:
    """A file of a project that is a link."""
    desk = written(folder / "desk", {"../shared.py": TOOLS})
    (folder / "desk" / name).unlink()
    (folder / "desk" / name).symlink_to(target)
    return raised(lambda: load_agent(desk))


def _loop(folder: Path) -> Fault:
    (folder / "loop").symlink_to("loop")
    return raised(lambda: Project.load(folder / "loop"))


def _whole_disk(folder: Path) -> Fault:
    desk = load_agent(written(folder, {"desk.agent": DESK.replace("tools: [ping]", "toolsets: [files]")}))
    return raised(lambda: asyncio.run(desk.inspect(RunOptions(root=Path("/")))))


def _on_a_loop(folder: Path) -> Fault:
    agent = load_agent(written(folder, {}))

    async def run() -> Fault:  # the loop that `run` would stop
        return raised(lambda: agent.run("Go."))

    return asyncio.run(run())


def _unreachable(folder: Path) -> Fault:
    with closed_port() as port:
        return raised(lambda: load_agent(written(folder, {})).run("Go.", RunOptions(model=openai_at(port))))


def _deferred(folder: Path) -> Fault:
    module = "from pydantic_ai import CallDeferred, Tool\n\ndef ping() -> str:\n    raise CallDeferred\n\n"
    files = {"tools.py": f"{module}TOOLS = [Tool(ping, metadata={{'approval': 'allow'}})]\n"}
    return raised(lambda: _run(written(folder, files), Reply(calls=[Call("ping")])))


def _failed(folder: Path, toolset: str, call: Call, **options: Any) -> Fault:
    """What the model reads of a call of an agent with one toolset."""
    desk = written(folder, {"desk.agent": DESK.replace("tools: [ping]", f"toolsets: [{toolset}]")})
    return failed_call(load_agent(desk), call, RunOptions(root=folder, **options))


def _unfinished(folder: Path) -> Fault:
    session = Session()
    agent_file = written(folder, {})
    raised(lambda: _run(agent_file, Reply(calls=[Call("ping")]), session=session))
    return raised(lambda: _run(agent_file, session=session))


def _of_another_agent(folder: Path) -> Fault:
    session = Session()
    agent_file = written(folder, {"other.agent": DESK.replace("name: desk", "name: other")})
    _run(agent_file, Reply(text="Done."), session=session)
    return raised(lambda: _run(folder / "other.agent", session=session))


def _beside_another(folder: Path) -> Fault:
    session = Session()
    agent_file = written(folder, {})
    with one_at_a_time(session, "desk", of="agent"):
        return raised(lambda: _run(agent_file, session=session))


def _of_another_version(folder: Path) -> Fault:
    session = Session()
    part = ConversationPart(({"kind": "nothing that there is"},), speaker="agent", name="desk")
    session[ConversationPart].append(part)
    return raised(lambda: _run(written(folder, {}), session=session))


def _begun_under_rules(folder: Path) -> Fault:
    session = Session()
    agent_file = written(folder, {})
    record_command(session, RunCommand(agent_file="desk.agent", folder=str(folder), rules="strict.yaml"))
    return raised(lambda: _run(agent_file, session=session, input=None))


def typed(folder: Path, line: str) -> Fault:
    """What a command says on standard error, and its exit code; `FOLDER` in it is the folder."""
    written(folder, {"taken/note.md": ""})
    screen = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(screen):
        code = main([word.replace("FOLDER", str(folder)) for word in shlex.split(line)])
    return f"exit code {code}", screen.getvalue()


COMMANDS: Mapping[str, str] = {
    "for AGENT_FILE": "run FOLDER/nowhere.agent Go.",
    "more words than arguments": "run FOLDER/desk.agent refund my order",
    "for --rules": "run FOLDER/desk.agent Go. --rules FOLDER/nowhere.yaml",
    "nowhere.yaml: the file does not exist": "run FOLDER/desk.agent Go. --model script:FOLDER/nowhere.yaml",
    "which model?": "run FOLDER/desk.agent Go.",
    "no such model is known": "run FOLDER/desk.agent Go. --model nowhere:none",
    "what is the agent to do?": "run FOLDER/desk.agent --model test",
    "needs a durable store": "run FOLDER/desk.agent Go. --model test --session monday",
    "--root": "run FOLDER/desk.agent Go. --model test --root FOLDER/nowhere",
    "already exists": "new taken --folder FOLDER",
    "is not an agent's name": "new 'a b' --folder FOLDER",
}
"""What is typed."""


def _ruled(rule: str) -> Callable[[Path], Fault]:
    """A run under a deny rule, in a project whose one tool takes a text."""
    tools = TOOLS.replace("def ping()", "def ping(text: str)")
    settings = '[tool.handrail]\napproval = "approval.yaml"\nmodel = "test"\n'

    def act(folder: Path) -> Fault:
        files = {"tools.py": tools, "pyproject.toml": settings, "approval.yaml": f"deny: [{rule}]"}
        return raised(lambda: load_agent(written(folder, files)).run("Go."))

    return act


ACTS: Mapping[str, Callable[[Path], Fault]] = {
    "the file does not exist": lambda folder: raised(lambda: load_agent(folder / "nowhere.agent")),
    "an agent file is a text file": lambda folder: raised(lambda: load_agent(folder)),
    "cannot be listed: No such file": lambda folder: raised(lambda: Project.load(folder / "nowhere")),
    "is a link that leads nowhere": lambda folder: _linked(folder, "desk.agent", "nowhere.agent"),
    "is a link out of the project": lambda folder: _linked(folder, "tools.py", "../shared.py"),
    "cannot be listed": _loop,
    "cannot be worked on as a whole": _whole_disk,
    "no agent is running here": lambda _: raised(current_run),
    "which model is agent": lambda folder: raised(lambda: load_agent(written(folder, {})).run("Go.")),
    "run would stop the event loop": _on_a_loop,
    "mode is": lambda _: raised(lambda: RunOptions(mode="perhaps")),  # type: ignore[arg-type] # wrong on purpose
    "because there is no provider": lambda _: raised(lambda: RunOptions(model="openia:gpt-5")),
    "and the project has no such tool": _ruled("pign"),
    "has no such argument": _ruled("{tool: ping, arguments: {txet: x}}"),
    "and the project has no such agent": _ruled("{tool: ping, agent: dsk}"),
    "no answer from": _unreachable,
    "stopped:": lambda folder: raised(
        lambda: _run(written(folder, {}), Reply(calls=[Call("ping")]), Reply(text="Done."))
    ),
    "are carried out outside": _deferred,
    "it needs approval": lambda folder: failed_call(load_agent(written(folder, {})), Call("ping"), RunOptions()),
    "no rule allows it": lambda folder: _failed(folder, "files_ro", Call("list_files"), mode="deny-all"),
    "was not started: it would be at depth": lambda folder: _failed(
        folder, "desk", Call("desk", {"input": "Go on."}), max_depth=1
    ),
    "you may not call": lambda folder: _failed(
        folder, "dynamic_agents", Call("agent_call", {"agent": "nobody", "input": "Go."})
    ),
    "cannot be given": lambda folder: _failed(
        folder, "dynamic_agents", Call("agent_create", {"name": "new", "instructions": "Be kind.", "tools": ["ping"]})
    ),
    "so there is nothing to resume with": lambda folder: raised(
        lambda: _run(written(folder, {}), session=Session(), input=None)
    ),
    "resume it without an input": _unfinished,
    "holds a conversation of agent": _of_another_agent,
    "with one run at a time": _beside_another,
    "cannot be read by this version": _of_another_version,
    "was begun with other rules": _begun_under_rules,
}
"""What is done in a folder."""

SAYS_ITS_CURE: Mapping[str, Sequence[str]] = {
    "AgentFileError": (
        "the file does not exist",
        "an agent file is a text file",
        "is not UTF-8",
        "the front matter is missing",
        "the front matter is not closed",
        "the front matter is a mapping",
        "the key 'name' is missing",
        "cannot name an agent",
        "known fields: name, description",
        "stands here twice",
        "input should be a valid array",
        "'ping' stands here twice",
        "model: this is blank",
        "the instructions are missing",
    ),
    "ProjectError": (
        "cannot be listed: No such file",
        "pyproject.toml is not TOML",
        "known fields: agents, python",
        "matches no file",
        "leaves the project folder",
        "input should be a valid string",
    ),
    "DiscoveryError": (
        "must be a list, tuple or dict",
        "is in __all__, but not in the module",
        "is exported as",
        "put it in TOOLSETS",
        "put it in TOOLS, and",
        "and no tool;",
        "is of type function, and no tool",
        "export an instance, or a factory",
        "without an id",
        "a name is 1 to 64 letters",
        "a factory takes the run context",
    ),
    "ResolutionError": (
        "but that tool does not exist",
        "A toolset of that name exists",
        "A tool of that name exists",
    ),
    "AgentError": ("no agent is running here",),
    "PromptValidationError": ("or External(...)",),
    "ApprovalRulesError": (
        "known fields: defaults",
        "missing field tool",
        "is quoted",
        "this is blank; write a glob",
        "leads to no argument",
        "several are several rules",
        "input should be 'allow', 'ask' or 'deny'",
        "input should be 'unmatched'",
    ),
    "exit code 2": (
        "for AGENT_FILE",
        "more words than arguments",
        "what is the agent to do?",
        "for --rules",
        "--root",
        "is not an agent's name",
    ),
    "exit code 1": ("already exists",),
}
"""Words of messages that say what to write, and so have no row on the page, by the kind of their error."""
