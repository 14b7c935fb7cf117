"""`[tool.handrail.overrides]` in the `pyproject.toml` of a project folder: where the overrides of its agents are.

| key | means | default |
|---|---|---|
| `folder` | the folder of the files, from the project folder | `"overrides"` |
| `tag` | which overrides of an agent are applied | `"stable"` |

The file of an agent may name another tag. Without the table and without a tag, nothing is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from handrail.agents.config_values import leaves_folder, shown_setting, unknown_key
from handrail.prompt.overrides.store import tag_fault

_KEYS = ("folder", "tag")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverridesConfig:
    """Where the overrides of a project's agents are.

    Attributes:
        folder: the folder, from the project folder.
        tag: which overrides are applied, unless the file of the agent names another tag.
    """

    folder: Path = Path("overrides")
    tag: str = "stable"


def read_overrides_config(given: object) -> tuple[OverridesConfig, list[str]]:
    """The configuration of a project, and every fault of it; a key at fault has its default.

    Args:
        given: the value of the key `overrides`.
    """
    if not isinstance(given, Mapping):
        cure = "write the table [tool.handrail.overrides], with the keys folder and tag"
        return OverridesConfig(), [f"overrides is {shown_setting(given)}; {cure}"]
    table = cast("Mapping[str, object]", given)
    faults = [f"overrides: {unknown_key(key, _KEYS)}" for key in table if key not in _KEYS]
    config = OverridesConfig()
    folder, tag = table.get("folder", str(config.folder)), table.get("tag", config.tag)
    if not isinstance(folder, str) or not folder.strip() or not folder.isprintable():
        faults.append(f'overrides.folder is {shown_setting(folder)}; write the path of a folder, such as "overrides"')
    elif leaves_folder(folder):
        faults.append(
            f"overrides.folder is {shown_setting(folder)}, which leaves the project folder; it is a path from there"
        )
    else:
        config = OverridesConfig(folder=Path(folder), tag=config.tag)
    if not isinstance(tag, str):
        faults.append(f'overrides.tag is {shown_setting(tag)}; write a text, such as "stable"')
    elif fault := tag_fault(tag):
        faults.append(f"overrides.tag: {fault}")
    else:
        config = OverridesConfig(folder=config.folder, tag=tag)
    return config, faults
