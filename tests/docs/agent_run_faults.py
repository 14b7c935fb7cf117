"""Runs and commands that go wrong, each by what `docs/reference/agent-errors.md` says of why."""

from __future__ import annotations

import asyncio
import io
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from importlib import invalidate_caches
from pathlib import Path

from handrail.adapters.pydantic_ai.conversation import one_at_a_time
from handrail.agents import CallEnded, LoadedAgent, Project, RunEvent, RunOptions, current_run, load_agent
from handrail.agents.run.options import DEFAULT_OPTIONS, RunCommand, record_command
from handrail.cli import main
from handrail.runtime import Session
from handrail.session.conversation import ConversationPart
from handrail.testing import Call, Reply, ScriptedModel
from tests.adapters.closed_ports import closed_port, openai_at
from tests.docs.agent_faults import DESK, TOOLS

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


def failed_call(agent: LoadedAgent, call: Call, options: RunOptions = DEFAULT_OPTIONS) -> Fault:
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


def _link(folder: Path) -> Fault:
    (folder / "desk.agent").symlink_to("nowhere.agent")
    return raised(lambda: load_agent(folder / "desk.agent"))


def _link_out(folder: Path) -> Fault:
    desk = written(folder / "desk", {"../shared.py": TOOLS})
    (folder / "desk/tools.py").unlink()
    (folder / "desk/tools.py").symlink_to("../shared.py")
    return raised(lambda: load_agent(desk))


def _loop(folder: Path) -> Fault:
    (folder / "loop").symlink_to("loop")
    return raised(lambda: Project.load(folder / "loop"))


def _whole_disk(folder: Path) -> Fault:
    desk = load_agent(written(folder, {"desk.agent": DESK.replace("tools: [ping]", "toolsets: [files]")}))
    return raised(lambda: asyncio.run(desk.inspect(RunOptions(root=Path("/")))))


def _broken_package(folder: Path) -> Fault:
    info = "handrail_broken-1.0.dist-info"
    files = {
        f"site/{info}/METADATA": "Metadata-Version: 2.1\nName: handrail-broken\nVersion: 1.0\n",
        f"site/{info}/entry_points.txt": "[handrail.tools]\nbroken = handrail_broken:nothing\n",
        "desk.agent": "---\nname: desk\ntools: [broken]\n---\nBe kind.\n",
    }
    return _with_packages(folder, files)


def _with_packages(folder: Path, files: Mapping[str, str | bytes]) -> Fault:
    agent_file = written(folder, files)
    sys.path.insert(0, str(folder / "site"))
    invalidate_caches()
    try:
        return raised(lambda: load_agent(agent_file))
    finally:
        sys.path.remove(str(folder / "site"))


def _twice_by_packages(folder: Path) -> Fault:
    files = {
        f"site/{name}-1.0.dist-info/{file}": text
        for name in ("shop", "store")
        for file, text in {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            "entry_points.txt": f"[handrail.tools]\ntwice = {name}:ping\n",
        }.items()
    }
    return _with_packages(folder, {**files, "desk.agent": DESK.replace("ping", "twice")})


def _on_a_loop(folder: Path) -> Fault:
    agent = load_agent(written(folder, {}))

    async def run() -> Fault:  # the loop that `run` would stop
        return raised(lambda: agent.run("Go."))

    return asyncio.run(run())


def _wrong_mode(_folder: Path) -> Fault:
    return raised(lambda: RunOptions(mode="perhaps"))  # type: ignore[arg-type] # wrong on purpose


def _unreachable(folder: Path) -> Fault:
    with closed_port() as port:
        return raised(lambda: load_agent(written(folder, {})).run("Go.", RunOptions(model=openai_at(port))))


def _deferred(folder: Path) -> Fault:
    module = "from pydantic_ai import CallDeferred, Tool\n\ndef ping() -> str:\n    raise CallDeferred\n\n"
    files = {"tools.py": f"{module}TOOLS = [Tool(ping, metadata={{'approval': 'allow'}})]\n"}
    return raised(lambda: _run(written(folder, files), Reply(calls=[Call("ping")])))


def _denied_by_mode(folder: Path) -> Fault:
    files = {"desk.agent": "---\nname: desk\ntoolsets: [files_ro]\n---\nBe kind.\n"}
    agent = load_agent(written(folder, files))
    return failed_call(agent, Call("list_files"), RunOptions(mode="deny-all", root=folder))


def _too_deep(folder: Path) -> Fault:
    files = {"desk.agent": "---\nname: desk\ntoolsets: [desk]\n---\nBe kind.\n"}
    return failed_call(load_agent(written(folder, files)), Call("desk", {"input": "Go on."}), RunOptions(max_depth=1))


