"""What all planned contract types share: reading the drawn tree, and refusing names that nobody declared.

Knows import-linter's session options, but no contract in particular and no module of the product.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from grimp import ImportGraph
from importlinter.domain.contract import InvalidContractOptions
from importlinter.domain.imports import ModuleExpression

from tools.checks.layers import tree

CHECKS_NOTHING_YET = "checks nothing yet: too few of the modules it is about exist"


def drawn_tree(session: Mapping[str, Any]) -> tree.DrawnTree:
    """The tree of the configuration; a drawing that cannot be read stops the run."""
    try:
        return tree.parse(session["tree"])
    except KeyError:
        raise InvalidContractOptions({"tree": "Draw the tree of modules in [tool.importlinter]."}) from None
    except tree.DrawingError as error:
        raise InvalidContractOptions({"tree": f"{error}."}) from error


def is_ours(module: str, session: Mapping[str, Any]) -> bool:
    """Whether a module belongs to one of the packages under contract."""
    return any(tree.is_inside(module, root) for root in session["root_packages"])


def refuse_undeclared(session: Mapping[str, Any], names_by_field: Mapping[str, Iterable[str]]) -> None:
    """Raise for a name that is neither drawn, nor standard library, nor in the list of packages."""
    drawn = drawn_tree(session)
    known = sys.stdlib_module_names | set(session.get("packages", ()))
    errors: dict[str, str] = {}
    for field, names in names_by_field.items():
        for name in sorted(names):
            if is_ours(name, session):
                if name not in drawn:
                    nearest = drawn.nearest(name)
                    hint = f" Did you mean {nearest}?" if nearest else ""
                    errors[field] = f"{name} is not drawn in the tree of importlinter.toml.{hint}"
            elif name not in known:
                errors[field] = f"{name} is not in `packages` of importlinter.toml; add it there if it is spelt right."
    if errors:
        raise InvalidContractOptions(errors)


def names_of(expressions: Iterable[ModuleExpression] | None) -> set[str]:
    """The modules that expressions speak of; for `package.*` that is the package."""
    return {expression.expression.removesuffix(".*") for expression in expressions or ()}


def existing(graph: ImportGraph, expressions: Iterable[ModuleExpression] | None) -> set[str]:
    """The modules of the graph that expressions stand for; what does not exist is left out."""
    found: set[str] = set()
    for expression in expressions or ():
        if expression.has_wildcard_expression():
            found |= graph.find_matching_modules(expression.expression)
        else:
            found |= graph.modules & {expression.expression}
    return found


def as_expressions(names: Iterable[str]) -> list[ModuleExpression]:
    """Plain names in the form that import-linter's own contracts expect."""
    return [ModuleExpression(name) for name in sorted(names)]
