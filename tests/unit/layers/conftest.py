"""A stub of the whole design on disk, and import-linter run on it in this process.

Nothing here imports the product. grimp is told where the packages lie instead of searching `sys.path`, so stub and real
tree are checked by the same code and neither is ever imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from grimp.application.config import settings as grimp_settings
from grimp.application.ports.filesystem import AbstractFileSystem
from grimp.application.ports.packagefinder import AbstractPackageFinder
from importlinter import api
from importlinter.application import rendering, use_cases
from importlinter.domain.contract import registry

from tools.checks.layers import contracts, reach, tree

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "importlinter.toml"

# Ids of the contracts that broke ("unusable" for a configuration that cannot be used), and all that was printed.
Verdict = tuple[frozenset[str], str]


class FolderFinder(AbstractPackageFinder):
    """Finds our packages below one folder, laid out as in the repository."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def determine_package_directories(self, package_name: str, file_system: AbstractFileSystem) -> set[str]:
        """The one folder that holds a package."""
        return {str(folder_of(self.root, package_name))}


def folder_of(root: Path, module: str) -> Path:
    """Where a package lies: the operator's in `operator/`, which is no package itself."""
    parent = root / "operator" if tree.is_inside(module, "syncgroup_operator") else root
    return parent.joinpath(*module.split("."))


@pytest.fixture
def lint(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Verdict]]:
    """`lint(root, config)`: check a tree; gives the broken contracts and the printed report."""
    finder = grimp_settings.PACKAGE_FINDER
    for contract_type in (
        contracts.PlannedTree,
        contracts.PlannedLayers,
        contracts.PlannedForbidden,
        contracts.PlannedProtected,
        reach.PlannedReach,
    ):
        registry.register(contract_type, contract_type.type_name)

    def run(root: Path, config: Path = CONFIG) -> Verdict:
        grimp_settings.configure(PACKAGE_FINDER=FolderFinder(root))
        report = use_cases.create_report(use_cases.read_user_options(str(config)), cache_dir=None)
        rendering.render_report(report)
        printed = " ".join(capsys.readouterr().out.split())
        if report.could_not_run:
            return frozenset({"unusable"}), printed
        checks = report.get_contracts_and_checks()
        return frozenset(contract.contract_options["id"] for contract, check in checks if not check.kept), printed

    yield run
    grimp_settings.configure(PACKAGE_FINDER=finder)


@pytest.fixture
def options() -> dict[str, Any]:
    """The configuration as import-linter reads it."""
    return api.read_configuration(str(CONFIG))


@pytest.fixture
def write_modules(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """`write_modules({module: source})`: every module as a package of its own, so that any module can have children."""

    def write(sources: Mapping[str, str]) -> Path:
        for module, source in sources.items():
            parts = module.split(".")
            for depth in range(1, len(parts) + 1):
                folder = folder_of(tmp_path, ".".join(parts[:depth]))
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "__init__.py").touch()
            (folder_of(tmp_path, module) / "__init__.py").write_text(source, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def stub_tree(options: dict[str, Any], write_modules: Callable[[Mapping[str, str]], Path]) -> Path:
    """The whole design, drawn module by drawn module, all of them empty."""
    drawn = tree.parse(options["session_options"]["tree"])
    return write_modules(dict.fromkeys(sorted(drawn.modules), ""))
