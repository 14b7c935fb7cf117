"""Approval rules, and their judgement on a call.

| | decides |
|---|---|
| 1 | a `deny` rule that fits, then an `ask` rule that fits, then an `allow` rule that fits |
| 2 | the tool's own declaration (`GatedCall.default`) |
| 3 | the default for the tool's effect |
| 4 | if a policy of the tool has a question, a call that is allowed so far is asked about |
| 5 | the mode: `approve-all` answers every question yes; `deny-all` no, and denies what no rule has allowed |

Earlier answers are remembered by `handrail.agents.approval.gate`; `handrail.agents.approval.matching` describes globs.
Rules are written in YAML files. All faults of a file are reported at once, each with its file, line and column.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator

from handrail.agents.approval.decisions import ApprovalMode, GatedCall, Judgement, Verdict
from handrail.agents.approval.matching import (
    Reading,
    Segment,
    argument_path,
    glob,
    matches_agents,
    matches_argument,
    matches_call,
    matches_name,
)
from handrail.errors import AgentError, ApprovalRulesError, DocumentError
from handrail.prompt.signature import Effect
from handrail.serde import canonical_json
from handrail.serde.document import YamlMap, YamlNode, YamlScalar, read_document, read_tree
from handrail.serde.yaml_fields import YamlFields, as_error

DEFAULTS: Final[Mapping[Effect, Verdict]] = MappingProxyType({"read": "allow", "state": "ask", "external": "ask"})
"""The verdict for each effect where neither a rule nor the tool itself decides."""

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
"""The verdicts, which are the lists of rules."""

ExpectedMatch = Literal["unmatched"]
"""Marks a rule that fits no call of the project as it is."""

_BRACES: Final = re.compile(r"\{[^{}]*,[^{}]*\}")
_PLAIN: Final = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
# YAML reads these as booleans or null, so a name that equals one is quoted.
_WORDS: Final = frozenset({"true", "false", "null", "True", "False", "Null", "TRUE", "FALSE", "NULL"})


def _glob(text: str) -> str:
    if not text.strip():
        raise ValueError("this is blank; write a glob such as 'write_*', or '*' for all")
    glob(text.strip(), "wide")
    return text.strip()


def _place(where: str) -> str:
    try:
        argument_path(where)
    except AgentError as error:
        raise ValueError(str(error)) from error
    return where


def _argument_glob(value: object) -> str:
    # It may be empty; a number, `true` and `null` are as JSON writes them.
    if isinstance(value, list | dict):
        several = "the glob for an argument is text, such as 'reports/**'; several are several rules"
        raise ValueError(several)  # noqa: TRY004 - pydantic reports it with its place
    text = value if isinstance(value, str) else canonical_json(value).decode()
    if not text.startswith("{") and _BRACES.search(text):
        raise ValueError(f"the glob {text!r} has braces, which stand for themselves; write a rule for each alternative")
    glob(text, "wide")
    return text


_Glob = Annotated[str, AfterValidator(_glob)]
_Place = Annotated[str, AfterValidator(_place)]
_ArgumentGlob = Annotated[str, BeforeValidator(_argument_glob)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTable:
    """A rule as a file has it; see `Rule`."""

    tool: _Glob
    arguments: Mapping[_Place, _ArgumentGlob] = field(default_factory=dict[str, str])
    agent: _Glob = "**"
    expect: ExpectedMatch = "unmatched"


RULE_KEYS = tuple(item.name for item in fields(RuleTable))
"""The keys of a rule."""

_Rules: TypeAlias = tuple[_Glob | RuleTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesFile:
    """A file of approval rules, as it is written; see `ApprovalRules`."""

    defaults: Mapping[Effect, Verdict] = field(default_factory=dict[Effect, Verdict])
    tainted: Verdict = "ask"
    allow: _Rules = ()
    ask: _Rules = ()
    deny: _Rules = ()


RULES_FILE_KEYS = tuple(item.name for item in fields(RulesFile))
"""The keys of a file of rules."""


class RuleLocation(NamedTuple):
    """The place of a rule: its file, as errors call it, with line and column, from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: the calls that fit all that it names. See `handrail.agents.approval.matching` for globs.

    Attributes:
        tool: a glob over the name of the tool.
        arguments: globs over arguments, by their paths: `path`, `options.force`, `steps[*].title`.
        agent: a glob over the agents that called each other, as `desk/research`; `None` for every agent.
        source: the place of the rule, for messages: `approval.yaml:12`.
        expect: `"unmatched"` if the project is known not to have its names, so that no warning says it.

    Raises:
        AgentError: a glob is blank, has braces or is too long, or a path does not name an argument.
    """

    tool: str
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    agent: str | None = None
    source: str = field(default="", compare=False)
    place: RuleLocation | None = field(default=None, compare=False)
    expect: ExpectedMatch | None = field(default=None, compare=False)
    _places: tuple[tuple[tuple[Segment, ...], str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        try:
            set_field(self, "tool", _glob(self.tool))
            set_field(self, "agent", None if self.agent is None else _glob(self.agent))
            # A copy, because the caller's mapping may change afterwards.
            arguments = {where: _argument_glob(pattern) for where, pattern in self.arguments.items()}
        except ValueError as error:
            raise AgentError(f"a rule: {error}") from error
        set_field(self, "arguments", MappingProxyType(arguments))
        set_field(self, "_places", tuple((argument_path(where), pattern) for where, pattern in arguments.items()))

    def fits(self, call: GatedCall, reading: Reading) -> bool:
        """True if the rule is about a call; `reading` says how its globs over arguments are read.

        Each of them is compared with the arguments that will run, with those that the model wrote, and with the paths
        that links in them lead to. Widely, one of these is enough; narrowly, all must fit. A tool that has a name of
        its own beside the one that is called fits widely by either, and narrowly by the one that is called.
        """
        own = call.own_tool if reading == "wide" else ""
        return self.is_about(call.tool, call.path, own=own) and all(
            _fits_argument(glob, place, call, reading) for place, glob in self._places
        )

    def is_about(self, tool: str, path: Sequence[str], *, own: str = "") -> bool:
        """True if the rule is about a tool of the agents that called each other, whatever its arguments are.

        `own` is another name by which the rule may mean the tool; empty for none.
        """
        fits = matches_name(self.tool, tool) or (bool(own) and matches_name(self.tool, own))
        return fits and self.holds_for(path)

    def holds_for(self, path: Sequence[str]) -> bool:
        """True if the rule is about the agents that called each other, whatever their tools are."""
        return self.agent is None or matches_agents(self.agent, path)

    @property
    def places(self) -> tuple[tuple[Segment, ...], ...]:
        """The steps to each argument that the rule names, in the order of `arguments`."""
        return tuple(place for place, _ in self._places)

    def __str__(self) -> str:
        """As the file of rules has it: `{tool: write_file, arguments: {path: "reports/**"}} (approval.yaml:12)`."""
        parts = [f"tool: {_quote(self.tool)}"]
        if self.arguments:
            text = ", ".join(f"{_quote(where)}: {_quote(glob)}" for where, glob in self.arguments.items())
            parts.append(f"arguments: {{{text}}}")
        if self.agent is not None:
            parts.append(f"agent: {_quote(self.agent)}")
        text = _quote(self.tool) if len(parts) == 1 else f"{{{', '.join(parts)}}}"
        return f"{text} ({self.source})" if self.source else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRules:
    """The approval rules of a project.

    Attributes:
        allow: rules whose calls run.
        ask: rules whose calls are asked about; they win over `allow`.
        deny: rules whose calls do not run; they win over `ask` and `allow`.
        defaults: the verdict by effect where no rule fits; an effect that is not named has its value of `DEFAULTS`.
        tainted: the verdict on external effects once the session has read untrusted content (`handrail.taint`). A
            rule that allows the call does not win over it.

    Raises:
        AgentError: a default is not an effect with a verdict.
    """

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    defaults: Mapping[Effect, Verdict] = field(default_factory=dict[Effect, Verdict])
    tainted: Verdict = "ask"

    def __post_init__(self) -> None:
        for name in VERDICTS:
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "defaults", MappingProxyType({**DEFAULTS, **self.defaults}))


def rules_on_arguments(rules: ApprovalRules, call: GatedCall, judgement: Judgement) -> tuple[tuple[Verdict, Rule], ...]:
    """The rules that decide otherwise about a tool where its arguments fit; the first that fits decides.

    `call` is a call of the tool, whatever its arguments are; `judgement` is that on a call that no such rule fits.
    Rules that would not win over it are left out.
    """
    others: list[tuple[Verdict, Rule]] = []
    for verdict, members, reading in _readings(rules):
        # A rule that says the same, or that comes after the one that decides, makes no difference.
        if judgement.explicit and verdict == judgement.verdict:
            break
        own = call.own_tool if reading == "wide" else ""
        # Rules without arguments have decided already: they are part of `judgement`.
        others.extend(
            (verdict, rule) for rule in members if rule.arguments and rule.is_about(call.tool, call.path, own=own)
        )
    return tuple(others)


def judge_call(call: GatedCall, rules: ApprovalRules, mode: ApprovalMode) -> Judgement:
    """The judgement of the rules and the mode on a call, in the order of the table of this module."""
    # The mode comes last, so that it answers the questions of policies too.
    judgement = _with_questions(call, _by_rules(call, rules) or _by_default(call, rules))
    verdict, reason = judgement.verdict, judgement.reason
    if mode == "approve-all" and verdict == "ask":
        return Judgement("allow", f"{reason}, and the mode approve-all says yes", judgement.explicit)
    if mode == "deny-all":
        if verdict == "ask":
            return Judgement("deny", f"{reason}, and the mode deny-all says no", judgement.explicit)
        # `deny-all` lets only those calls run that a rule allows by name; a default is not enough.
        if verdict == "allow" and not judgement.explicit:
            return Judgement("deny", f"no rule allows it, and the mode is deny-all ({reason})")
    return judgement


def _by_rules(call: GatedCall, rules: ApprovalRules) -> Judgement | None:
    for verdict, members, reading in _readings(rules):
        for rule in members:
            if rule.fits(call, reading):
                return Judgement(verdict, f"the {verdict} rule {rule} fits", explicit=True)
    return None


def _fits_argument(pattern: str, place: tuple[Segment, ...], call: GatedCall, reading: Reading) -> bool:
    fits = matches_call(pattern, place, call.arguments, call.written, reading)
    # A wide match is certain after one form of the arguments, and a narrow one fails after one.
    if call.reached is None or fits is (reading == "wide"):
        return fits
    return matches_argument(pattern, place, {**call.arguments, **call.reached}, reading)


def _readings(rules: ApprovalRules) -> tuple[tuple[Verdict, tuple[Rule, ...], Reading], ...]:
    # The list that wins over the others first, each with the reading of its globs.
    return ("deny", rules.deny, "wide"), ("ask", rules.ask, "wide"), ("allow", rules.allow, "narrow")


def _by_default(call: GatedCall, rules: ApprovalRules) -> Judgement:
    if call.default is not None:
        return Judgement(call.default, f"the declaration of {call.tool} says {call.default}")
    # `ask` for an effect that is not in the mapping: what is not known must not run by default.
    verdict = rules.defaults.get(call.effect, "ask")
    return Judgement(verdict, f"the default for effect {call.effect} is {verdict}")


def _with_questions(call: GatedCall, judgement: Judgement) -> Judgement:
    if not call.asks or judgement.verdict == "deny":
        return judgement
    questions = "; ".join(call.asks)
    if judgement.verdict == "allow":
        return Judgement("ask", f"a policy asks: {questions}", judgement.explicit)
    return Judgement("ask", f"{judgement.reason}, and a policy asks: {questions}", judgement.explicit)


def _quote(text: str) -> str:
    # As YAML takes it in any place.
    return text if _PLAIN.fullmatch(text) and text not in _WORDS else json.dumps(text, ensure_ascii=False)


def read_rules(path: Path) -> ApprovalRules:
    """Reads the rules in a file.

    Raises:
        ApprovalRulesError: it cannot be read, or is invalid; the message has all faults, `problems` each.
    """
    file = str(path)
    text = read_document(path, file=file, what="approval rules are a text file", refusal=ApprovalRulesError)
    return parse_rules(text, file=file)


def parse_rules(text: str, *, file: str) -> ApprovalRules:
    """Reads rules from YAML text; `file` is its name in errors. An empty text holds no rules.

    Raises:
        ApprovalRulesError: it is invalid; of several faults the message has all, and `problems` each.
    """
    # A byte order mark is not part of the text, and YAML would count it as the first column.
    root = _tree(text.removeprefix("\ufeff"), file)
    if root is None:
        return ApprovalRules()
    tree = YamlFields(root, "a file of approval rules", file, ApprovalRulesError)
    values = tree.read(RulesFile)
    for verdict in VERDICTS:
        items = zip(values.get(verdict, ()), tree.items(verdict), strict=False)
        values[verdict] = tuple(_rule(*item, file) for item in items)
    if tree.faults:
        raise as_error(tree.faults, ApprovalRulesError, file)
    return ApprovalRules(**values)


def _rule(table: str | RuleTable, node: YamlNode, file: str) -> Rule:
    source, place = f"{PurePath(file).name}:{node.line}", RuleLocation(file, node.line, node.column)
    if not isinstance(node, YamlMap) or isinstance(table, str):
        return Rule(str(table), source=source, place=place)
    keys = [key.text for key, _ in node.entries if isinstance(key, YamlScalar)]
    return Rule(**{key: getattr(table, key) for key in keys}, source=source, place=place)


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
