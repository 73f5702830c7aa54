"""A group with its CA; parents and children that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.component.transport.rig import Child, Parent
from tests.support.identities import Group

Make = Callable[..., Any]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


@pytest.fixture
def endings() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make_parent(group: Group, endings: ExitStack) -> Callable[..., Parent]:
    def make(*arguments: Any, **options: Any) -> Parent:
        parent = Parent(group, *arguments, **options)
        endings.callback(parent.close)
        return parent

    return make


@pytest.fixture
def make_child(group: Group, endings: ExitStack) -> Callable[..., Child]:
    def make(*arguments: Any, **options: Any) -> Child:
        child = Child(group, *arguments, **options)
        endings.callback(child.close)
        return child

    return make
