"""The documentation site: `make docs` builds it into `build/site`, strictly and without the network.

The pages are those of `docs/`, the README and the other pages of the root, and some that are made from the code; the
navigation is the index of each folder. `llms.txt` has a line for each page, `llms-full.txt` their texts (llmstxt.org).
A link that leads from a page to a file of the repository leads, on the site, to a page with that file. The reference of
the package is made by mkdocstrings, from `docs/reference/python.md`: a page for each module that it lists.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from os.path import relpath
from pathlib import Path, PurePosixPath

from tests.architecture.sources import ROOT
from tests.docs import command_options
from tests.docs.kit import Link, links_in, read_links, with_targets

DOCS = ROOT / "docs"
PYTHON = DOCS / "reference" / "python.md"
COMMANDS = DOCS / "reference" / "command-line.md"
RECIPES = DOCS / "recipes" / "README.md"
FRONT = {
    ROOT / "README.md": "index.md",
    DOCS / "README.md": "pages.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "AGENTS.md": "agents.md",
    ROOT / "SECURITY.md": "security.md",
    ROOT / "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
"""The pages outside the folders of kinds, and what they are on the site."""
SECTIONS = {name: f"to {name.lower()}" for name in ("Learn", "Understand", "Do", "Look up", "Contribute")}
"""The tables of the index of all pages, by the sections of the site."""
OTHERS = {
    DOCS / "README.md": "All pages",
    ROOT / "examples" / "README.md": "Examples",
    ROOT / "SECURITY.md": "Security policy",
    ROOT / "CONTRIBUTING.md": "Contributing",
    ROOT / "CODE_OF_CONDUCT.md": "Code of conduct",
    ROOT / "AGENTS.md": "The code in one page",
    ROOT / "CHANGELOG.md": "Changelog",
}
"""The pages that are in none of them."""

OPTIONS = PurePosixPath("reference", "command-options.md")
"""The page that is made from the commands; it is listed below that of the command line."""

STYLE = """\
.md-typeset td code { overflow-wrap: normal; word-break: keep-all; }
.md-typeset img[src*="diagrams/"] { background: #fff; border-radius: 6px; }
"""
"""A name in a table is not broken: a narrow table scrolls. Diagrams are drawn for a white page."""

_MODULE = re.compile(r"^\| `(handrail[\w.]*)` \|", re.MULTILINE)


def site_page(file: Path) -> PurePosixPath:
    """Where a file of the repository is on the site, as the source of a page, or as it is."""
    if file in FRONT:
        return PurePosixPath(FRONT[file])
    if file.is_relative_to(DOCS):
        inside = PurePosixPath(file.relative_to(DOCS).as_posix())
        return inside.with_name("index.md") if inside.name == "README.md" else inside
    shown = [part.removeprefix(".") for part in file.relative_to(ROOT).parts]  # a site has no hidden folders
    path = PurePosixPath("repository", *shown)
    if file.is_dir():
        return path / "index.md"
    return path if path.suffix in {".md", ".svg"} else path.with_name(f"{path.name}.md")


def write_sources(folder: Path) -> None:
    """Write what the site is built from: all pages, and every file that one of them links."""
    waiting = [*FRONT, *(path for path in DOCS.rglob("*") if path.is_file() and path.suffix != ".toml")]
    written: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in written or not file.exists():
            continue
        written.add(file)
        target = folder / site_page(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            target.write_text(with_targets(file, _target), encoding="utf-8")
            waiting += [link.target for link in read_links(file) if link.path]
        elif target.suffix == ".md":
            target.write_text(_listing(file), encoding="utf-8")
        else:
            shutil.copyfile(file, target)
    (folder / "site.css").write_text(STYLE, encoding="utf-8")
    (folder / OPTIONS).write_text(command_options.page(), encoding="utf-8")
    for module in modules():
        page = folder / module_page(module)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"# {module}\n\n::: {module}\n", encoding="utf-8")
    index = folder / site_page(PYTHON)
    linked = _MODULE.sub(r"| [`\1`](python/\1.md) |", index.read_text(encoding="utf-8"))
    index.write_text(linked, encoding="utf-8")


def _target(link: Link) -> str:
    """Where a link leads, from the page that it stands in."""
    if not link.path:
        return f"#{link.anchor}"
    path = relpath(site_page(link.target), site_page(link.page).parent)
    return f"{path}#{link.anchor}" if link.anchor else path


def _listing(file: Path) -> str:
    """The page of a file that is no page, or of a folder."""
    head = f"---\nsearch:\n  exclude: true\n---\n# {file.relative_to(ROOT).as_posix()}\n\n"
    if file.is_dir():
        return head + "".join(f"- `{each.name}`\n" for each in sorted(file.iterdir()) if not each.name.startswith("__"))
    # As plain text: two hundred files in colours would take as long as the rest of the site.
    return f"{head}``````text\n{file.read_text(encoding='utf-8')}``````\n"


def modules() -> list[str]:
    """The modules of the reference, in the order of its page."""
    return _MODULE.findall(PYTHON.read_text(encoding="utf-8"))


def module_page(module: str) -> PurePosixPath:
    """The page of a module."""
    return PurePosixPath("reference", "python", f"{module}.md")


def navigation() -> str:
    """The navigation, as TOML: the index of all pages, and the indexes of folders and modules."""
    entries = [_entry("Handrail", site_page(ROOT / "README.md"))]
    for title in SECTIONS:
        rows = [row for link in links_in(_table(title), DOCS / "README.md") for row in _rows(link)]
        entries.append(_group(title, rows))
    others = [_entry(title, site_page(file)) for file, title in OTHERS.items()]
    return f"nav = {_list([*entries, _group('More', others)])}"


def _table(section: str) -> str:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    return text.partition(f"\n| {SECTIONS[section]} |")[2].partition("\n\n")[0]


def _rows(link: Link) -> Iterator[str]:
    """The entry of a page; that of an index has the pages of the index below it."""
    if link.target == PYTHON:
        below = [(module.removeprefix("handrail."), module_page(module)) for module in modules()]
    elif link.target == COMMANDS:
        below = [("The options of all commands", OPTIONS)]
    elif link.target.name == "README.md":
        below = [(each.text, site_page(each.target)) for each in _pages_below(link)]
    else:
        yield _entry(link.text, site_page(link.target))
        return
    yield _group(link.text, [_entry(link.text, site_page(link.target)), *(_entry(*each) for each in below)])


def _pages_below(index: Link) -> list[Link]:
    return [link for link in read_links(index.target) if link.target.parent == index.target.parent]


def _entry(title: str, page: PurePosixPath) -> str:
    return f"{{{json.dumps(title)} = {json.dumps(str(page))}}}"


def _group(title: str, entries: Iterable[str]) -> str:
    return f"{{{json.dumps(title)} = {_list(entries)}}}"


def _list(entries: Iterable[str]) -> str:
    return f"[{', '.join(entries)}]"


def build(folder: Path) -> str:
    """Build the site into `site` of a folder, and return what is wrong with it: nothing, if it is complete."""
    shutil.rmtree(folder / "docs", ignore_errors=True)
    write_sources(folder / "docs")
    (folder / "zensical.toml").write_text(_settings(), encoding="utf-8")
    command = [*apart("requirements/docs.txt"), "zensical", "build", "--strict", "--clean", "-f", "zensical.toml"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "NO_COLOR": "1"}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
    )  # fmt: skip
    # What griffe cannot read of a docstring is printed, and does not fail a build.
    if done.returncode or "griffe:" in done.stdout:
        return done.stdout
    write_llms(folder / "docs", folder / "site")
    return ""


def write_llms(sources: Path, site: Path) -> None:
    """Write the pages as they are read by models, beside those of the site: an index, all in one, and each alone.

    Args:
        sources: the folder that `write_sources` has filled.
        site: the folder of the site.
    """
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    index = [f"# {settings['site_name']}", "", f"> {settings['site_description']}", ""]
    index += ["- [README](index.md): what it is, an example, how to install it", ""]
    pages = [site_page(ROOT / "README.md")]
    for section in SECTIONS:
        index += [f"## {section}", ""]
        for row in _table(section).splitlines()[2:]:
            (link, *_), about = [*links_in(row, DOCS / "README.md")], row.strip("|").rpartition(" | ")[2].strip()
            pages.append(site_page(link.target))
            index.append(f"- [{link.text}]({pages[-1]}): {about}")
            for recipe in _pages_below(link) if link.target == RECIPES else ():
                pages.append(site_page(recipe.target))
                index.append(f"- [{recipe.text}]({pages[-1]}): a recipe, to copy")
        index.append("")
    texts = [(sources / page).read_text(encoding="utf-8") for page in pages]
    for page, text in zip(pages, texts, strict=True):
        (site / page).parent.mkdir(parents=True, exist_ok=True)
        (site / page).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text("\n".join(index), encoding="utf-8")
    whole = "\n".join(f"<!-- {page} -->\n\n{text}" for page, text in zip(pages, texts, strict=True))
    (site / "llms-full.txt").write_text(whole, encoding="utf-8")


def _settings() -> str:
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    settings = settings.replace("[project]\n", f"[project]\n{navigation()}\n", 1)
    return settings.replace('paths = ["src"]', f"paths = [{json.dumps(str(ROOT / 'src'))}]", 1)


def apart(requirements: str) -> list[str]:
    """The beginning of a command that runs in an environment of its own, with pinned packages."""
    uv = [str(Path(sys.executable).parent / "uv"), "run", "--quiet", "--no-project", "--isolated"]
    return [*uv, "--python", sys.executable, "--with-requirements", str(ROOT / requirements)]


if __name__ == "__main__":
    if faults := build(ROOT / "build"):
        sys.exit(faults)
    sys.stdout.write(
        "The site is build/site/index.html; for its search: python -m http.server --directory build/site\n"
    )
