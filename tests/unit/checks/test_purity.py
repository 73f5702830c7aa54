"""Clocks, dice and files are found in modules that are declared pure, and left alone elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.checks import purity
from tools.errors import ToolError

Write = Callable[[str, str], Path]

CONFIG = """
[tool.importlinter]
root_packages = ["sync_runtime"]
[[tool.importlinter.contracts]]
id = "pure"
source_modules = ["sync_runtime.tuning", "sync_runtime.session.machine", "syncgroup_operator.planning"]
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("from datetime import UTC, datetime\nx = datetime.now(UTC)", "datetime.datetime.now", id="now"),
        pytest.param("import datetime\nx = datetime.datetime.utcnow()", "datetime.datetime.utcnow", id="utcnow"),
        pytest.param("import datetime as d\nx = d.date.today()", "datetime.date.today", id="today"),
        pytest.param("from datetime import datetime as dt\nf = dt.now", "datetime.datetime.now", id="handed on"),
        pytest.param("from uuid import uuid4\nx = field(default_factory=uuid4)", "uuid.uuid4", id="random identifier"),
        pytest.param("\ndef f(clock):\n    return clock.now()", ".now()", id="a clock that was handed in"),
        pytest.param("\ndef f(at):\n    return at.astimezone()", "without a zone", id="the local zone"),
        pytest.param("\nx = open('plan.json')", "open()", id="a file"),
        pytest.param("\nprint('here')", "print()", id="output"),
        pytest.param("\nrandom = __import__('random')", "__import__()", id="an import in disguise"),
    ],
)
def test_an_impure_use_is_found(source: str, message: str, write: Write) -> None:
    write("importlinter.toml", CONFIG)
    (finding,) = purity.check(write("sync_runtime/tuning/streams.py", source))
    assert finding.path == Path("sync_runtime/tuning/streams.py")
    assert finding.line in {2, 3}
    assert message in finding.message


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def f(now: float, observation: object) -> float:\n    return now", id="time as an argument"),
        pytest.param("x = observation.now", id="a field called now"),
        pytest.param("from datetime import UTC, datetime\nx = datetime.fromisoformat(t).astimezone(UTC)", id="a zone"),
        pytest.param("import uuid\nx = uuid.uuid5(uuid.NAMESPACE_URL, name)", id="a derived identifier"),
        pytest.param("from sync_runtime.tuning.gate import open\nx = open(1)", id="an own function called open"),
        pytest.param("x = door.open()", id="a method called open"),
    ],
)
def test_a_pure_use_passes(source: str, write: Write) -> None:
    write("importlinter.toml", CONFIG)
    assert list(purity.check(write("sync_runtime/tuning.py", source))) == []


@pytest.mark.parametrize(
    "path",
    [
        "sync_runtime/tuning.py",
        "sync_runtime/tuning/__init__.py",
        "sync_runtime/session/machine.py",
        "operator/syncgroup_operator/planning/leases.py",
    ],
)
def test_a_declared_module_is_checked_wherever_it_lies(path: str, write: Write) -> None:
    write("importlinter.toml", CONFIG)
    assert len(list(purity.check(write(path, "print()")))) == 1


@pytest.mark.parametrize(
    "path", ["sync_runtime/session/publish.py", "sync_runtime/tuning_tables.py", "tests/unit/planning/test_x.py"]
)
def test_other_modules_may_read_clocks(path: str, write: Write) -> None:
    write("importlinter.toml", CONFIG)
    assert list(purity.check(write(path, "print(clock.now())"))) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param("[tool.importlinter]\nroot_packages = []", "no contract with id 'pure'", id="no such contract"),
        pytest.param("[tool]", "must hold", id="no table"),
        pytest.param("[", "must hold", id="no TOML"),
    ],
)
def test_a_configuration_without_the_list_is_an_error(config: str, message: str, write: Write) -> None:
    root = write("importlinter.toml", config)
    with pytest.raises(ToolError, match=message):
        list(purity.check(root))


def test_the_real_contract_names_the_modules_of_the_design() -> None:
    modules = purity.pure_modules(Path(__file__).parents[3] / "importlinter.toml")
    assert {
        "sync_runtime.tuning",
        "sync_runtime.session.machine",
        "sync_runtime.transport.schedule",
        "syncgroup_operator.planning",
        "syncgroup_operator.manifests",
    } <= set(modules)


def test_the_command_reports_by_its_exit_code(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = write("importlinter.toml", CONFIG)
    assert purity.main([str(root)]) == 0
    write("sync_runtime/tuning.py", "print()")
    assert purity.main([str(root)]) == 1
    (root / "importlinter.toml").unlink()
    assert purity.main([str(root)]) == 2
    assert "purity: 1 to mend" in capsys.readouterr().out
