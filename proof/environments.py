"""The environments of contenders, below `.proof`: each has its pins, those of Handrail, and the sets.

Handrail and the programs come from the working tree, by the path of the interpreter.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from proof.lives import ROOT

FOLDER = ROOT / ".proof"
_GOLD = ROOT / "requirements" / "gold.txt"


def find_python(packages: str) -> Path:
    """The interpreter of an environment, which is made if its pins have changed; none else is fetched.

    Raises:
        subprocess.CalledProcessError: it could not be made; what was printed says why.
    """
    folder, pins = FOLDER / packages, ROOT / "requirements" / f"proof-{packages}.txt"
    python, stamp = folder / "bin" / "python", folder / "pins.sha256"
    digest = hashlib.sha256(pins.read_bytes() + _GOLD.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != digest:
        print(f"proof: making {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
        _run_uv("venv", "--clear", "--python", sys.executable, str(folder))
        install = ("pip", "install", "--python", str(python), "--require-hashes", "--compile-bytecode")
        _run_uv(*install, "--requirements", str(pins))
        _run_uv(*install, "--no-deps", "--requirements", str(_GOLD))  # without the libraries of all providers
        stamp.write_text(digest, encoding="utf-8")
    return python


def read_versions(packages: str, names: tuple[str, ...]) -> dict[str, str]:
    """The pinned versions of packages of an environment."""
    pins = (ROOT / "requirements" / f"proof-{packages}.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split()[0].split("==") for line in pins if "==" in line and not line.startswith(" ")]
    return {name: version for name, version in pairs if name in names}


def _run_uv(*arguments: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([str(uv), "--quiet", *arguments], check=True)
