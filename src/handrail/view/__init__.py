"""Pages of stored sessions, to look at: one file without a network, or served live on this machine."""

from __future__ import annotations

from importlib.util import find_spec

# Here, and not where each is imported, so that the first module of this package to be imported names the extra.
if _missing := [name for name in ("jinja2", "starlette", "uvicorn") if find_spec(name) is None]:
    raise ImportError(f'pages need {" and ".join(_missing)}, not installed here: pip install "handrail[view]"')
