"""The drawn tree: what it reads, what it refuses, and what it says about modules that exist."""

from __future__ import annotations

import pytest

from tools.checks.layers import reach, tree

DRAWING = """
house
  kitchen
    oven
  cellar
    wine
    ...
  attic
garden
"""


def test_a_drawing_names_every_module_in_full() -> None:
    drawn = tree.parse(DRAWING)
    assert drawn.modules == {
        "house",
        "house.kitchen",
        "house.kitchen.oven",
        "house.cellar",
        "house.cellar.wine",
        "house.attic",
        "garden",
    }


def test_a_package_with_drawn_children_is_closed_unless_it_is_left_open() -> None:
    assert tree.parse(DRAWING).closed == {"house", "house.kitchen"}


def test_what_stands_in_a_closed_package_undrawn_is_found() -> None:
    existing = ["house.stable", "house.kitchen.sink", "house.cellar.rat", "house.attic.bat", "garden.gnome", "street"]
    assert tree.parse(DRAWING).undrawn(existing) == ["house.kitchen.sink", "house.stable"]


def test_what_is_absent_is_listed_without_what_lies_below_it() -> None:
    assert tree.parse(DRAWING).absent(["house", "house.cellar"]) == [
        "garden",
        "house.attic",
        "house.cellar.wine",
        "house.kitchen",
    ]


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        pytest.param("a\n   b\n", "two spaces are one step", id="half a step"),
        pytest.param("a\n    b\n", "two spaces are one step", id="two steps at once"),
        pytest.param("a\n  b c\n", "one name a line", id="two names"),
        pytest.param("a\n  b\n  b\n", "a.b is drawn twice", id="twice"),
    ],
)
def test_a_drawing_that_is_no_tree_is_refused(drawing: str, message: str) -> None:
    with pytest.raises(tree.DrawingError, match=message):
        tree.parse(drawing)


def test_the_shortest_way_out_is_reported_once_per_import() -> None:
    imports = {"a": {"b", "c"}, "b": {"c"}, "c": {"torch", "math"}, "d": {"torch"}}
    chains = list(reach.chains_outside(imports, ["a"], lambda package: package == "torch"))
    assert chains == [("a", "c", "torch")]


def test_modules_that_import_each_other_do_not_trap_the_walk() -> None:
    imports = {"a": {"b"}, "b": {"a", "torch"}}
    assert list(reach.chains_outside(imports, ["a", "b"], lambda _: True)) == [("b", "torch")]
