"""Make a messy folder for the organiser: python examples/organiser/make_mess.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

_PIXEL = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffd9")

MESS: dict[str, bytes] = {
    "Invoice 2026-014.txt": "Invoice 2026-014\nMüller & Söhne GmbH\nDesk lamp, 64.00 EUR\n".encode(),
    "invoice_2026-015.txt": "Invoice 2026-015\nNguyễn Thị Hoa\nJacket, 120.00 EUR\n".encode(),
    "document (3).txt": "Invoice 2026-016\nŁukasz Żółty\nArmchair, 320.00 EUR\n".encode(),
    "IMG_0042.jpg": _PIXEL,
    "IMG_0042 (1).jpg": _PIXEL,
    "old stuff/IMG_0043.jpg": _PIXEL,
    "old stuff/京都.md": "# 京都\n\n- Train from Osaka at 9:12\n- Hotel near the river\n".encode(),
    "packing list.md": b"# Packing list\n\n- passport\n- charger\n",
    "todo.md": b"# To do\n\n- call the carrier about the armchair\n",
    "index.md": b"# What is where\n\nKeep this file short. (Zo\xc3\xab)\n",
    "~$tmp.dat": b"",
}
"""The files, by their paths."""


def make_mess(folder: Path) -> None:
    """Make the folder and its files.

    Raises:
        FileExistsError: it is there already.
    """
    folder.mkdir(parents=True)
    for path, content in MESS.items():
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)


def main() -> int:
    """Make the folder that the command line names; returns the exit code."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and the folder
        print("usage: make_mess.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    try:
        make_mess(folder)
    except OSError as error:
        print(f"make_mess.py: {error}", file=sys.stderr)
        return 1
    print(f"{folder}: {len(MESS)} files, and no order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
