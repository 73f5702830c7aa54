"""A contract on what an import runs: the packages of others that a module reaches through all of ours.

Importing `a.b.c` runs `a/__init__.py` and `a/b/__init__.py` first, and a graph of import statements does not show it: a
light module in a heavy package is heavy. So here every module also imports the package that holds it. An import in a
function counts like any other; a package that hands out names lazily does it by module name, with `importlib`.

It knows nothing of versions or of what is installed: names only.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils
from importlinter.domain.contract import InvalidContractOptions

from tools.checks.layers import planned, tree

Chain = tuple[str, ...]


class PlannedReach(Contract):
    """Sources reach none of `forbidden_packages`, or nothing beyond the standard library and `allowed_packages`.

    `allowed_standard` narrows the standard library itself to the listed modules. `except_sources` takes modules out of
    the sources; a source that imports one of them still answers for what it reaches.
    """

    type_name = "planned_reach"

    source_modules = fields.SetField(subfield=fields.ModuleExpressionField())
    except_sources = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)
    forbidden_packages = fields.SetField(subfield=fields.StringField(), required=False)
    allowed_packages = fields.SetField(subfield=fields.StringField(), required=False)
    allowed_standard = fields.SetField(subfield=fields.StringField(), required=False)
    broken_contract_guidance = fields.TextField(required=False)

    def validate(self) -> None:
        """Check the names against the drawing and the lists; ask for exactly one of the two ways to judge."""
        options = cast(Any, self)
        if bool(options.forbidden_packages) == bool(options.allowed_packages):
            raise InvalidContractOptions({"allowed_packages": "Give either these or forbidden_packages."})
        if strangers := set(options.allowed_standard or ()) - sys.stdlib_module_names:
            message = f"Not in the standard library: {', '.join(sorted(strangers))}."
            raise InvalidContractOptions({"allowed_standard": message})
        planned.refuse_undeclared(
            self.session_options,
            {
                "source_modules": planned.names_of(options.source_modules),
                "except_sources": planned.names_of(options.except_sources),
                "forbidden_packages": options.forbidden_packages or (),
                "allowed_packages": options.allowed_packages or (),
            },
        )

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Walk from the sources through our modules and judge every import that leaves them."""
        options = cast(Any, self)
        imports = what_imports_run(graph, self.session_options)
        wanted, excepted = planned.names_of(options.source_modules), planned.names_of(options.except_sources)
        sources = [module for module in imports if _any_holds(module, wanted) and not _any_holds(module, excepted)]
        chains = sorted(chains_outside(imports, sources, self._is_refused))
        return ContractCheck(
            kept=not chains,
            warnings=[] if sources else [planned.CHECKS_NOTHING_YET],
            metadata={"chains": [_described(graph, chain) for chain in chains]},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One paragraph per package reached: the way there, import by import."""
        for chain, steps in check.metadata["chains"]:
            output.print_error(f"{chain[0]} must not reach {chain[-1]}:")
            for step in steps:
                output.print_error(f"- {step}", bold=False)
            output.new_line()
        contract_utils.render_broken_contract_guidance(cast(Any, self).broken_contract_guidance)

    def _is_refused(self, package: str) -> bool:
        options = cast(Any, self)
        if options.forbidden_packages:
            return package in options.forbidden_packages
        if package in sys.stdlib_module_names and options.allowed_standard is None:
            return False
        return package not in options.allowed_packages | (options.allowed_standard or set())


def what_imports_run(graph: ImportGraph, session: Mapping[str, Any]) -> dict[str, set[str]]:
    """Per module of ours, the modules that importing it runs next: those it names, and its own package."""
    ours = sorted(module for module in graph.modules if planned.is_ours(module, session))
    return {
        module: graph.find_modules_directly_imported_by(module) | ({tree.parent_of(module)} - {""}) for module in ours
    }


def chains_outside(
    imports: Mapping[str, Collection[str]], sources: Iterable[str], is_refused: Callable[[str], bool]
) -> Iterator[Chain]:
    """A shortest chain from the nearest source to every refused import that leaves `imports`."""
    origin: dict[str, str | None] = dict.fromkeys(sorted(sources))
    queue = deque(origin)
    while queue:
        module = queue.popleft()
        for imported in sorted(imports[module]):
            if imported in imports:
                if imported not in origin:
                    origin[imported] = module
                    queue.append(imported)
            elif is_refused(imported):
                yield (*_path_to(module, origin), imported)


def _path_to(module: str, origin: Mapping[str, str | None]) -> Chain:
    path = [module]
    while (previous := origin[path[-1]]) is not None:
        path.append(previous)
    return tuple(reversed(path))


def _any_holds(module: str, packages: Iterable[str]) -> bool:
    return any(tree.is_inside(module, package) for package in packages)


def _described(graph: ImportGraph, chain: Chain) -> tuple[Chain, list[str]]:
    """A chain with each step in words; done while the graph is at hand."""
    steps: list[str] = []
    for importer, imported in itertools.pairwise(chain):
        lines = sorted(
            {detail["line_number"] for detail in graph.get_import_details(importer=importer, imported=imported)}
        )
        where = f"line {', '.join(map(str, lines))}" if lines else "the package that holds it"
        steps.append(f"{importer} -> {imported} ({where})")
    return chain, steps
