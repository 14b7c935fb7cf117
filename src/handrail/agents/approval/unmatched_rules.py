"""Rules whose names are those of nothing in the project: a deny rule that is misspelt protects nothing.

| a rule has | and | it is |
|---|---|---|
| the exact name of a tool, an argument or an agent | the project has none of that name | an error |
| the same | a toolset, or an agent that makes agents, may turn out to have it while it runs | a warning |
| the same, of an argument | the tool lets arguments through that its schema does not declare | nothing |
| a glob over tools or agents | it fits none that is known | a warning |
| `expect: unmatched` | | nothing |

Whatever is found, the rules hold as they are written.

The names that rules can mean are those of the tools and agents that are known of the project. Whether a rule about
`options.force` can ever fit is seen from the JSON Schema of the tool:

| the schema | a place in it |
|---|---|
| has the property, the items, or a schema for all other keys | is declared, if the rest of the way is |
| lets any key or value through: `true`, no type, `additionalProperties: true`, `patternProperties` | may be there |
| is an object with properties and says nothing of others | is not declared, as that of a function is |
| is a choice (`anyOf`, `oneOf`, `allOf`) | is as in the choice that comes nearest to declaring it |
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal, cast

from handrail.agents.approval.decisions import Verdict
from handrail.agents.approval.matching import Segment, matches_agents, matches_name
from handrail.agents.approval.rules import ApprovalRules, Rule
from handrail.errors import ApprovalRulesError
from handrail.serde.formatting import enumerated, nearest, shorten

PROGRAM: Final = "the rules of the program"
"""What errors call rules that are not in a file."""

_WILD: Final = frozenset("*?[")
_LONGEST_SHOWN: Final = 100
_MOST_LISTED: Final = 200
_MOST_PROPOSED: Final = 25  # of errors, and of warnings: a screen of 24 lines shows no more of either
_MOST_PATHS: Final = 2_000
# By default a run permits 5 agents in a row (`RunOptions.max_depth`).
_DEEPEST: Final = 6
_LONGEST_RULE: Final = 200
_CURE: Final = "or add expect: unmatched to the rule"
_MADE: Final = " The agents that an agent makes are known only while it runs."

Takes = Literal["yes", "any", "unsure", "no"]
"""Whether a tool takes an argument: it is declared; any is let through; Python may have another name for one; no."""

ParameterSchema = Callable[[], Mapping[str, Any] | None]
"""Gives the JSON Schema of a tool's arguments; `None` if it is not known."""

OtherNames = Callable[[], frozenset[str] | None]
"""Gives the names that arguments may have beside those in the schema: those of parameters, fields and aliases in
Python; `None` if that cannot be known."""

Declares = bool | None
"""Whether a place is declared; `None` if it may be there without being declared."""

_CHOICES: Final = ("anyOf", "oneOf", "allOf")

_MOST_PLACES: Final = 500

_MOST_VISITED: Final = 5_000