def _dynamic(folder: Path, call: Call) -> Fault:
    files = {"desk.agent": "---\nname: desk\ntoolsets: [dynamic_agents]\n---\nBe kind.\n"}
    return failed_call(load_agent(written(folder, files)), call)


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
    session[ConversationPart].append(
        ConversationPart(({"kind": "nothing that there is"},), speaker="agent", name="desk")
    )
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
    "the path of the agent file leads nowhere": "run FOLDER/nowhere.agent Go.",
    "the path is a folder": "run FOLDER Go.",
    "it stands without quotes, so the shell takes its words apart": "run FOLDER/desk.agent refund my order",
    "the path of `--rules` leads nowhere, or to a folder": "run FOLDER/desk.agent Go. --rules FOLDER/nowhere.yaml",
    "the path behind `script:` leads nowhere": "run FOLDER/desk.agent Go. --model script:FOLDER/nowhere.yaml",
    "no model is named, on the command line or elsewhere": "run FOLDER/desk.agent Go.",
    "the name is none of PydanticAI's": "run FOLDER/desk.agent Go. --model nowhere:none",
    "no input, and no session to resume": "run FOLDER/desk.agent --model test",
    "`--session` or `--approve later` without a store": "run FOLDER/desk.agent Go. --model test --session monday",
    "the folder to work on does not exist": "run FOLDER/desk.agent Go. --model test --root FOLDER/nowhere",
    "`handrail new` overwrites nothing": "new taken --folder FOLDER",
    "`handrail new` with a name that no agent may have": "new 'a b' --folder FOLDER",
    "an agent is a toolset for others, and the name is taken": "new files --folder FOLDER",
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
    "the path leads nowhere": lambda folder: raised(lambda: load_agent(folder / "nowhere.agent")),
    "it is a folder or a device": lambda folder: raised(lambda: load_agent(folder)),
    "the folder does not exist": lambda folder: raised(lambda: Project.load(folder / "nowhere")),
    "a symbolic link to a missing file": _link,
    "a right to write links is not a right to run code": _link_out,
    "the folder may not be read, or is a link in a circle": _loop,
    "what undoes changes would lie in the folder: it is the home folder, or `/`": _whole_disk,
    "two installed packages offer the name, and nothing else has it": _twice_by_packages,
    "the project has no agent of that name": lambda folder: raised(
        lambda: load_agent(written(folder, {})).project.resolve("dsk")
    ),
    "an installed package offers the name, and cannot be imported": _broken_package,
    "`current_run()` outside of a run": lambda _: raised(current_run),
    "no model is named": lambda folder: raised(lambda: load_agent(written(folder, {})).run("Go.")),
    "`run` on an event loop": _on_a_loop,
    "the mode is another word than the three": _wrong_mode,
    "what is before the colon of a model's name is misspelt": lambda _: raised(
        lambda: RunOptions(model="openia:gpt-5")
    ),
    "the rule would protect nothing: its tool is misspelt, or has gone": _ruled("pign"),
    "no tool that the rule is about takes an argument of that name": _ruled("{tool: ping, arguments: {txet: x}}"),
    "no agent file has that name": _ruled("{tool: ping, agent: dsk}"),
    "the provider did not answer: `host` and `reason` say which and why": _unreachable,
    "the model could not be asked, its reply was of no use, or a limit is reached": lambda folder: raised(
        lambda: _run(written(folder, {}), Reply(calls=[Call("ping")]), Reply(text="Done."))
    ),
    "an external tool, or `CallDeferred`": _deferred,
    "no person could be asked": lambda folder: failed_call(load_agent(written(folder, {})), Call("ping")),
    "the mode is `deny-all`": _denied_by_mode,
    "agents call each other too deep": _too_deep,
    "`agent_call` of an agent that is neither made nor listed": lambda folder: _dynamic(
        folder, Call("agent_call", {"agent": "nobody", "input": "Go."})
    ),
    "`agent_create` with names that its maker does not have": lambda folder: _dynamic(
        folder, Call("agent_create", {"name": "new", "instructions": "Be kind.", "tools": ["ping"]})
    ),
    "no input, and no unfinished run in the session": lambda folder: raised(
        lambda: _run(written(folder, {}), session=Session(), input=None)
    ),
    "an input, although a run has a reply and is unfinished": _unfinished,
    "the session is another agent's": _of_another_agent,
    "another run of an agent uses the session": _beside_another,
    "another version of PydanticAI wrote it": _of_another_version,
    "`handrail run` began the run with `--rules` or on another folder, and neither is named now": _begun_under_rules,
}
"""What is done in a folder."""
