"""Approval rules, and what they say of a call.

| | says |
|---|---|
| 1 | a `deny` rule that fits, then an `ask` rule that fits, then an `allow` rule that fits |
| 2 | the tool's own declaration (`GatedCall.default`) |
| 3 | the default for the tool's effect |
| 4 | if a policy of the tool wants something asked, what has been allowed so far is asked |
| 5 | the mode: `approve-all` answers every question yes; `deny-all` no, and denies what no rule has allowed |

Nothing is remembered here: `handrail.agents.approval.gate` knows what has been answered before.

Rules are written in YAML files. All faults of a file are reported at once, each with its file, line and column. What
globs fit is said in `handrail.agents.approval.matching`.

    defaults: {read: allow, state: ask, external: ask}   # where no rule fits; each may be left out
    tainted: ask                                         # external effects after untrusted content was read
    allow:
      - list_files                                       # a tool, by glob
      - {tool: shell_run, arguments: {command: "git status*"}}
      - {agent: "desk/*", tool: lookup}                  # only for agents that desk has called
    ask:
      - {tool: write_file, arguments: {path: "reports/**"}}
    deny:
      - {tool: "*", arguments: {path: "**/.env"}}        # a glob that begins with a star is quoted
      - {tool: refund, expect: unmatched}                # a tool that the project does not have yet
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast, get_args

from handrail.agents.agent_file import as_error
from handrail.agents.approval.decisions import ApprovalMode, GatedCall, Judgement, Verdict
from handrail.agents.approval.matching import (
    Reading,
    Segment,
    argument_path,
    matches_agents,
    matches_argument,
    matches_call,
    matches_name,
)
from handrail.errors import AgentError, ApprovalRulesError, DocumentError, DumpError
from handrail.prompt.effect import Effect
from handrail.serde import canonical_json
from handrail.serde.document import DocumentReader, YamlList, YamlMap, YamlNode, YamlScalar, read_document, read_tree
from handrail.serde.formatting import nearest, quote_value

DEFAULTS: Final[Mapping[Effect, Verdict]] = MappingProxyType({"read": "allow", "state": "ask", "external": "ask"})
"""What holds for each effect where neither a rule nor the tool itself says anything."""

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
"""What rules may say."""

EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)
"""What a tool may do to the world."""

ExpectedMatch = Literal["unmatched"]
"""What a rule may say of itself: that it is known to fit no call of the project as it is."""

_BRACES: Final = re.compile(r"\{[^{}]*,[^{}]*\}")
_PLAIN: Final = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
# YAML reads these as booleans or null, so a name that equals one is quoted.
_WORDS: Final = frozenset({"true", "false", "null", "True", "False", "Null", "TRUE", "FALSE", "NULL"})

RULES_FILE_KEYS = ("defaults", "tainted", "allow", "ask", "deny")
"""The keys of a file of rules."""

_HIGHEST = 255  # exit code

T = TypeVar("T")

RULE_KEYS = ("tool", "arguments", "agent", "expect", "reads_everything", "commit_on")
"""The keys of a rule."""


class RuleLocation(NamedTuple):
    """Where a rule stands.

    Attributes:
        file: the file, as errors call it.
        line: the line, from 1.
        column: the column, from 1.
    """

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Rule:
    """Which calls a rule is about. Everything that it names must fit; see `handrail.agents.approval.matching`.

    Attributes:
        tool: a glob over the name of the tool.
        arguments: globs over arguments, by where they are: `path`, `options.force`, `steps[*].title`.
        agent: a glob over the agents that called each other, as `desk/research`; `None` for every agent.
        source: where the rule stands, for messages: `approval.yaml:12`.
        place: the same, for errors; `None` for a rule of the program.
        expect: `"unmatched"` if it is known that the names of the rule are those of nothing in the project, so that
            neither `handrail check` nor the start of a run remarks on it. The rule holds all the same.
        reads_everything: for rules that allow: whether the programs that such calls run may read every file, those
            that rules or `exclude` keep from the agent too; see `handrail.contrib.tools.shell.path_guard`.
        commit_on: for rules that allow: the exit codes, beside those of its `ShellRule`, with which the changes of a
            program that such a call runs stay.

    Raises:
        AgentError: something is not a glob, or leads to no argument; `expect` is another word, `reads_everything`
            neither true nor false, or `commit_on` not a sequence of exit codes.
    """

    tool: str
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    agent: str | None = None
    source: str = field(default="", compare=False)
    place: RuleLocation | None = field(default=None, compare=False)
    expect: ExpectedMatch | None = field(default=None, compare=False)
    reads_everything: bool = False
    commit_on: tuple[int, ...] = ()
    _places: tuple[tuple[tuple[Segment, ...], str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        for key, check in _CHECKS.items():
            value: object = getattr(self, key)
            if value is not None:
                set_field(self, key, check(value))
        if not isinstance(cast("object", self.arguments), Mapping):
            raise AgentError(f"arguments of a rule are a mapping from argument to glob, not {self.arguments!r}")
        # A copy, because the caller's mapping may change afterwards.
        arguments = {where: _argument_glob(where, glob) for where, glob in self.arguments.items()}
        places = [argument_path(_glob("an argument of a rule", where)) for where in arguments]
        set_field(self, "arguments", MappingProxyType(arguments))
        set_field(self, "_places", tuple(zip(places, arguments.values(), strict=True)))

    def fits(self, call: GatedCall, reading: Reading) -> bool:
        """Whether the rule is about a call; `reading` says how its globs over arguments are read.

        Each of them is held against the arguments that will run, against those that the model wrote, and against the
        paths that links in them lead to. Widely, one of these is enough; narrowly, all must fit. A tool that has a name
        of its own beside the one that is called fits widely by either, and narrowly by the one that is called.
        """
        own = call.own_tool if reading == "wide" else ""
        return self.is_about(call.tool, call.path, own=own) and all(
            _fits_looks(glob, place, call, reading) for place, glob in self._places
        )

    def is_about(self, tool: str, path: Sequence[str], *, own: str = "") -> bool:
        """Whether the rule is about a tool of the agents that called each other, whatever its arguments are.

        Args:
            tool: the name that is called.
            path: the agents.
            own: another name by which the rule may mean the tool; empty for none.
        """
        fits = matches_name(self.tool, tool) or (bool(own) and matches_name(self.tool, own))
        return fits and self.holds_for(path)

    def holds_for(self, path: Sequence[str]) -> bool:
        """Whether the rule is about the agents that called each other, whatever their tools are."""
        return self.agent is None or matches_agents(self.agent, path)

    @property
    def places(self) -> tuple[tuple[Segment, ...], ...]:
        """The steps to each argument that the rule names, in the order of `arguments`."""
        return tuple(place for place, _ in self._places)

    def __str__(self) -> str:
        """As the file of rules has it: `{tool: write_file, arguments: {path: "reports/**"}} (approval.yaml:12)`."""
        parts = [f"tool: {_quoted(self.tool)}"]
        if self.arguments:
            text = ", ".join(f"{_quoted(where)}: {_quoted(glob)}" for where, glob in self.arguments.items())
            parts.append(f"arguments: {{{text}}}")
        if self.agent is not None:
            parts.append(f"agent: {_quoted(self.agent)}")
        if self.reads_everything:
            parts.append("reads_everything: true")
        if self.commit_on:
            parts.append(f"commit_on: [{', '.join(map(str, self.commit_on))}]")
        written = _quoted(self.tool) if len(parts) == 1 else f"{{{', '.join(parts)}}}"
        return f"{written} ({self.source})" if self.source else written


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRules:
    """What may run, what is asked, and what is denied.

    Attributes:
        allow: rules whose calls run.
        ask: rules whose calls are asked about; they win over `allow`.
        deny: rules whose calls do not run; they win over `ask` and `allow`.
        defaults: what holds by effect where no rule fits; an effect that is not named has its value of `DEFAULTS`.
        tainted: what is done with external effects once the session has read untrusted content (`handrail.taint`). A
            rule that allows the call does not win over it.

    Raises:
        AgentError: something is not a rule, effect or verdict.
    """

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    defaults: Mapping[Effect, Verdict] = field(default_factory=dict[Effect, Verdict])
    tainted: Verdict = "ask"

    def __post_init__(self) -> None:
        check_rule_choice("tainted", self.tainted, VERDICTS)
        for name in VERDICTS:
            given = cast("object", getattr(self, name))
            rules = cast("Sequence[object]", given if isinstance(given, list | tuple) else (given,))
            for rule in rules:
                if not isinstance(rule, Rule):
                    raise AgentError(f"{name} of approval rules holds {rule!r}; write {name}=(Rule('tool'),)")
                # In other lists it would suggest a permission that such a rule cannot give.
                key = program_key(rule)
                if key and name != "allow":
                    raise AgentError(f"{key} belongs in rules that allow, not in the {name} rule {rule}")
            object.__setattr__(self, name, tuple(rules))
        if not isinstance(cast("object", self.defaults), Mapping):
            raise AgentError(f"defaults of approval rules are a mapping from effect to verdict, not {self.defaults!r}")
        for effect, verdict in self.defaults.items():
            check_rule_choice("an effect", effect, EFFECTS)
            check_rule_choice(f"the default for {effect}", verdict, VERDICTS)
        object.__setattr__(self, "defaults", MappingProxyType({**DEFAULTS, **self.defaults}))


def rules_on_arguments(rules: ApprovalRules, call: GatedCall, found: Judgement) -> tuple[tuple[Verdict, Rule], ...]:
    """The rules that say something else of a tool where its arguments fit; the first that fits decides.

    Args:
        rules: the rules.
        call: a call of the tool, whatever its arguments are.
        found: what is said of a call that no such rule fits. Rules that would not win over it are left out.
    """
    said: list[tuple[Verdict, Rule]] = []
    for verdict, members, reading in _readings(rules):
        # A rule that says the same, or that comes after the one that decides, makes no difference.
        if found.explicit and verdict == found.verdict:
            break
        own = call.own_tool if reading == "wide" else ""
        # Rules without arguments have decided already: they are part of `found`.
        said.extend(
            (verdict, rule) for rule in members if rule.arguments and rule.is_about(call.tool, call.path, own=own)
        )
    return tuple(said)


def judge_call(call: GatedCall, rules: ApprovalRules, mode: ApprovalMode) -> Judgement:
    """What the rules and the mode say of a call; the table of this module is the order."""
    # The mode comes last, so that it answers the questions of policies too.
    found = _asked_by_policies(call, _by_rules(call, rules) or _by_default(call, rules))
    if mode == "approve-all" and found.verdict == "ask":
        return Judgement("allow", f"{found.reason}, and the mode approve-all says yes", found.explicit)
    if mode == "deny-all":
        if found.verdict == "ask":
            return Judgement("deny", f"{found.reason}, and the mode deny-all says no", found.explicit)
        # `deny-all` lets only those calls run that a rule allows by name; a default is not enough.
        if found.verdict == "allow" and not found.explicit:
            return Judgement("deny", f"no rule allows it, and the mode is deny-all ({found.reason})")
    return found


def program_key(rule: Rule) -> str:
    """The key of a rule that is about the programs of its calls, so that it belongs in rules that allow; or empty."""
    return "reads_everything" if rule.reads_everything else "commit_on" if rule.commit_on else ""


def check_rule_choice(what: str, given: object, choices: tuple[str, ...]) -> None:
    """Refuse what is none of a few words.

    Raises:
        AgentError: it is none; the message has the words, and the nearest one.
    """
    if given in choices:
        return
    near = nearest(given, choices) if isinstance(given, str) else None
    hint = f" Did you mean {near!r}?" if near else ""
    raise AgentError(f"{what} is one of {', '.join(choices)}, not {given!r}.{hint}")


def _by_rules(call: GatedCall, rules: ApprovalRules) -> Judgement | None:
    for verdict, members, reading in _readings(rules):
        for rule in members:
            if rule.fits(call, reading):
                return Judgement(verdict, f"the {verdict} rule {rule} fits", explicit=True)
    return None


def _fits_looks(pattern: str, place: tuple[Segment, ...], call: GatedCall, reading: Reading) -> bool:
    """Whether a glob fits a call in one place, in each way that `Rule.fits` looks at it."""
    fits = matches_call(pattern, place, call.arguments, call.written, reading)
    # A wide match is certain after one look, and a narrow one fails after one look.
    if call.reached is None or fits is (reading == "wide"):
        return fits
    return matches_argument(pattern, place, {**call.arguments, **call.reached}, reading)


def _readings(rules: ApprovalRules) -> tuple[tuple[Verdict, tuple[Rule, ...], Reading], ...]:
    """The lists of rules, the one that wins over the others first, each with how its globs are read."""
    return ("deny", rules.deny, "wide"), ("ask", rules.ask, "wide"), ("allow", rules.allow, "narrow")


def _by_default(call: GatedCall, rules: ApprovalRules) -> Judgement:
    if call.default is not None:
        return Judgement(call.default, f"{call.tool} itself says {call.default}")
    # `ask` for an effect that is not in the mapping: what is not known must not run by default.
    verdict = rules.defaults.get(call.effect, "ask")
    return Judgement(verdict, f"the default for effect {call.effect} is {verdict}")


def _asked_by_policies(call: GatedCall, found: Judgement) -> Judgement:
    if not call.asks or found.verdict == "deny":
        return found
    questions = "; ".join(call.asks)
    if found.verdict == "allow":
        return Judgement("ask", f"a policy asks: {questions}", found.explicit)
    return Judgement("ask", f"{found.reason}, and a policy asks: {questions}", found.explicit)


def _glob(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise AgentError(f"{what} is text, a glob, not {given!r}; a name that looks like a number is put in quotes")
    if not given.strip():
        raise AgentError(f"{what} is blank; write a glob such as 'write_*', or '*' for all")
    return given.strip()


def _argument_glob(where: str, given: object) -> str:
    """A glob over an argument, which may be the empty text."""
    if not isinstance(given, str):
        raise AgentError(
            f"the glob for {where!r} is text: {where}: 'reports/**'; several are several rules; not {given!r}"
        )
    if not given.startswith("{") and _BRACES.search(given):
        fault = f"the glob for {where}, {given!r}, has braces, which stand for themselves"
        raise AgentError(f"{fault}; write a rule for each alternative")
    return given


def _switch(given: object) -> bool:
    if not isinstance(given, bool):
        raise AgentError(f"reads_everything of a rule is true or false, not {given!r}")
    return given


def _expected(given: object) -> object:
    check_rule_choice("expect", given, get_args(ExpectedMatch))
    return given


def _exit_codes(given: object) -> tuple[int, ...]:
    codes = cast("Sequence[object]", given if isinstance(given, tuple | list) else (given,))
    found = [code for code in codes if isinstance(code, int) and not isinstance(code, bool) and 0 <= code <= _HIGHEST]
    if len(found) != len(codes):
        raise AgentError(f"commit_on of a rule is a list of exit codes from 0 to {_HIGHEST}, such as [0, 1]")
    return tuple(found)


_CHECKS: Mapping[str, Callable[[object], object]] = {
    "tool": partial(_glob, "tool"),
    "agent": partial(_glob, "agent"),
    "expect": _expected,
    "reads_everything": _switch,
    "commit_on": _exit_codes,
}
"""What each key of a rule may be, in a program and in a file."""


def _quoted(text: str) -> str:
    """As YAML takes it in any place."""
    return text if _PLAIN.fullmatch(text) and text not in _WORDS else json.dumps(text, ensure_ascii=False)


def read_rules(path: Path) -> ApprovalRules:
    """Read the rules in a file.

    Raises:
        ApprovalRulesError: it cannot be opened, is too large or not UTF-8, or holds something else; of several faults
            the message has all, and `problems` each.
    """
    file = str(path)
    text = read_document(
        path, file=file, what="approval rules are a text file", refusal=ApprovalRulesError, suffix=".yaml"
    )
    return parse_rules(text, file=file)


def parse_rules(text: str, *, file: str) -> ApprovalRules:
    """Read rules from YAML text; `file` is what errors call it. A text without anything in it holds no rules.

    Raises:
        ApprovalRulesError: it holds something else; of several faults the message has all, and `problems` each.
    """
    # Collected and not raised at the first, because people fix a file faster with all of them at once.
    faults: list[DocumentError] = []
    reader = _RulesReader(file, refusal=ApprovalRulesError, faults=faults)
    # A byte order mark is not part of the text, and YAML would count it as the first column.
    root = _tree(text.removeprefix("\ufeff"), file)
    rules = ApprovalRules() if root is None else reader.attempt(root, reader.rules)
    if rules is None or faults:
        raise as_error(faults, ApprovalRulesError, file)
    return rules


def _tree(text: str, file: str) -> YamlNode | None:
    try:
        return read_tree(text, name=file, refusal=ApprovalRulesError)
    except DocumentError as error:
        line, column = error.line or 0, error.column or 0
        # The parser's column is that of the star or of the character behind it, so both are checked.
        if "*" not in "".join(text.splitlines()[line - 1 : line])[max(0, column - 2) : column]:
            raise
        # To YAML a bare star begins an alias, and its own words for that do not help who means a glob.
        words = "a glob that begins with a star is quoted: '*'"
        raise ApprovalRulesError(words, file=file, line=line, column=column) from error


class _RulesReader(DocumentReader):
    """Makes rules of the tree of one file."""

    def rules(self, tree: YamlNode) -> ApprovalRules:
        keys = self.mapping(tree, "a file of approval rules", RULES_FILE_KEYS)
        return ApprovalRules(
            allow=self.read(keys, "allow", lambda found: self.items(found, "allow", self.rule)) or (),
            ask=self.read(keys, "ask", lambda found: self.items(found, "ask", self.strict_rule)) or (),
            deny=self.read(keys, "deny", lambda found: self.items(found, "deny", self.strict_rule)) or (),
            defaults=self.read(keys, "defaults", self.defaults) or {},
            tainted=self.read(keys, "tainted", partial(self.verdict, what="tainted")) or "ask",
        )

    def defaults(self, tree: YamlNode) -> dict[Effect, Verdict]:
        keys = self.mapping(tree, "defaults", EFFECTS)
        found: dict[Effect, Verdict] = {}
        for effect in EFFECTS:
            verdict = self.read(keys, effect, self.verdict)
            if verdict is not None:
                found[effect] = verdict
        return found

    def verdict(self, tree: YamlNode, *, what: str = "a default") -> Verdict:
        word = self.text(tree)
        self._checked(tree, lambda: check_rule_choice(what, word, VERDICTS))
        return next(verdict for verdict in VERDICTS if verdict == word)

    def strict_rule(self, tree: YamlNode) -> Rule:
        rule = self.rule(tree)
        key = program_key(rule)
        if key:
            self.fail(tree, f"{key} belongs in rules that allow: it is what a program may do")
        return rule

    def rule(self, tree: YamlNode) -> Rule:
        """A tool, or a mapping that says more."""
        source, place = f"{PurePath(self.file).name}:{tree.line}", RuleLocation(self.file, tree.line, tree.column)
        is_name = not isinstance(tree, YamlMap)
        keys: dict[str, YamlNode] = {"tool": tree} if is_name else self.mapping(tree, "a rule", RULE_KEYS)
        if "tool" not in keys:
            # The fault is noted and reading continues, so that the other faults of the rule are reported too.
            self.note(self.fault(tree, "a rule has the key 'tool', with a glob over names of tools; '*' is every tool"))
        arguments = self.read(keys, "arguments", self.arguments) or {}
        found = {key: self.read(keys, key, partial(self._value, check)) for key, check in _CHECKS.items()}
        values: dict[str, Any] = {key: value for key, value in found.items() if value is not None}
        return Rule(**{"tool": "*", **values}, arguments=arguments, source=source, place=place)

    def arguments(self, tree: YamlNode) -> dict[str, str]:
        # Without a list of keys: which arguments exist depends on the tools, which `unmatched_rules` checks.
        keys = self.mapping(tree, "arguments")
        found = {where: self.read(keys, where, partial(self.glob, where)) for where in keys}
        return {where: glob for where, glob in found.items() if glob is not None}

    def glob(self, where: str, tree: YamlNode) -> str:
        """A glob over an argument; a number, `true` and `null` are what JSON writes for them."""
        given: object = plain_value(tree)
        if isinstance(tree, YamlScalar) and tree.text and not isinstance(tree.value, str):
            try:
                given = canonical_json(tree.value).decode()
            except DumpError:
                self.fail(
                    tree, f"{quote_value(tree.text)} is not a number that an argument could have; put it in quotes"
                )
        self._checked(tree, lambda: argument_path(_glob("an argument of a rule", where)))
        return self._checked(tree, lambda: _argument_glob(where, given))

    def _value(self, check: Callable[[object], T], tree: YamlNode) -> T:
        return self._checked(tree, lambda: check(plain_value(tree)))

    def _checked(self, tree: YamlNode, check: Callable[[], T]) -> T:
        try:
            return check()
        except AgentError as error:
            self.fail(tree, str(error))


def plain_value(tree: YamlNode) -> object:
    """What stands at a place, as Python has it."""
    if isinstance(tree, YamlList):
        return [plain_value(item) for item in tree.items]
    if isinstance(tree, YamlMap):
        return {key.text: plain_value(value) for key, value in tree.entries if isinstance(key, YamlScalar)}
    return tree.value