_DEEPEST_SCHEMA: Final = 8


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A name in a rule that is that of nothing, or a glob that fits nothing.

    Attributes:
        verdict: the list that the rule is in.
        rule: the rule.
        fault: what is wrong with it and the cure, in words.
        certain: whether it fits no call for certain, which is an error; else it is a warning.
    """

    verdict: Verdict
    rule: Rule
    fault: str
    certain: bool

    def error(self) -> ApprovalRulesError:
        """The same as an error, with file, line and column of the rule."""
        place = self.rule.place
        text = f"the {self.verdict} rule {_named(self.rule)} {self.fault}"
        if place is None:
            return ApprovalRulesError(text, file=PROGRAM)
        return ApprovalRulesError(text, file=place.file, line=place.line, column=place.column)

    def __str__(self) -> str:
        return str(self.error())


def unmatched(rules: ApprovalRules, known: KnownNames) -> tuple[Unmatched, ...]:
    """The names in rules that are those of nothing, in the order of the file."""
    check = _Check(known)
    groups: tuple[tuple[Verdict, tuple[Rule, ...]], ...] = (
        ("allow", rules.allow),
        ("ask", rules.ask),
        ("deny", rules.deny),
    )
    looked_at: list[tuple[Verdict, Rule]] = [
        (verdict, rule) for verdict, members in groups for rule in members if rule.expect is None
    ]
    return tuple(
        Unmatched(verdict, rule, fault, certain)
        for verdict, rule in sorted(looked_at, key=_in_file)
        for fault, certain in check.faults(rule)
    )


class _Check:
    """Looks names up among those that are known; one for each check."""

    def __init__(self, known: KnownNames) -> None:
        self._known = known
        self._tools: dict[str, list[KnownTool]] = defaultdict(list)
        for tool in known.tools:
            self._tools[tool.name].append(tool)
        self._names = sorted(self._tools)
        self._running = enumerated(known.running, limit=_MOST_LISTED)
        self._paths = _paths(known.agents)
        self._left_to_propose = dict.fromkeys((True, False), _MOST_PROPOSED)
        # Rules often share tools and arguments, and each look-up may have to build a schema.
        self._fitting = cache(self._fitting_names)
        self._answers = cache(self._answers_of)
        self._places = cache(self._places_of)

    def faults(self, rule: Rule) -> Iterator[tuple[str, bool]]:
        """What is wrong with a rule, each with whether that is certain."""
        if rule.agent is not None:
            yield from self._agents(rule.agent)
        fitting = self._fitting(rule.tool)
        if not fitting:
            yield self._no_tool(rule.tool)
            # Its arguments cannot be checked without a tool, and would only repeat the fault.
            return
        for where, segments in zip(rule.arguments, rule.places, strict=True):
            answers = self._answers(rule.tool, segments)
            if not answers & {"yes", "any"}:
                yield self._argument(rule.tool, where, fitting, answers)

    def _fitting_names(self, pattern: str) -> tuple[str, ...]:
        if _is_exact(pattern):
            return (pattern,) if pattern in self._tools else ()
        return tuple(name for name in self._names if matches_name(pattern, name))

    def _no_tool(self, pattern: str) -> tuple[str, bool]:
        shown = _shown(pattern)
        if not _is_exact(pattern):
            return f"has the glob {shown}, which fits no tool that is known.{self._may_run()} Fix it, {_CURE}.", False
        near = self._near(pattern, self._names, certain=not self._running)
        if self._running:
            return f"names the tool {shown}, which is none that is known.{near}{self._may_run()}", False
        return f"names the tool {shown}, and the project has no such tool.{near} Fix the name, {_CURE}.", True

    def _may_run(self) -> str:
        if not self._running:
            return ""
        return f" The tools of {self._running} are known only while a run has them."

    def _answers_of(self, pattern: str, segments: tuple[Segment, ...]) -> frozenset[Takes]:
        """Whether the tools that a pattern fits take an argument; names in Python are looked at if none declares it."""
        tools = self._of_names(self._fitting(pattern))
        # One tool is enough: a glob over tools may name an argument that only some of them have.
        if any(tool.declares(segments) is not False for tool in tools):
            return frozenset({"yes"})
        return frozenset(tool.takes_undeclared(segments) for tool in tools)

    def _of_names(self, names: Iterable[str]) -> list[KnownTool]:
        return [tool for name in names for tool in self._tools[name]]

    def _argument(
        self, pattern: str, where: str, fitting: tuple[str, ...], answers: frozenset[Takes]
    ) -> tuple[str, bool]:
        is_unsure, may_run = "unsure" in answers, bool(self._running) and not _is_exact(pattern)
        certain = not (is_unsure or may_run)
        near = self._near(where, self._places(fitting), certain=certain)
        shown = _shown(where)
        if len(fitting) == 1:
            fault = f"names the argument {shown}, and {fitting[0]} has no such argument.{near}"
        else:
            fault = f"names the argument {shown}, and no tool that {_shown(pattern)} fits has one of that name.{near}"
        if is_unsure:
            cure = " It may still be passed under that name, because Python code may rename it."
        else:
            cure = self._may_run() if may_run else f" Fix the name, {_CURE}."
        return fault + cure, certain

    def _places_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The arguments of the tools of these names, each once."""
        places = (place for tool in self._of_names(names) for place in declared_places(tool.parameters() or {}))
        return tuple(dict.fromkeys(places))

    def _agents(self, pattern: str) -> Iterator[tuple[str, bool]]:
        agents, makes = self._known.agents, self._known.makes_agents
        unknown = dict.fromkeys(part for part in pattern.split("/") if _is_exact(part) and part not in agents)
        for part in unknown:
            cure = _MADE if makes else f" Fix the name, {_CURE}."
            fault = f"names the agent {_shown(part)}, and the project has no such agent."
            yield f"{fault}{self._near(part, sorted(agents), certain=not makes)}{cure}", not makes
        # An agent that makes others may be called by any name, so no path is impossible.
        if unknown or makes or self._paths is None or any(matches_agents(pattern, path) for path in self._paths):
            return
        fault = f"has {_shown(pattern)} for its agents, and no agents of the project call each other so."
        yield f"{fault} Fix it, {_CURE}.", False

    def _near(self, name: str, known: Sequence[str], *, certain: bool) -> str:
        """The nearest name, as a question. To look for it takes milliseconds, so only the first faults have one."""
        self._left_to_propose[certain] -= 1
        if self._left_to_propose[certain] < 0:
            return ""
        near = nearest(name, known)
        return f" Did you mean {near!r}?" if near else ""


