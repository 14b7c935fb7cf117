"""Project folders that are wrong, each by what `docs/reference/agent-errors.md` says of why its error comes."""

from __future__ import annotations

from collections.abc import Mapping

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
        "tools.py": f"from pydantic_ai.toolsets import DynamicToolset, FunctionToolset\n{TOOLS.partition('TOOLS')[0]}"
        f"\nfrom pydantic_ai import Tool\n{text}\n"
    }


def _toolset(made: str, *, above: str = "") -> Files:
    """An agent with one toolset, `made`, beside a tool."""
    front = "---\nname: desk\ntools: [ping]\ntoolsets: [made]\n---\nBe kind.\n"
    module = _exports(f"{above}\nTOOLS = [ping]\nTOOLSETS = {{'made': {made}}}")["tools.py"]
    return {"desk.agent": front, "tools.py": module}


def _factory(body: str, *, head: str = "def make(ctx):") -> Files:
    return _toolset("make", above=f"{head}\n    {body}")


def _rules(text: str) -> Files:
    return {**_settings('approval = "approval.yaml"'), "approval.yaml": text}


AGENT_FILES: Mapping[str, Files] = {
    "another encoding": {"desk.agent": b"---\nname: desk\n---\nSei h\xf6flich."},
    "a file too large to be meant": {"desk.agent": "-" * 1_000_001},
    "the first line is not `---`": {"desk.agent": "Be kind.\n"},
    "there is no second line `---`": {"desk.agent": "---\nname: desk\n"},
    "a list or a text stands between the lines": {"desk.agent": "---\n- name: desk\n---\nBe kind.\n"},
    "YAML reads a colon in a text as a key": _front("description: this: that"),
    "every agent has a name": {"desk.agent": "---\ntools: [ping]\n---\nBe kind.\n"},
    "the name becomes that of a tool": {"desk.agent": "---\nname: a b\n---\nBe kind.\n"},
    "an unknown key of an agent file": _front("toolz: [ping]"),
    "one key, two values": _front("model: a\nmodel: b"),
    "agent files have names only": _front("per_run_step: true"),
    "`tools: ping`, or nothing after the colon": _front("tools: ping"),
    "a number, a blank, a mapping in the list": _front("tools: [7]"),
    "`disclose: [shell]`": _front("disclose: [shell]"),
    "`disclose` names another toolset than the agent has": _front("disclose: {shell: summary}"),
    "a name is in one list twice": _front("tools: [ping, ping]"),
    "YAML reads `7` or `true` as no text": _front("description: 7"),
    "it says nothing": _front("model: ' '"),
    "nothing stands below the front matter": {"desk.agent": "---\nname: desk\n---\n"},
}
"""Agent files."""

PROJECTS: Mapping[str, Files] = {
    "several files are wrong": {"tools.py": "1 / 0", "other.agent": ""},
    "the patterns of `agents` leave it out, and another file has its name": {
        **_settings('agents = ["other.agent"]'),
        "other.agent": DESK,
    },
    "a slip in the file": _settings("model = = 7"),
    "lists in lists in `pyproject.toml`": _settings(f"model = {'[' * 100_000}"),
    "an unknown key of `[tool.handrail]`": _settings('modle = "x"'),
    "a pattern that is written there finds nothing": _settings('python = ["nothing.py"]'),
    "an absolute path, or `..`": _settings('python = ["../tools.py"]'),
    "`approval` names a file that does not exist": _settings('approval = "rules.yaml"'),
    "a number or list where text is due": _settings("model = 7"),
    "two tools, two toolsets or two agents have one name": {"tools/more.py": TOOLS},
}
"""Folders and their settings."""

