"""Assigns numbers to repeated texts, and limits the length of names."""

from __future__ import annotations

import re
from typing import TypeVar

LONGEST_NAME = 16 << 10
"""Most characters of a name; the longest in the public traces has about 5,000. It limits the size
of a table of names for every file."""

_SURROGATES = re.compile("[\ud800-\udfff]")

Key = TypeVar("Key")


class Numbers(dict[Key, int]):
    """Distinct values, numbered in the order in which they appear."""

    def __missing__(self, key: Key) -> int:
        self[key] = number = len(self)
        return number


class Names(Numbers[str]):
    """Numbered names, overlong ones shortened."""

    def __missing__(self, key: str) -> int:
        if len(key) <= LONGEST_NAME:
            return super().__missing__(key)
        key = short_name(key)
        return self[key] if key in self else super().__missing__(key)


def encodable(text: str) -> str:
    """`text` with a replacement character for each half of a surrogate pair, which UTF-8 cannot
    encode; the same object where there are none."""
    if text.isascii() or not _SURROGATES.search(text):
        return text
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def short_name(name: str, most: int = LONGEST_NAME) -> str:
    """`name`, or its beginning with its length and a digest, so that different names stay
    different."""
    if len(name) <= most:
        return name
    import hashlib  # Loads OpenSSL, which takes 8 ms.

    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{name[:most]}… [{len(name)} characters, {digest}]"
