"""What a person looks at, answers and settles at a store; the command line and the pages show it.

Nothing here prints, or reads options. An error names the command that a person needs next.
"""

from __future__ import annotations

from importlib.util import find_spec


def need_extra() -> None:
    """Makes sure that the extra `agents` is installed."""
    missing = [name for name in ("pydantic_ai", "ruamel") if find_spec(name) is None]
    if missing:
        raise ImportError(f'agents need {" and ".join(missing)}, not installed here: pip install "handrail[agents]"')
