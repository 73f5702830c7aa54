"""One copy of weights for several processes: what the first writes, another process reads, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sync_runtime.errors import LocalError
from sync_runtime.library.engines.host_copy import HostCopy, HostView
from sync_runtime.library.engines.mapped import Content

pytestmark = pytest.mark.timeout(60)  # another process imports torch
WANTED = {"a": ((3, 5), torch.bfloat16), "b": ((7,), torch.float32), "empty": ((0, 4), torch.float32)}
CONTENT = Content(WANTED, {})
READER = """
import sys
import torch
from sync_runtime.library.engines.host_copy import HostView
from sync_runtime.library.engines.mapped import Content
content = Content({"a": ((3, 5), torch.bfloat16), "b": ((7,), torch.float32), "empty": ((0, 4), torch.float32)}, {})
view = HostView(content, sys.argv[1])
view.wait(7, 20.0, lambda: None)
print(*(one.reshape(-1).view(torch.uint8).numpy().tobytes().hex() for one in view.tensors().values()), sep="\\n")
"""


def nothing() -> None:
    pass


def test_another_process_reads_what_the_first_one_wrote() -> None:
    copy = HostCopy(CONTENT)
    for seed, tensor in enumerate(copy.tensors().values()):
        tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed)))
    copy.tensors()["b"][:2] = torch.tensor([-0.0, float("nan")])
    copy.say(7, whole=True)
    done = subprocess.run([sys.executable, "-c", READER, copy.path], capture_output=True, text=True, check=True)
    wanted = [one.reshape(-1).view(torch.uint8).numpy().tobytes().hex() for one in copy.tensors().values()]
    assert done.stdout.split("\n")[:-1] == wanted


def test_both_see_one_memory_and_later_rounds_too() -> None:
    copy = HostCopy(CONTENT)
    view = HostView(CONTENT, copy.path)
    for number in (1, 2):
        copy.tensors()["b"].fill_(number)
        copy.say(number, whole=True)
        view.wait(number, 0.0, nothing)
        assert view.tensors()["b"].tolist() == [number] * 7


def test_a_round_that_failed_or_never_ends_is_told() -> None:
    copy = HostCopy(CONTENT)
    view = HostView(CONTENT, copy.path)
    copy.say(1, whole=True)
    with pytest.raises(LocalError, match=r"did not get the version within 0.05 s"):
        view.wait(2, 0.05, nothing)
    copy.say(2, whole=False)
    with pytest.raises(LocalError, match="its log says why"):
        view.wait(2, 30.0, nothing)


def test_a_first_worker_that_is_gone_is_not_waited_for() -> None:
    copy = HostCopy(CONTENT)
    view = HostView(CONTENT, copy.path)
    copy.close()
    assert copy.is_closed
    with pytest.raises(LocalError, match="has not got the version"):
        view.wait(1, 30.0, nothing)
    with pytest.raises(LocalError, match="cannot be read"):
        HostView(CONTENT, view.path)


OTHERS = {
    "another size": {**WANTED, "c": ((64,), torch.float32)},
    "another name": {("z" if name == "a" else name): one for name, one in WANTED.items()},
    "another dtype of one width": {**WANTED, "a": ((3, 5), torch.float16)},
}


@pytest.mark.parametrize("wanted", OTHERS.values(), ids=OTHERS)
def test_workers_with_other_checkpoints_do_not_read_each_others_weights(
    wanted: dict[str, tuple[tuple[int, ...], torch.dtype]],
) -> None:
    copy = HostCopy(CONTENT)
    with pytest.raises(LocalError, match="other tensors"):
        HostView(Content(wanted, {}), copy.path)


def test_the_memory_lies_in_no_folder() -> None:
    copy = HostCopy(CONTENT)
    assert not list(Path("/dev/shm").glob("*syncgroup-weights*"))  # noqa: S108 it is only looked at
    assert Path(copy.path).exists()
    copy.close()
    assert not Path(copy.path).exists()
