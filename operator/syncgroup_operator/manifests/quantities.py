"""Kubernetes quantities compared. Pure; what the contract accepts (`fields.Quantity`) is read, nothing else."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

_BINARY: Final = {
    suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}
_DECIMAL: Final = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{suffix: Decimal(1000) ** -power for power, suffix in enumerate(("m", "u", "n"), 1)},
}


def exceeds(one: int | str, other: int | str) -> bool:
    """Whether one quantity is surely larger than another."""
    first, second = _number(one), _number(other)
    return first is not None and second is not None and first > second


def _number(value: int | str) -> Decimal | None:
    """The number behind `2`, `500m`, `2Gi` or `1e3`; None where its exponent is absurd."""
    text = str(value)
    try:
        if text[-2:] in _BINARY:
            return Decimal(text[:-2]) * _BINARY[text[-2:]]
        if text[-1:] in _DECIMAL:
            return Decimal(text[:-1]) * _DECIMAL[text[-1]]
        return Decimal(text)
    except ArithmeticError:
        return None
