r"""Names on disk as text and back: a name on disk is any bytes, and a path of a filesystem is text.

A name that is UTF-8 is its own text. Where it is not, or where its text would be no part of a path, each byte in
question is spelled by the sign for escape and two hexadecimal digits: the bytes `caf\xe9` are `caf␛E9`. The spelling
can be read by people, copied by models and written to any UTF-8 text, which lone surrogates cannot. A name has one
spelling only.
"""

from __future__ import annotations

import re
from typing import cast

from handrail.errors import PathEscapeError
from handrail.filesystem.paths import normalise

ESCAPE = "\N{SYMBOL FOR ESCAPE}"
"""Begins the spelling of a byte."""

_SPELLED = re.compile(ESCAPE.encode() + rb"([0-9A-F]{2})")
_DRIVE = re.compile(r"[A-Za-z]:")


def to_text(name: bytes) -> str:
    """How a name on disk, or the target of a link, is spelled in paths."""
    text = name.decode(errors="surrogateescape")
    if _DRIVE.fullmatch(text):  # at the start of a path it would be taken for a drive
        return text[0] + _spelled(b":")
    return "".join(_spell(character) for character in text) if _needs_spelling(text) else text


def to_bytes(text: str) -> bytes:
    """The name on disk that a text spells; the inverse of `to_text`."""
    return _SPELLED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode())


def normalise_on_disk(path: str) -> str:
    """The shortest form of a path on disk; as `normalise`, but lengths are those of the names on disk.

    Raises:
        PathEscapeError: it is no path inside the root, or spells a name in another way than `to_text` does.
    """
    if not isinstance(cast("object", path), str) or ESCAPE not in path:  # what is no text, `normalise` refuses
        return normalise(path)
    shortest = normalise(path, encode=to_bytes)
    for part in shortest.split("/"):
        name = to_bytes(part)
        if b"/" in name or b"\0" in name or name in {b".", b".."} or to_text(name) != part:
            msg = (
                f"{ESCAPE!r} and two digits spell a byte that is no UTF-8 text, and {part!r} spells others; copy names "
                "as they are listed"
            )
            raise PathEscapeError(msg, path=path)
    return shortest


def _needs_spelling(text: str) -> bool:
    return "\\" in text or (not text.isascii() and any(each == ESCAPE or "\udc80" <= each <= "\udcff" for each in text))


def _spell(character: str) -> str:
    if character in {ESCAPE, "\\"}:
        return _spelled(character.encode())
    if "\udc80" <= character <= "\udcff":
        return _spelled(character.encode(errors="surrogateescape"))
    return character


def _spelled(data: bytes) -> str:
    return "".join(f"{ESCAPE}{byte:02X}" for byte in data)
