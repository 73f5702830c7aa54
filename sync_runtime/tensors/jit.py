"""The one door to numba: compiled loops that release the interpreter's lock, cached on disk where that is possible.

Only CPU modules import this; the user's process needs no numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles on first use, for the argument types met. Indices are not checked: the function does it."""
    try:
        built = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError:  # nowhere to keep the cache (a read-only image without a home): compile in every process
        built = numba.njit(nogil=True, error_model="numpy")(function)
    return cast("Callable[P, R]", built)
