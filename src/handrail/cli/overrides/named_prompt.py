"""What a command over overrides is about: a prompt as `module:attribute`, or an agent by its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from handrail.cli.agents.commands import imports_unsearched, need_extra
from handrail.cli.agents.options import AGENT_SUFFIX, check_agent_path
from handrail.cli.overrides.named_template import named_template
from handrail.errors import OverridesError
from handrail.prompt.overrides import OverrideFiles, PromptOverrides, PromptText, TextKey, texts_of

_FOLDER = Path("overrides")
_TAG = "stable"


@dataclass(frozen=True, slots=True)
class NamedPrompt:
    """The texts of a prompt or of an agent, and where their overrides are.

    Attributes:
        ns: the namespace of the overrides.
        key: their key.
        texts: all texts of the code.
        files: the folder with the files.
        tag: which of them.
        is_used: whether anything applies them; `False` for an agent whose runs read none.
    """

    ns: str
    key: str
    texts: Mapping[TextKey, PromptText]
    files: OverrideFiles
    tag: str
    is_used: bool = True

    @property
    def path(self) -> Path:
        """The file of the overrides.

        Raises:
            OverridesError: namespace, key or tag cannot be a part of a path.
        """
        return self.files.path(self.ns, self.key, self.tag)

    def read(self) -> PromptOverrides | None:
        """The overrides; `None` if the file does not exist.

        Raises:
            OverridesError: they cannot be read.
        """
        return self.files.read(self.ns, self.key, self.tag)

    def found(self) -> PromptOverrides:
        """The overrides.

        Raises:
            OverridesError: there are none, or they cannot be read.
        """
        found = self.read()
        if found is None:
            raise OverridesError("the file does not exist; handrail overrides seed writes it", file=str(self.path))
        return found


def named_prompt(name: str, folder: Path | None, tag: str | None) -> NamedPrompt:
    """Find a prompt, or an agent; `folder` and `tag` precede what the project of an agent says.

    Raises:
        CycloptsError: there is no such prompt or file.
        PromptValidationError: as for `named_template`.
        AgentError: the agent, its project or its tools cannot be used.
    """
    if name.endswith(AGENT_SUFFIX) or Path(name).is_file():
        return _of_agent(Path(name), folder, tag)
    template = named_template(name)
    texts = {text.key: text for text in texts_of(template)}
    return NamedPrompt(template.ns, template.key, texts, OverrideFiles(folder or _FOLDER), tag or _TAG)


def _of_agent(path: Path, folder: Path | None, tag: str | None) -> NamedPrompt:
    need_extra()
    check_agent_path(path)
    with imports_unsearched():
        from handrail.cli.overrides.agent_texts import agent_texts  # noqa: PLC0415 - needs the extra, which is there
    found = agent_texts(path)
    files = found.place.files if folder is None else OverrideFiles(folder)
    tag = found.place.tag if tag is None else tag
    return NamedPrompt(found.ns, found.key, found.texts, files, tag, found.place.is_used)
