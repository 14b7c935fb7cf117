"""`handrail docs`: the pages of `handrail/docs` in a wheel, or of a checkout, in the terminal."""

from __future__ import annotations

from pathlib import Path

import handrail
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Screen

_INDEX = "README.md"


def installed_pages() -> dict[str, Path]:
    """The pages of this installation by their names, such as `how-to/write-a-tool` and `index`; empty without pages."""
    package = Path(handrail.__file__).resolve().parent
    for folder in (package / "docs", package.parents[1] / "docs"):
        if (folder / _INDEX).is_file() and (folder.parent == package or package.parent.name == "src"):
            pages = {"index": folder / _INDEX}
            for path in sorted(folder.rglob("*.md")):
                name = path.parent if path.name == _INDEX else path.with_suffix("")
                pages.setdefault(name.relative_to(folder).as_posix(), path)
            del pages["."]
            return pages | {name: folder.parent / f"{name.upper()}.md" for name in ("readme", "changelog")}
    return {}


def print_page(page: str = "index", /) -> int:
    """Print a page of the documentation, or list all.

    The pages are those of this version, in Markdown.

    Example: `handrail docs limits | less`

    Args:
        page: Its path, or the last part of that.
    """
    screen, pages = Screen(), installed_pages()
    if not pages:
        screen.fault("the pages are not a part of this installation; they are in the folder docs of the repository")
        return FAILED
    word = page.strip("/").removesuffix(".md").lower()
    match = next((name for name in pages if word in {name, name.rpartition("/")[2]}), None)
    if match is None:
        screen.fault(f"{page!r} is not a page; handrail docs lists all")
        return FAILED
    screen.raw(pages[match].read_text(encoding="utf-8"), end="")
    return DONE
