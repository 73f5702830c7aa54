"""Which changes of a resource are refused: the Python twin of CEL rules that look at `oldSelf`.

As on the API server, a rule runs where its object existed before: nested objects correspond by field, items of a list
map by their keys, items of other lists not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sync_runtime.contract.base import Model
from sync_runtime.contract.errors import Problem
from sync_runtime.contract.fields import ListMap
from sync_runtime.contract.problems import path_text

Location = tuple[int | str, ...]


def broken_update_rules(new: Model, old: Model) -> list[Problem]:
    """The problems of changing `old` into `new`, two models of one class that are valid by themselves."""
    return list(_walk(new, old, ()))


def _walk(new: Model, old: Model, at: Location) -> Iterator[Problem]:
    for rule in new.UPDATE_RULES:
        if not rule.holds(new, old):
            yield Problem(path_text((*at, *rule.field.split("."))), rule.message)
    for name, field in type(new).model_fields.items():
        here = (*at, field.alias or name)
        new_value, old_value = getattr(new, name), getattr(old, name)
        if isinstance(new_value, Model) and isinstance(old_value, Model):
            yield from _walk(new_value, old_value, here)
        for list_map in (mark for mark in field.metadata if isinstance(mark, ListMap)):
            yield from _walk_items(new_value, old_value, list_map, here)


def _walk_items(new: Sequence[Model], old: Sequence[Model], marks: ListMap, at: Location) -> Iterator[Problem]:
    before = {marks.identity(item): item for item in old}
    for index, item in enumerate(new):
        identity = marks.identity(item)
        if identity in before:
            yield from _walk(item, before[identity], (*at, index))
