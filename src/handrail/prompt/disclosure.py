"""Sections with a summary, as one rendering shows them: which are open, and how the model opens and reads the others.

| a section with a summary | is shown by | is opened by |
|---|---|---|
| with tools, its own or those of the sections below it | its summary, and the names of its tools | `open_sections` |
| without tools | its summary | `read_section` returns its text; it stays closed |

What is open is decided elsewhere (`handrail.runtime.disclosure`): a rendering is a pure function of the template, the
parameters, and the paths of the open sections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, count

from handrail.errors import PromptRenderError
from handrail.serde.formatting import enumerated, nearest, shorten

_LONGEST_LIST = 400
"""Bytes of the names of tools, and of sections, in one sentence."""


@dataclass(frozen=True, slots=True)
class SectionTools:
    """The names of the tools by which the model opens, closes and reads sections.

    Attributes:
        open: opens sections, with their tools.
        close: closes them.
        read: returns the text of a section without tools.
    """

    open: str
    close: str
    read: str

    @staticmethod
    def beside(taken: Collection[str]) -> SectionTools:
        """The names for a prompt whose own tools have the names in `taken`."""
        return SectionTools(*(free_name(name, taken) for name in ("open_sections", "close_sections", "read_section")))


def free_name(name: str, taken: Collection[str]) -> str:
    """A name, or that name with a number if it is taken."""
    names = chain((name,), (f"{name}_{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


@dataclass(frozen=True, slots=True)
class SummarizedSection:
    """An enabled section with a summary, open or closed.

    Attributes:
        path: keys from the root section to this one, joined by dots.
        title: its heading.
        is_open: whether it is open. It is rendered only if the sections above it are open, too.
        tools: the names of the tools that it brings, with those of the enabled sections below it.
        brings_tools: whether it brings any.
    """

    path: str
    title: str
    is_open: bool
    tools: tuple[str, ...]
    brings_tools: bool

    def invitation(self, names: SectionTools) -> str:
        """The sentence below the summary of a closed section: how the model opens it."""
        if not self.brings_tools:
            return f'[This section is closed. To read it, call {names.read} with path="{self.path}".]'
        listed = f" ({enumerated(self.tools, limit=_LONGEST_LIST)})" if self.tools else ""
        return (
            f"[This section is closed. To read it and to use its tools{listed}, call {names.open} with "
            f'paths=["{self.path}"].]'
        )


def closed_above(path: tuple[str, ...], closed: AbstractSet[str]) -> str | None:
    """The path of the outermost closed section that has a section below it; `None` if there is none."""
    dotted = (".".join(path[:depth]) for depth in range(1, len(path)))
    return next((each for each in dotted if each in closed), None)


def with_ancestors(path: str, sections: Iterable[SummarizedSection]) -> tuple[SummarizedSection, ...]:
    """A section and those above it that have a summary, outermost first: opening it opens them all."""
    return tuple(each for each in sections if path == each.path or path.startswith(f"{each.path}."))


def section_hint(asked: str, paths: Collection[str]) -> str:
    """The end of an error about a section that does not exist: the nearest name, and the names of the others."""
    if not paths:
        return "No section has a summary."
    near = nearest(asked, tuple(paths))
    hint = f"Did you mean {near}? " if near else ""
    return f"{hint}The sections with a summary are: {enumerated(tuple(paths), limit=_LONGEST_LIST, wanted=asked)}."


def check_paths(asked: Iterable[str], paths: Collection[str]) -> None:
    """Check the paths that a rendering is to open.

    Args:
        asked: the paths.
        paths: those of all sections with a summary, enabled or not.

    Raises:
        PromptRenderError: one is not a path of a section with a summary.
    """
    for each in asked:
        if each not in paths:
            raise PromptRenderError(
                f"{shorten(repr(each), 80)} cannot be open: it is not a section with a summary. "
                f"{section_hint(each, paths)}"
            )
