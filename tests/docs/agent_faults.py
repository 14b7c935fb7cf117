"""Project folders that are wrong, each by the words of its message on `docs/reference/agent-errors.md`."""

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
    "is not UTF-8": {"desk.agent": b"---\nname: desk\n---\nSei h\xf6flich."},
    "has more than 1,000,000 bytes": {"desk.agent": "-" * 1_000_001},
    "the front matter is missing": {"desk.agent": "Be kind.\n"},
    "the front matter is not closed": {"desk.agent": "---\nname: desk\n"},
    "it is to be a mapping": {"desk.agent": "---\n- name: desk\n---\nBe kind.\n"},
    "mapping values are not allowed here": _front("description: this: that"),
    "the key 'name' is missing": {"desk.agent": "---\ntools: [ping]\n---\nBe kind.\n"},
    "cannot name an agent": {"desk.agent": "---\nname: a b\n---\nBe kind.\n"},
    "the front matter has no key": _front("toolz: [ping]"),
    "stands here twice": _front("model: a\nmodel: b"),
    "'per_run_step' is set in Python": _front("per_run_step: true"),
    "is a list of names": _front("tools: ping"),
    "has names only": _front("tools: [7]"),
    "is a mapping of names of toolsets": _front("disclose: [shell]"),
    "which is not in toolsets": _front("disclose: {shell: summary}"),
    "twice, first in line": _front("tools: [ping, ping]"),
    "put it in quotes": _front("description: 7"),
    "model is blank": _front("model: ' '"),
    "the instructions are missing": {"desk.agent": "---\nname: desk\n---\n"},
}
"""Agent files."""

PROJECTS: Mapping[str, Files] = {
    "problems:": {"tools.py": "1 / 0", "other.agent": ""},
    "is not an agent of its project": {
        **_settings('agents = ["other.agent"]'),
        "other.agent": DESK,
    },
    "pyproject.toml is not TOML": _settings("model = = 7"),
    "is nested too deep to be read": _settings(f"model = {'[' * 100_000}"),
    "does not exist.": _settings('modle = "x"'),
    "which matches no file": _settings('python = ["nothing.py"]'),
    "which leaves the project folder": _settings('python = ["../tools.py"]'),
    "but the file does not exist": _settings('approval = "rules.yaml"'),
    "write a text": _settings("model = 7"),
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
    "is in __all__": _exports("__all__ = ['ping', 'ping']"),
    "is there twice as a tool": _exports("TOOLS = [ping, ping]"),
    "is exported as": _exports("TOOLS = {'pong': ping}"),
    "put it in TOOLSETS": _exports("TOOLS = [FunctionToolset()]"),
    "put it in TOOLS, and": _exports("TOOLSETS = {'ping': Tool(ping)}"),
    "and no tool;": _exports("TOOLS = [7]"),
    "which has no name": _exports("TOOLS = [lambda: '']"),
    "cannot be a tool": _exports("def turn(by: complex, *more) -> str:\n    'Turn.'\n    return ''\n\nTOOLS = [turn]"),
    "is a method without its object": _exports(
        "class Shop:\n    def close(self) -> str:\n        'Close.'\n        return ''\n\nTOOLS = [Shop.close]"
    ),
    "export an instance, or a factory": _exports("TOOLSETS = {'made': FunctionToolset}"),
    "without an id": _exports("TOOLSETS = [FunctionToolset()]"),
    "a name is 1 to 64 letters": _exports("TOOLSETS = {'a b': FunctionToolset()}"),
    "a factory takes the run context": _exports("def make():\n    return None\n\nTOOLSETS = [make]"),
    "cannot begin the name of a tool": _exports(
        "from handrail.agents import files_toolset\nTOOLSETS = {'a': files_toolset('a', prefix='A B')}"
    ),
    "give a path": _exports("from handrail.agents import files_toolset\nTOOLSETS = {'a': files_toolset(7)}"),
}
"""Modules."""

AGENTS: Mapping[str, Files] = {
    "but that tool does not exist": _front("tools: [pingg]"),
    "A toolset of that name exists": _front("tools: [files]"),
    "A tool of that name exists": _front("toolsets: [ping]"),
    "a factory returns a toolset": _factory("return 'tools'"),
    "return an instance": _factory("return FunctionToolset"),
    "it did not await": _factory("return later()", head="async def later():\n    return None\n\nasync def make(ctx):"),
    "cannot be shared": _toolset(
        "shared(DynamicToolset(lambda ctx: None))", above="from handrail.agents import shared"
    ),
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
    "a file of approval rules has no key": _rules("alow: [ping]"),
    "a rule has the key 'tool'": _rules("allow: [{agent: desk}]"),
    "is quoted": _rules("deny:\n- *\n"),
    "tool is blank": _rules("allow: ['']"),
    "leads to no argument": _rules("allow: [{tool: ping, arguments: {a..b: x}}]"),
    "several are several rules": _rules("allow: [{tool: ping, arguments: {path: [a, b]}}]"),
    "a default is one of": _rules("defaults: {read: perhaps}"),
    "expect is one of": _rules("deny: [{tool: ping, expect: nothing}]"),
}
"""Approval rules."""

FOLDERS: Mapping[str, Files] = {**AGENT_FILES, **PROJECTS, **MODULES, **AGENTS, **RULES}
"""All of them."""
