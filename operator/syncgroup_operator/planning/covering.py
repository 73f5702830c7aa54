"""Whether a seen object already says what is wanted of it, so that nothing need be sent. Pure.

Wanted documents hold only what the operator owns; the API server adds defaults and others add fields of their own.
Server-side apply would leave all of that alone, so it is no difference here either: a difference that applying cannot
remove would be applied for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

_LIST_MAPS: Mapping[str, Mapping[str, Any]] = {
    "spec.ports": {"port": None, "protocol": "TCP"},
    "metadata.ownerReferences": {"uid": None},
}
"""Lists whose items are told apart by these keys (with their defaults); all other lists are wanted as they are."""
_QUANTITIES = ("requests", "limits", "capacity")
_QUANTITY = re.compile(r"([0-9]*\.?[0-9]+|[0-9]+\.)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][-+]?[0-9]{1,2})?")
_SUFFIXES = {
    **{unit: Fraction(1024) ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{unit: Fraction(1000) ** (power + 1) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{unit: Fraction(1, 1000) ** (power + 1) for power, unit in enumerate(("m", "u", "n"))},
}


def covers(wanted: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether `seen` says everything that `wanted` says."""
    if wanted.get("kind") == "PersistentVolumeClaim":
        return _covers_claim(wanted, seen)
    return _covers(wanted, seen, "")


def quantity(value: object) -> Fraction | None:
    """A Kubernetes quantity as a number; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, int):
        return Fraction(value)
    found = _QUANTITY.fullmatch(value)
    if found is None:
        return None
    number, suffix = Fraction(found[1]), found[2]
    if not suffix:
        return number
    if suffix in _SUFFIXES:
        return number * _SUFFIXES[suffix]
    return number * Fraction(10) ** int(suffix[1:])


def _covers(wanted: Any, seen: Any, path: str) -> bool:
    if wanted is seen or wanted is None:
        return True
    # Plain types first: asking an abstract class is most of the cost of a comparison.
    is_mapping = type(wanted) is dict or isinstance(wanted, Mapping)
    if not wanted and (is_mapping or isinstance(wanted, list | tuple)):
        return True  # nothing is wanted of it
    if is_mapping:
        return isinstance(seen, Mapping) and all(
            _covers(value, seen.get(key), f"{path}.{key}" if path else str(key)) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return isinstance(seen, list) and _covers_list(wanted, seen, path)
    if type(wanted) is str and wanted == seen:
        return True
    if path.split(".")[-2:-1] and path.split(".")[-2] in _QUANTITIES:
        amount = quantity(wanted)
        return amount is not None and amount == quantity(seen)
    return type(wanted) is type(seen) and bool(wanted == seen)


def _covers_list(wanted: Sequence[Any], seen: Sequence[Any], path: str) -> bool:
    keys = _LIST_MAPS.get(path)
    if keys is None:
        return len(wanted) == len(seen) and all(
            _covers(one, other, f"{path}[]") for one, other in zip(wanted, seen, strict=True)
        )
    known = {_identity(item, keys): item for item in seen if isinstance(item, Mapping)}
    return all(_covers(item, known.get(_identity(item, keys)), f"{path}[]") for item in wanted)


def _identity(item: Mapping[str, Any], keys: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(item.get(key, default) for key, default in keys.items())


def _covers_claim(wanted: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """A claim's spec cannot change but for its size, and that can only grow."""
    asked, held = (quantity(_requested(document)) for document in (wanted, seen))
    grown = asked is None or (held is not None and held >= asked)
    return grown and _covers(wanted.get("metadata"), seen.get("metadata"), "metadata")


def _requested(document: Mapping[str, Any]) -> object:
    return document.get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