MODULES: Mapping[str, Files] = {
    "the module raises, or calls `sys.exit`": {"tools.py": "1 / 0"},
    "`tools.py` beside `tools/__init__.py`, or a dot in the path": {"tools/__init__.py": ""},
    "two classes have one name by `stored_as`, which is for all of a process": {
        "tools.py": "from dataclasses import dataclass\nfrom handrail.session import stored_as\n"
        "@stored_as('faults.one')\n@dataclass\nclass One: ...\n\n"
        "@stored_as('faults.one')\n@dataclass\nclass Two: ...\n"
    },
    "`TOOLS = None`, or a single tool": _exports("TOOLS = None"),
    "a misspelt name": _exports("__all__ = ['pingg']"),
    "one name several times": _exports("__all__ = ['ping', 'ping']"),
    "one name twice in `TOOLS`": _exports("TOOLS = [ping, ping]"),
    "the key is not the tool's own name, which models see": _exports("TOOLS = {'pong': ping}"),
    "a toolset, a section or a factory in `TOOLS`": _exports("TOOLS = [FunctionToolset()]"),
    "a tool in `TOOLSETS`": _exports("TOOLSETS = {'ping': Tool(ping)}"),
    "a constant, a class, an agent": _exports("TOOLS = [7]"),
    "a lambda, a partial, an object that can be called, a function that is built into Python": _exports(
        "TOOLS = [lambda: '']"
    ),
    "a signature that cannot be a tool, with all its faults": _exports(
        "def turn(by: complex, *more) -> str:\n    'Turn.'\n    return ''\n\nTOOLS = [turn]"
    ),
    "`Shop.charge`": _exports(
        "class Shop:\n    def close(self) -> str:\n        'Close.'\n        return ''\n\nTOOLS = [Shop.close]"
    ),
    "a class of toolsets": _exports("TOOLSETS = {'made': FunctionToolset}"),
    "a toolset in a list has no name": _exports("TOOLSETS = [FunctionToolset()]"),
    "a blank, a dot, an umlaut in a name": _exports("TOOLSETS = {'a b': FunctionToolset()}"),
    "a factory that takes nothing, or more": _exports("def make():\n    return None\n\nTOOLSETS = [make]"),
    "the `prefix` of `files_toolset`, `shell_toolset`, `sandbox_toolset` or `python_toolset`": _exports(
        "from handrail.agents import files_toolset\nTOOLSETS = {'a': files_toolset('a', prefix='A B')}"
    ),
    "the folder of `files_toolset` is not a path": _exports(
        "from handrail.agents import files_toolset\nTOOLSETS = {'a': files_toolset(7)}"
    ),
}
"""Modules."""

AGENTS: Mapping[str, Files] = {
    "no module lists it in `TOOLS`": _front("tools: [pingg]"),
    "a toolset under `tools:`": _front("tools: [files]"),
    "a tool under `toolsets:`": _front("toolsets: [ping]"),
    "it returned something else": _factory("return 'tools'"),
    "it returned a class": _factory("return FunctionToolset"),
    "it returned a coroutine of a coroutine": _factory(
        "return later()", head="async def later():\n    return None\n\nasync def make(ctx):"
    ),
    "`shared(...)` around a toolset that makes a copy for each run": _toolset(
        "shared(DynamicToolset(lambda ctx: None))", above="from handrail.agents import shared"
    ),
    "files of both folders could not be undone together": {
        **_toolset("files_toolset('within')", above="from handrail.agents import files_toolset"),
        "within/note.md": "",
        "desk.agent": "---\nname: desk\ntoolsets: [project_files_ro, made]\n---\nBe kind.\n",
    },
    "a word that Handrail does not know": _exports("TOOLS = [Tool(ping, metadata={'effect': 'reads'})]"),
    "tools of one agent have one name": _toolset("FunctionToolset([ping])"),
}
"""What agents name, and what is made of it."""

RULES: Mapping[str, Files] = {
    "an unknown key of the rules": _rules("alow: [ping]"),
    "a rule that names no tool": _rules("allow: [{agent: desk}]"),
    "YAML reads a bare star as an alias": _rules("deny:\n- *\n"),
    "an empty glob": _rules("allow: ['']"),
    "a place such as `a..b`": _rules("allow: [{tool: ping, arguments: {a..b: x}}]"),
    "a list of globs for one argument": _rules("allow: [{tool: ping, arguments: {path: [a, b]}}]"),
    "a default is another word than the three": _rules("defaults: {read: perhaps}"),
    "another word than the one": _rules("deny: [{tool: ping, expect: nothing}]"),
}
"""Approval rules."""

FOLDERS: Mapping[str, Files] = {**AGENT_FILES, **PROJECTS, **MODULES, **AGENTS, **RULES}
"""All of them."""
