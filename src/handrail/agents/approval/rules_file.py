"""Approval rules in YAML files; every fault is told with its file, line and column, and all those of a file at once.

defaults: {read: allow, state: ask, external: ask}   # where no rule fits; each may be left out
allow:
  - list_files                                       # a tool, by glob
  - {tool: shell_run, arguments: {command: "git status*"}}
  - {agent: "desk/*", tool: lookup}                  # only for agents that desk has called
ask:
  - {tool: write_file, arguments: {path: "reports/**"}}
deny:
  - {tool: "*", arguments: {path: "**/.env"}}        # a glob that begins with a star stands in quotes
  - {tool: refund, expect: unmatched}                # a tool that the project does not have yet

What the rules mean: `handrail.agents.approval.rules`; what globs fit: `handrail.agents.approval.matching`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path, PurePath
from typing import get_args

from handrail.agents.approval.decisions import Verdict
from handrail.agents.approval.rules import EFFECTS, VERDICTS, ApprovalRules, Expect, Rule, RulePlace, check_choice
from handrail.errors import AgentError, ApprovalRulesError, DocumentError, DumpError
from handrail.prompt.effect import Effect
from handrail.serde import canonical_json
from handrail.serde.document import Reader, listed, read_document, shown
from handrail.serde.yaml_tree import YamlMapping, YamlNode, YamlScalar, YamlSequence, read_tree

KEYS = ("defaults", "allow", "ask", "deny")
"""The keys of a file of rules."""

RULE_KEYS = ("tool", "arguments", "agent", "expect", "reads_everything")
"""The keys of a rule."""


def read_rules(path: Path) -> ApprovalRules:
    """Read the rules in a file.

    Raises:
        ApprovalRulesError: it cannot be opened, is too large or not UTF-8, or holds something else; of several faults
            the message has all, and `problems` each.
    """
    file = str(path)
    text = read_document(
        path, file=file, what="approval rules stand in a text file", refusal=ApprovalRulesError, suffix=".yaml"
    )
    return parse_rules(text, file=file)


def parse_rules(text: str, *, file: str) -> ApprovalRules:
    """Read rules from YAML text; `file` is what errors call it. A text without anything in it holds no rules.

    Raises:
        ApprovalRulesError: it holds something else; of several faults the message has all, and `problems` each.
    """
    faults: list[DocumentError] = []
    reader = _RulesReader(file, refusal=ApprovalRulesError, faults=faults)
    root = _tree(text.removeprefix("\ufeff"), file)
    rules = ApprovalRules() if root is None else reader.attempt(root, reader.rules)
    if not faults and rules is not None:
        return rules
    if len(faults) == 1:
        raise faults[0]
    faults.sort(key=lambda fault: (fault.line or 0, fault.column or 0))
    error = ApprovalRulesError(listed(faults), file=file)
    error.problems = tuple(faults)
    raise error


def _tree(text: str, file: str) -> YamlNode | None:
    try:
        return read_tree(text, name=file, refusal=ApprovalRulesError)
    except DocumentError as error:
        line, column = error.line or 0, error.column or 0
        if "*" not in "".join(text.splitlines()[line - 1 : line])[max(0, column - 2) : column]:
            raise
        # To YAML a bare star begins an alias, and its own words for that do not help who means a glob.
        told = "a glob that begins with a star stands in quotes: '*'"
        raise ApprovalRulesError(told, file=file, line=line, column=column) from error


class _RulesReader(Reader):
    """Makes rules of the tree of one file."""

    def rules(self, tree: YamlNode) -> ApprovalRules:
        """All of a file."""
        keys = self.mapping(tree, "a file of approval rules", KEYS)
        return ApprovalRules(
            allow=self.read(keys, "allow", lambda found: self.items(found, "allow", self.rule)) or (),
            ask=self.read(keys, "ask", lambda found: self.items(found, "ask", self.strict_rule)) or (),
            deny=self.read(keys, "deny", lambda found: self.items(found, "deny", self.strict_rule)) or (),
            defaults=self.read(keys, "defaults", self.defaults) or {},
        )

    def defaults(self, tree: YamlNode) -> dict[Effect, Verdict]:
        """What holds for each effect."""
        keys = self.mapping(tree, "defaults", EFFECTS)
        found: dict[Effect, Verdict] = {}
        for effect in EFFECTS:
            verdict = self.read(keys, effect, self.verdict)
            if verdict is not None:
                found[effect] = verdict
        return found

    def verdict(self, tree: YamlNode) -> Verdict:
        """One of the three words."""
        word = self.text(tree)
        try:
            check_choice("a default", word, VERDICTS)
        except AgentError as error:
            self.fail(tree, str(error))
        return next(verdict for verdict in VERDICTS if verdict == word)

    def rule(self, tree: YamlNode) -> Rule:
        """A tool, or a mapping that says more."""
        source, place = f"{PurePath(self.file).name}:{tree.line}", RulePlace(self.file, tree.line, tree.column)
        if not isinstance(tree, YamlMapping):
            return Rule(self.name(tree, "tool"), source=source, place=place)
        keys = self.mapping(tree, "a rule", RULE_KEYS)
        if "tool" not in keys:
            self.note(self.fault(tree, "a rule has the key 'tool', with a glob over names of tools; '*' is every tool"))
        return Rule(
            self.read(keys, "tool", lambda found: self.name(found, "tool")) or "*",
            self.read(keys, "arguments", self.arguments) or {},
            self.read(keys, "agent", lambda found: self.name(found, "agent")),
            source=source,
            place=place,
            expect=self.read(keys, "expect", self.expect),
            reads_everything=self.read(keys, "reads_everything", self.boolean) or False,
        )

    def boolean(self, tree: YamlNode) -> bool:
        """`true` or `false`."""
        if not isinstance(tree, YamlScalar) or not isinstance(tree.value, bool):
            self.fail(tree, "reads_everything is true or false")
        return tree.value

    def strict_rule(self, tree: YamlNode) -> Rule:
        """A rule that asks or denies."""
        rule = self.rule(tree)
        if rule.reads_everything:
            self.fail(tree, "reads_everything stands in rules that allow: it is what a program may do")
        return rule

    def expect(self, tree: YamlNode) -> Expect:
        """What a rule says of itself: one word."""
        try:
            check_choice("expect", self.text(tree), get_args(Expect))
        except AgentError as error:
            self.fail(tree, str(error))
        return "unmatched"

    def name(self, tree: YamlNode, what: str) -> str:
        """A glob over names."""
        if not isinstance(tree, YamlScalar):
            kind = "a list" if isinstance(tree, YamlSequence) else "a mapping"
            self.fail(tree, f"{what} is a glob such as 'write_*', not {kind}")
        if not isinstance(tree.value, str):
            given = f"{shown(tree.text)} is none" if tree.text else "nothing stands here"
            self.fail(tree, f"{what} is text, a glob, and {given}; a name that looks like a number is put in quotes")
        if not tree.text.strip():
            self.fail(tree, f"{what} is blank; write a glob such as 'write_*', or '*' for all")
        return tree.text.strip()

    def arguments(self, tree: YamlNode) -> dict[str, str]:
        """Globs by argument."""
        keys = self.mapping(tree, "arguments")
        found = {where: self.read(keys, where, partial(self.glob, where)) for where in keys}
        return {where: glob for where, glob in found.items() if glob is not None}

    def glob(self, where: str, tree: YamlNode) -> str:
        """A glob over an argument; a number, `true` and `null` are what JSON writes for them."""
        try:
            Rule("*", {where: ""})
        except AgentError as error:
            self.fail(tree, str(error))
        if not isinstance(tree, YamlScalar) or not (tree.text or isinstance(tree.value, str)):
            self.fail(tree, f"the glob for {shown(where)} is text: {where}: 'reports/**'; several are several rules")
        try:
            return tree.text if isinstance(tree.value, str) else canonical_json(tree.value).decode()
        except DumpError:
            self.fail(tree, f"{shown(tree.text)} is no number that an argument could have; put it in quotes")
