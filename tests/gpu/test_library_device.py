from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu import library_checks as checks

pytestmark = pytest.mark.timeout(300)
ALL = [
    checks.check_versions_arrive,
    checks.check_masters,
    checks.check_replaced_tensors,
    checks.check_lost_word,
    checks.check_failed_publish,
    checks.check_repair,
    checks.check_joining,
    checks.check_unwanted_anchor,
    checks.check_hostile,
]


@pytest.mark.parametrize("rows", [12, 9000])
@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_the_device_coder_on_the_gpu(check: Callable[[str, int, Path], None], rows: int, tmp_path: Path) -> None:
    check("cuda", rows, tmp_path)
