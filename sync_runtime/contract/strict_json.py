"""JSON from elsewhere with exactly one reading: bounded nesting, no key twice, whole numbers only.

Standard library only, so that every process may use it. Raises ValueError with a sentence; whoever calls says what the
text was supposed to be, and checks sizes before.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

# A string (cut short or not), or a bracket. Possessive, so that hostile text cannot make it go back: one pass, always.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.?)*+"?|[][{}]', re.DOTALL)


def loads_strict(data: bytes | str, max_depth: int) -> Any:
    """Parses a text. A parser that recurses must not be led to its stack's end, so depth is counted first."""
    text = data.decode() if isinstance(data, bytes) else data  # not UTF-8 is a ValueError, too
    _check_depth(text, max_depth)
    return json.loads(
        text, object_pairs_hook=_without_duplicates, parse_float=_no_fraction, parse_constant=_no_fraction
    )


def _check_depth(text: str, max_depth: int) -> None:
    depth = 0
    for token in _TOKEN.finditer(text):
        character = token[0][0]
        depth += (character in "[{") - (character in "]}")
        if depth > max_depth:
            raise ValueError(f"nested deeper than {max_depth} levels")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is given twice in one object")
    return document


def _no_fraction(text: str) -> NoReturn:
    raise ValueError(f"{text:.40} is no whole number")
