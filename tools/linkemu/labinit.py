"""The first process of a lab: makes one network namespace per region, then waits for the owner's end.

Runs as pid 1 of its own pid namespace, as root of its own user namespace; when it exits, for whatever reason, the
kernel ends every process of the lab and removes the namespaces. Standard library only and no import from this project:
it is run as a file, by a path. It knows names, not links or addresses.

argv[1]: {"regions": [names], "veth": bool, "mtu_bytes": int, "owner_fd": int}; answers one line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys

_FEW_CORES = 2
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _ip(commands: list[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands) + "\n", text=True, check=True, capture_output=True)


def _new_namespace() -> int:
    """A network namespace that lives as long as the descriptor; this process is inside afterwards."""
    _call("unshare", _CLONE_NEWNET)
    _spread_receiving()
    _ip(["link set lo up"])
    return os.open("/proc/self/ns/net", os.O_RDONLY)


def cpu_mask(cores: set[int]) -> str:
    """As the kernel writes it: words of 32 cores, the highest first."""
    mask = sum(1 << core for core in cores)
    return ",".join(f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(32 * (max(cores) // 32), -1, -32))


def _spread_receiving() -> None:
    """Let all cores take in what the region receives; otherwise the emulator's own does it, inside every send.

    On two cores there is nothing to spread to. A kernel without the switch carries less, and the emulator's account of
    its own lateness says so.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) > _FEW_CORES:
        with contextlib.suppress(OSError), open("/proc/sys/net/core/rps_default_mask", "w") as switch:
            switch.write(cpu_mask(cores))


def make_regions(names: list[str], *, veth: bool, mtu_bytes: int, pid: int) -> dict[str, int]:
    """One namespace per region, each with its end `eth0` of a veth whose other end `wan-NAME` stays here."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    regions = {name: _new_namespace() for name in names}
    _call("setns", home, _CLONE_NEWNET)
    _ip(["link set lo up"])
    for name, fd in regions.items() if veth else ():
        peer = f"peer name eth0 mtu {mtu_bytes} netns /proc/{pid}/fd/{fd}"
        # No IPv6 address here: the kernel's own greetings would reach the regions past the emulator.
        _ip([f"link add wan-{name} mtu {mtu_bytes} type veth {peer}", f"link set wan-{name} addrgenmode none up"])
    return regions


def main() -> int:
    """Set up, say so, wait."""
    wanted = json.loads(sys.argv[1])
    pid = int(os.readlink("/proc/self"))  # our number where /proc was mounted: outside
    try:
        regions = make_regions(wanted["regions"], veth=wanted["veth"], mtu_bytes=wanted["mtu_bytes"], pid=pid)
    except subprocess.CalledProcessError as error:
        answer: dict[str, object] = {"error": f"ip failed: {error.stderr.strip()}"}
    except OSError as error:
        answer = {"error": str(error)}
    else:
        answer = {"pid": pid, "regions": regions}
    os.write(1, json.dumps(answer).encode() + b"\n")
    if "error" in answer:
        return 1
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the lab are ours; the kernel reaps them so
    poller = select.poll()
    poller.register(wanted["owner_fd"], select.POLLIN)
    poller.poll()
    return 0


if __name__ == "__main__":
    sys.exit(main())
