"""import-linter's layers, forbidden and protected contracts for a tree that is still growing, and the tree itself.

Each leaves out modules that do not exist yet, refuses names that are not drawn, and says so when nothing is left to
check. What an import *runs* (packages of others, reached through our own) is judged in `reach`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import Layer, LayersContract, ModuleTail
from importlinter.contracts.protected import ProtectedContract
from importlinter.domain.contract import InvalidContractOptions

from tools.checks.layers import planned, tree


class PlannedTree(Contract):
    """No module stands in a closed package without being drawn; what is drawn and absent is listed as a warning."""

    type_name = "planned_tree"

    broken_contract_guidance = fields.TextField(required=False)

    def validate(self) -> None:
        """Refuse a drawing that cannot be read, or one that forgets a root package."""
        planned.refuse_undeclared(self.session_options, {"tree": self.session_options["root_packages"]})

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare the graph with the drawing, both ways."""
        drawn = planned.drawn_tree(self.session_options)
        ours = {module for module in graph.modules if planned.is_ours(module, self.session_options)}
        undrawn, absent = drawn.undrawn(ours), drawn.absent(ours)
        warnings = [f"drawn, but not built yet: {', '.join(absent)}"] if absent else []
        return ContractCheck(kept=not undrawn, warnings=warnings, metadata={"undrawn": undrawn})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line per module that nobody drew."""
        for module in check.metadata["undrawn"]:
            output.print_error(f"{module} is not drawn", bold=False)
        output.new_line()
        contract_utils.render_broken_contract_guidance(cast(Any, self).broken_contract_guidance)


class PlannedLayers(LayersContract):
    """Layers, every one of them optional until its module exists; with containers, every drawn child must have one."""

    type_name = "planned_layers"

    def validate(self) -> None:
        """Check the names against the drawing, then let absent ones pass."""
        super().validate()
        options = cast(Any, self)
        layers = cast(Sequence[Layer], options.layers)
        containers = planned.names_of(options.containers)
        prefixes = [f"{container}." for container in sorted(containers)] or [""]
        tails = [tail.name for layer in layers for tail in layer.module_tails]
        self.full_names = {f"{prefix}{tail}" for prefix in prefixes for tail in tails}
        planned.refuse_undeclared(self.session_options, {"containers": containers, "layers": self.full_names})
        self._refuse_homeless(containers)
        options.layers = [
            Layer({ModuleTail(tail.name, is_optional=True) for tail in layer.module_tails}, layer.is_independent)
            for layer in layers
        ]

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Check as import-linter does; warn while there are no two modules to compare."""
        result = super().check(graph, verbose)
        if len(self.full_names & graph.modules) < 2:
            result.warnings.append(planned.CHECKS_NOTHING_YET)
        return result

    def _refuse_homeless(self, containers: Collection[str]) -> None:
        """Stricter than import-linter's `exhaustive`, which waits until the module exists."""
        drawn = planned.drawn_tree(self.session_options).modules
        homeless = sorted(name for name in drawn - self.full_names if tree.parent_of(name) in containers)
        if homeless:
            raise InvalidContractOptions({"layers": f"Drawn, but in no layer: {', '.join(homeless)}."})


class PlannedForbidden(ForbiddenContract):
    """Forbidden imports, where `package.*` may be forbidden except for the modules that `except_modules` names."""

    type_name = "planned_forbidden"

    except_modules = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)

    def validate(self) -> None:
        """Check the names against the drawing."""
        options = cast(Any, self)
        names = {name: planned.names_of(getattr(options, name)) for name in _FORBIDDEN_FIELDS}
        planned.refuse_undeclared(self.session_options, names)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Narrow sources and targets to what exists, then check as import-linter does."""
        options = cast(Any, self)
        sources = planned.existing(graph, options.source_modules)
        excepted = planned.existing(graph, options.except_modules)
        options.source_modules = planned.as_expressions(sources)
        options.forbidden_modules = planned.as_expressions(
            planned.existing(graph, options.forbidden_modules) - excepted
        )
        result = super().check(graph, verbose)
        if not sources:
            result.warnings.append(planned.CHECKS_NOTHING_YET)
        return result


_FORBIDDEN_FIELDS = ("source_modules", "forbidden_modules", "except_modules")


class PlannedProtected(ProtectedContract):
    """Modules, or packages of others, that only the listed modules may import themselves."""

    type_name = "planned_protected"

    def validate(self) -> None:
        """Check the names against the drawing."""
        options = cast(Any, self)
        names = {name: planned.names_of(getattr(options, name)) for name in ("protected_modules", "allowed_importers")}
        planned.refuse_undeclared(self.session_options, names)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Narrow both sides to what exists, then check as import-linter does.

        Nothing to protect means that nobody imports it, which is what the contract asks for: no warning then.
        """
        options = cast(Any, self)
        options.protected_modules = planned.as_expressions(planned.existing(graph, options.protected_modules))
        options.allowed_importers = planned.as_expressions(planned.existing(graph, options.allowed_importers))
        return super().check(graph, verbose)