def _paths(agents: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...] | None:
    """The agents as they can call each other, to some depth; `None` if there are too many ways to look at."""
    found: list[tuple[str, ...]] = [(name,) for name in agents]
    for path in found:  # grows while it is walked
        if len(path) < _DEEPEST:
            found += [(*path, called) for called in agents[path[-1]]]
        # Agents that call each other in a circle have endlessly many paths.
        if len(found) > _MOST_PATHS:
            return None
    return tuple(found)


def _is_exact(pattern: str) -> bool:
    return not _WILD & set(pattern)


def _shown(text: str) -> str:
    return shorten(repr(text), _LONGEST_SHOWN)


def _named(rule: Rule) -> str:
    """The rule as it is written, without its place."""
    return shorten(str(replace(rule, source="")), _LONGEST_RULE)


def _in_file(rule_of_list: tuple[Verdict, Rule]) -> tuple[str, int, int]:
    place = rule_of_list[1].place
    return ("", 0, 0) if place is None else (place.file, place.line, place.column)


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool that a project has, as far as rules can name it.

    Attributes:
        name: what the model calls it by.
        parameters: gives the schema of its arguments. It is called once, because making a schema takes a while.
        other_names: gives other names of them. It is called once, too.
    """

    name: str
    parameters: ParameterSchema = _nothing
    other_names: OtherNames = _nothing

    def __post_init__(self) -> None:
        # The class is frozen and the fields are functions, so the caches replace them here.
        object.__setattr__(self, "parameters", cache(self.parameters))
        object.__setattr__(self, "other_names", cache(self.other_names))

    def declares(self, place: tuple[Segment, ...]) -> Declares:
        """Whether the schema of the tool declares an argument in a place; `None` if it may be there all the same."""
        schema = self.parameters()
        return None if schema is None else declares(schema, place)

    def takes(self, place: tuple[Segment, ...]) -> Takes:
        """Whether the tool takes an argument in a place, by whatever name."""
        found = self.declares(place)
        if found is not False:
            return "yes" if found else "any"
        return self.takes_undeclared(place)

    def takes_undeclared(self, place: tuple[Segment, ...]) -> Takes:
        """Whether the tool takes an argument in a place that its schema does not declare."""
        others = self.other_names()
        if others is None:
            return "unsure"
        return "yes" if all(step in others for step in place if isinstance(step, str)) else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNames:
    """All that is known of a project when its rules are checked.

    Attributes:
        tools: its tools, built-in ones included, and whether or not an agent has them.
        running: the toolsets of its agents whose tools are known only while they run, in words.
        agents: its agents, each with the agents that it can call.
        makes_agents: whether an agent can make others, whose names are known only while it runs.
    """

    tools: tuple[KnownTool, ...] = ()
    running: tuple[str, ...] = ()
    agents: Mapping[str, tuple[str, ...]]
    makes_agents: bool = False


def declares(schema: Mapping[str, Any], segments: Sequence[Segment]) -> Declares:
    """Whether the schema of a tool's arguments declares a place.

    If all arguments stand within one, the place is also looked for there, as rules look for it in a call.

    Args:
        schema: the JSON Schema of the arguments.
        segments: the steps to the place.
    """
    search = _Search(schema)
    try:
        found = search.declares(schema, tuple(segments))
        # A call may have this one name around its fields, or lack it; see `matching._looks`.
        properties = _mapping(schema.get("properties"))
        if found is False and len(properties) == 1:
            return search.declares(next(iter(properties.values())), tuple(segments))
    except RecursionError:  # nested as only a server would
        return None
    return found


def declared_places(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The first 500 places that a schema declares, as rules write them: `path`, `options.force`, `steps[*].title`."""
    found: dict[str, None] = {}
    to_visit: deque[tuple[object, str, int]] = deque([(schema, "", 0)])
    # Bounded by visits as well: references may lead in a circle without adding a place.
    for _ in range(_MOST_VISITED):
        if not to_visit or len(found) >= _MOST_PLACES:
            break
        part, at, depth = to_visit.popleft()
        if not isinstance(part, Mapping) or depth > _DEEPEST_SCHEMA:
            continue
        here = cast("Mapping[str, Any]", part)  # a JSON object
        below = [(f"{at}.{name}" if at else name, value) for name, value in _mapping(here.get("properties")).items()]
        if at and "items" in here:
            below.append((f"{at}[*]", here["items"]))
        found |= dict.fromkeys(place for place, _ in below)
        to_visit.extend((value, place, depth + 1) for place, value in below)
        same = [choice for key in _CHOICES for choice in _list(here.get(key))]
        if "$ref" in here:
            same.append(_referred(str(here["$ref"]), schema))
        to_visit.extend((choice, at, depth + 1) for choice in same)
    return tuple(found)[:_MOST_PLACES]


