"""What can be wrong with agents by name: their files, their projects, the tools that they name. For the developer."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.errors.developer import DeveloperMistake
from handrail.errors.outcomes import HandrailError, ModelVisibleError


class DocumentError(HandrailError, ValueError):
    """A YAML or JSON document that cannot be read, or does not say what it must.

    Attributes:
        file: the name of the document, as the message gives it.
        line: the line at fault, from 1; `None` if it is the whole document.
        column: the column at fault, from 1.
    """

    def __init__(self, message: str, *, file: str, line: int | None = None, column: int | None = None) -> None:
        where = file if line is None else f"{file}:{line}" if column is None else f"{file}:{line}:{column}"
        # In an `AgentFileError` the next class is `AgentError`, so its parameters other than the message need defaults.
        super().__init__(f"{where}: {message}")
        self.file = file
        self.line = line
        self.column = column


class OverridesError(DocumentError, DeveloperMistake):
    """A file of overrides that cannot be read, or does not fit its prompt. None of its overrides is applied."""


class AgentError(HandrailError):
    """An agent, its project, or what it names cannot be used.

    Attributes:
        problems: every problem that was found, when there are several; each is an `AgentError` or `DocumentError`.
    """

    def __init__(self, message: str, *, problems: Sequence[HandrailError] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[HandrailError, ...] = tuple(problems)


class AgentFileError(DocumentError, AgentError):
    """A file that is not an agent file.

    Attributes:
        field: the key at fault, if one is.
    """

    def __init__(
        self, message: str, *, file: str, line: int | None = None, column: int | None = None, field: str | None = None
    ) -> None:
        super().__init__(message, file=file, line=line, column=column)
        self.field = field


class ApprovalRulesError(DocumentError, AgentError):
    """A file of approval rules that is none."""


class ProjectError(AgentError):
    """A project folder, or its `[tool.handrail]`, that cannot be used; or several problems of one project at once."""


class DiscoveryError(AgentError):
    """A Python module whose tools or toolsets cannot be registered; the message lists every offender.

    Attributes:
        module: the file of the module, or its name.
        offenders: the names at fault.
    """

    def __init__(self, message: str, *, module: str, offenders: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.module = module
        self.offenders: tuple[str, ...] = tuple(offenders)


class RegistryError(AgentError):
    """Two entries of one kind have one name; the message has each name with both origins.

    Attributes:
        names: the names.
    """

    def __init__(self, message: str, *, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names: tuple[str, ...] = tuple(names)


class ResolutionError(AgentError):
    """An agent file names tools or toolsets that do not exist; the message has every name with its cure.

    Attributes:
        agent: the name of the agent.
        names: the names that were not found.
    """

    def __init__(self, message: str, *, agent: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.agent = agent
        self.names: tuple[str, ...] = tuple(names)


class UnknownModelError(AgentError, ValueError):
    """The name of a model that can be none: PydanticAI has no such provider, or one part of the name is missing.

    Attributes:
        name: the name.
        nearest: the name that was probably meant; `None` if none is similar.
    """

    def __init__(self, message: str, *, name: str, nearest: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.nearest = nearest


class FactoryError(AgentError):
    """A toolset factory that cannot be called, or made something that is not a toolset.

    Attributes:
        toolset: the name under which the factory is registered.
        returned: the type of what it returned, if it returned something wrong.
    """

    def __init__(self, message: str, *, toolset: str, returned: type[object] | None = None) -> None:
        super().__init__(message)
        self.toolset = toolset
        self.returned = returned


class ToolConflictError(AgentError):
    """Tools of one agent have the same name; the message has each name with every origin.

    Attributes:
        tools: the names.
    """

    def __init__(self, message: str, *, tools: Sequence[str]) -> None:
        super().__init__(message)
        self.tools: tuple[str, ...] = tuple(tools)


# Not an AgentError: the project is sound, and the model that asked for the call can do without it.
class AgentDepthError(ModelVisibleError):
    """Agents call each other too deep; the call that would go deeper fails.

    Attributes:
        limit: how deep they may go; the agent that was started is at depth 1.
        path: the agents that called each other, the first one first.
        attempted: the agent that was not started.
    """

    def __init__(self, *, limit: int, path: Sequence[str], attempted: str) -> None:
        super().__init__(
            f"agent {attempted} was not started: it would be at depth {len(path) + 1}, and the limit is {limit} "
            f"({'/'.join((*path, attempted))}). Do the work without it."
        )
        self.limit = limit
        self.path: tuple[str, ...] = tuple(path)
        self.attempted = attempted
