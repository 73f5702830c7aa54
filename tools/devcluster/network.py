"""The bubble's network: one namespace per region, a management bridge, and the emulated wide area between them."""

from __future__ import annotations

import asyncio
from typing import Any

from tools.devcluster.config import ClusterConfig, Region
from tools.errors import ClusterError
from tools.linkemu import GATEWAY_ADDRESS, GATEWAY_MAC, Emulator, RegionPort, parse_link

MANAGEMENT = "management"


class Wan:
    """All namespaces and links of one bubble."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._emulator: Emulator | None = None

    async def up(self) -> None:
        """Make the namespaces, then put the emulator between them."""
        await _ip("link", "set", "lo", "up")
        await _ip("link", "add", MANAGEMENT, "type", "bridge")
        await _ip("addr", "add", "10.230.0.1/24", "dev", MANAGEMENT)
        await _ip("link", "set", MANAGEMENT, "up")
        for region in self._config.regions:
            await _make_region(region)
        ports = [
            RegionPort(
                name=region.name,
                interface=_wan_end(region),
                prefixes=region.wan_prefixes,
                mac=region.mac,
                netns=f"/run/netns/{region.name}",
            )
            for region in self._config.regions
        ]
        self._emulator = Emulator.start(ports)
        for a, b, shape in self._config.links:
            for pair in self._pairs(a, b):
                self.shape(*pair, shape)

    def _pairs(self, a: str, b: str) -> list[tuple[str, str]]:
        """Each unordered pair that `a` and `b` (perhaps `*`) stand for."""
        names = [region.name for region in self._config.regions]
        chosen = [(x, y) for x in names for y in names if x < y]
        return [(x, y) for x, y in chosen if (a in (x, "*") and b in (y, "*")) or (a in (y, "*") and b in (x, "*"))]

    def _running(self) -> Emulator:
        if self._emulator is None:
            raise ClusterError("The link emulator does not run yet.")
        return self._emulator

    def shape(self, a: str, b: str, shape: str) -> None:
        """Give the link between two regions a shape, both ways."""
        for name in (a, b):
            self._config.region(name)
        self._running().set_link(a, b, parse_link(shape))

    def cut(self, a: str, b: str) -> None:
        """Nothing passes between two regions."""
        self._running().cut_link(a, b)

    def mend(self, a: str, b: str) -> None:
        """It passes again."""
        self._running().mend_link(a, b)

    def stats(self) -> dict[str, Any]:
        """The emulator's own counters."""
        return dict(self._running().request("stats"))

    async def down(self) -> None:
        """End the emulator; the namespaces go with the bubble."""
        if self._emulator is not None:
            self._emulator.stop()


def _wan_end(region: Region) -> str:
    return f"wan-{region.index}"


async def _make_region(region: Region) -> None:
    name, index = region.name, region.index
    await _ip("netns", "add", name)
    await _ip("link", "add", _wan_end(region), "type", "veth", "peer", "name", "eth0", "netns", name)
    await _ip("link", "add", f"mgmt-{index}", "type", "veth", "peer", "name", "mgmt0", "netns", name)
    await _ip("link", "set", f"mgmt-{index}", "master", MANAGEMENT, "up")
    # The kernel's own IPv6 packets would reach the regions past the emulator.
    await _ip("link", "set", _wan_end(region), "addrgenmode", "none")
    await _ip("link", "set", _wan_end(region), "up")
    inside = ("-n", name)
    await _ip(*inside, "link", "set", "lo", "up")
    await _ip(*inside, "link", "set", "eth0", "address", region.mac, "up")
    await _ip(*inside, "addr", "add", f"{region.node_ip}/32", "dev", "eth0")
    await _ip(*inside, "link", "set", "mgmt0", "up")
    await _ip(*inside, "addr", "add", f"{region.management_ip}/24", "dev", "mgmt0")
    await _ip(*inside, "neigh", "add", GATEWAY_ADDRESS, "lladdr", GATEWAY_MAC, "dev", "eth0", "nud", "permanent")
    await _ip(
        *inside, "route", "add", "default", "via", GATEWAY_ADDRESS, "dev", "eth0", "onlink", "src", region.node_ip
    )
    await _run("nsenter", f"--net=/run/netns/{name}", "--", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")


async def _ip(*arguments: str) -> None:
    await _run("ip", *arguments)


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    if process.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed: {errors.decode(errors='replace').strip()}")