class _Search:
    """Looks for places in one schema. Each part of it is looked at once for each place, however often it is named."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._seen: dict[tuple[int, tuple[Segment, ...]], Declares] = {}

    def declares(self, schema: object, segments: tuple[Segment, ...]) -> Declares:
        """Whether a part of the schema declares a place."""
        if schema is None:
            return None
        if schema is False or not segments:
            return schema is not False
        if not isinstance(schema, Mapping):
            return None
        here = cast("Mapping[str, Any]", schema)  # a JSON object
        # By identity, because a dict is not hashable. The root holds all parts, so no id is used again.
        part = id(here), segments
        if part not in self._seen:
            # Overwritten below with the real answer, which is then valid for all other ways to this part.
            self._seen[part] = False  # as long as it is looked at: a reference that leads in a circle declares nothing
            self._seen[part] = self._looked_up(here, segments)
        return self._seen[part]

    def _looked_up(self, here: Mapping[str, Any], segments: tuple[Segment, ...]) -> Declares:
        if "$ref" in here:
            return self.declares(_referred(str(here["$ref"]), self._root), segments)
        choices = [choice for key in _CHOICES for choice in _list(here.get(key))]
        answers = [self.declares(choice, segments) for choice in choices]
        if not choices or "properties" in here or "items" in here:
            answers += [self.declares(below, segments[1:]) for below in _steps(here, segments[0])]
        return _nearest(answers)


def _steps(here: Mapping[str, Any], segment: Segment) -> Iterator[object]:
    """The schemas of what one step leads to; `None` where it may lead to what is not declared."""
    kinds = _kinds(here)
    if "object" in kinds and not isinstance(segment, int):
        properties = _mapping(here.get("properties"))
        # JSON Schema lets other keys through by default; that of a function with parameters does not mean to.
        others = here.get("additionalProperties", not properties)
        if "patternProperties" in here:
            others = True
        if segment is None:
            yield from properties.values()
        elif segment in properties:
            yield properties[segment]
            return
        yield None if others is True else others
    if "array" in kinds and not isinstance(segment, str):
        firsts = _list(here.get("prefixItems"))
        if isinstance(segment, int) and segment < len(firsts):
            yield firsts[segment]
            return
        if segment is None:
            yield from firsts
        items = here.get("items", not firsts)
        yield None if items is True else items


def _kinds(here: Mapping[str, Any]) -> frozenset[str]:
    """What values a schema takes: objects, arrays, or both where it does not say."""
    said: object = here.get("type")
    if isinstance(said, str):
        return frozenset({said})
    if isinstance(said, list):
        return frozenset(map(str, cast("list[object]", said)))
    # Such a schema lists its values, and declares no places in them.
    if "enum" in here or "const" in here:
        return frozenset()
    return frozenset({"object", "array"})


def _referred(name: str, root: Mapping[str, Any]) -> object:
    """What a reference within the schema leads to; `None` if it leads elsewhere."""
    found: object = root
    for part in name.removeprefix("#").split("/")[1:] if name.startswith("#") else (name,):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = cast("Mapping[str, object]", found)[part]
    return found


def _nearest(answers: Iterable[Declares]) -> Declares:
    given = list(answers)
    if True in given:
        return True
    return None if None in given else False


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list) else ()
