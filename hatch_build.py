"""What the build adds to the package: its pages, and the README as an index page shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`)+)\]\((?!https?://|mailto:)([^()\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class Pages(BuildHookInterface[Any]):
    """Puts `docs/` into the wheel, where `handrail docs` finds it; an editable install reads the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the pages to a wheel that is shipped."""
        if version == "standard":
            docs = Path(self.root, "docs")
            for page in docs.rglob("*.md"):
                build_data["force_include"][str(page)] = f"handrail/docs/{page.relative_to(docs).as_posix()}"
            # Beside the folder, as in the repository.
            for name in ("README.md", "CHANGELOG.md", "SECURITY.md"):
                build_data["force_include"][str(Path(self.root, name))] = f"handrail/{name}"


class Readme(MetadataHookInterface):
    """Makes the description of the README."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        version = re.search(
            r'^__version__ = "(.+)"', Path(self.root, "src/handrail/__init__.py").read_text("utf-8"), re.MULTILINE
        )
        repository = metadata.get("urls", {}).get("Repository", "")
        address = f"{repository.rstrip('/')}/blob/v{version[1]}" if repository and version else ""
        metadata["readme"] = {"content-type": "text/markdown", "text": with_links(text, address)}


def with_links(text: str, repository: str) -> str:
    """The README for a page that is not in the repository.

    Args:
        text: the README.
        repository: the address that links are relative to; without one, the text of a link stays and its target goes,
            and an image goes.
    """

    def absolute(match: re.Match[str]) -> str:
        is_image, text, target = match.groups()
        if not repository:
            return "" if is_image else text
        page = f"/README.md{target}" if target.startswith("#") else f"/{target}"
        return f"{is_image}[{text}]({repository.replace('/blob/', '/raw/') if is_image else repository}{page})"

    return "".join(part if part.startswith("```") else _LINK.sub(absolute, part) for part in _FENCE.split(text))
