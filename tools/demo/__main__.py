"""`make demo`: three regions, a group under the operator, pods that share weights over shaped links; then all is gone.

Where real nodes are impossible it says why and shows what control planes alone can.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.demo import operated, pods, probe
from tools.devcluster import client, hostcheck, runtimeimage
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle
from tools.devcluster.config import ClusterConfig, Level, parse_link, parse_regions
from tools.errors import ToolError

HERE = Path(__file__).parent
CRDS = HERE.parents[1] / "crds"
LINKS = {
    ("us-east", "eu-west"): "80ms/200M/0%",
    ("us-east", "ap-south"): "180ms/100M/0%",
    ("eu-west", "ap-south"): "130ms/100M/0%",
}
BAD_EXAMPLE = CRDS / "examples" / "bad" / "sync-streams-min-above-max.yaml"


def say(text: str = "") -> None:
    """One line for the person who watches."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Says what happens and, at the end, how long it took."""
    say(f"• {text} …")
    started = time.monotonic()
    yield
    say(f"  done in {time.monotonic() - started:.1f} s")


def main() -> int:
    """Run the demo; 0 when everything it claims was seen."""
    started = time.monotonic()
    reason = hostcheck.why_impossible(Level.NODES)
    level = Level.NODES if reason is None else Level.PLANES
    if reason is not None:
        say(f"{reason}\nShowing what control planes alone can do.\n")
    regions = parse_regions("us-east,eu-west,ap-south")
    shapes = [parse_link(f"{a}:{b}={shape}", regions) for (a, b), shape in LINKS.items()]
    with tempfile.TemporaryDirectory(prefix="syncgroup-demo-") as folder:
        config = ClusterConfig(
            directory=Path(folder) / "cluster",
            level=level,
            regions=regions,
            links=tuple(shapes) if level is Level.NODES else (),
            kwok_nodes=0 if level is Level.NODES else 2,
        )
        try:
            _show(_with_runtime(config, Path(folder)) if level is Level.NODES else config)
        except ToolError as error:
            sys.stderr.write(f"error: {error}\n")
            return 2
    say(f"\nAll of it is gone again. The demo took {time.monotonic() - started:.0f} s.")
    return 0


def _with_runtime(config: ClusterConfig, folder: Path) -> ClusterConfig:
    """The same cluster, whose nodes have the runtime's image."""
    archive = folder / "runtime.tar"
    with step("the runtime's image, made of this machine's Python (longer the first time)"):
        runtimeimage.build(archive)
    return config.with_images((str(archive),))


def _show(config: ClusterConfig) -> None:
    with step("three regions, each a real Kubernetes built from source"):
        cluster = client.start(config, die_with_caller=True, say=lambda text: say(f"  {text}"))
    try:
        hub = next(iter(cluster.regions.values()))
        with step("the custom resources and a group: kubectl apply"):
            group = operated.load(HERE / "group.yaml")
            _apply_group(hub, operated.runnable(group, hub.name) if config.level is Level.NODES else group)
        if config.level is Level.NODES:
            _show_links(cluster)
            _show_group(cluster, hub)
        else:
            _show_planes(hub)
    finally:
        with step("taking everything down"):
            cluster.down()


def _apply_group(hub: RegionHandle, group: dict[str, Any]) -> None:
    hub.kubectl("apply", "--server-side", "-f", str(CRDS))
    hub.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    hub.kubectl("apply", "-f", "-", input=json.dumps(group))
    say(_indent(hub.kubectl("get", "syncgroups").stdout))
    expected = BAD_EXAMPLE.read_text().splitlines()[0].removeprefix("# refused: ")
    bad = hub.kubectl("apply", "-f", str(BAD_EXAMPLE), check=False)
    if bad.returncode == 0 or expected not in bad.stderr:
        raise ToolError(f"{BAD_EXAMPLE.name} must be refused with {expected!r}; kubectl said: {bad.stderr.strip()}")
    say(f"  a mistake is refused at once: {expected}")


def _show_links(cluster: Cluster) -> None:
    with step("a member with a native sidecar in each region, talking to the others"):
        addresses = {name: _load_balancer(handle) for name, handle in cluster.regions.items()}
        for name, handle in cluster.regions.items():
            peers = {other: address for other, address in addresses.items() if other != name}
            handle.kubectl("apply", "-f", "-", input=json.dumps(pods.pod(peers)))
        measured = {name: _measurements(handle) for name, handle in cluster.regions.items()}
    say("\n  link                    asked for            measured by the pods")
    for (a, b), shape in LINKS.items():
        rtt, rate, _ = shape.split("/")
        seen = measured[a][b]
        asked = f"{rtt:>6} {rate + 'bit/s':>11}"
        say(f"  {a + ' ↔ ' + b:22}  {asked}    {seen['rtt_ms']:>6} ms {seen['mbit_per_s']:>7} Mbit/s")
    say()


def _show_group(cluster: Cluster, hub: RegionHandle) -> None:
    with contextlib.ExitStack() as stack:
        with step("the operator; it may use the other regions: syncgroup cluster register"):
            operated.install(cluster, hub)
            running = stack.enter_context(operated.operator(hub, cluster.config.directory))
        with step("a trainer and two rollouts with the runtime beside them, until all serve"):
            operated.wait_ready(hub, "demo", running)
        for pause_s in (0, 2, 2):
            time.sleep(pause_s)
            say(_indent(hub.kubectl("get", "syncgroups").stdout))
        told = operated.sums(cluster)
    shared = set.intersection(*(set(one) for one in told.values())) - {0}
    if not shared or any(len({one[seq] for one in told.values()}) != 1 for seq in shared):
        raise ToolError(f"The members do not have the same weights: {told}")
    say(f"  {len(shared)} versions were seen by all {len(told)} members, with the same bits in every one\n")


def _load_balancer(handle: RegionHandle) -> str:
    handle.kubectl("apply", "-f", "-", input=json.dumps(pods.service()))
    path = f"/api/v1/namespaces/default/services/{pods.NAME}"

    def address() -> str | None:
        ingress = handle.api("GET", path)[1].get("status", {}).get("loadBalancer", {}).get("ingress")
        return ingress[0]["ip"] if ingress else None

    wait_until(lambda: address() is not None, f"{handle.name}: an address for the Service", 20)
    return f"{address()}:{probe.PORT}"


def _measurements(handle: RegionHandle) -> dict[str, dict[str, float]]:
    handle.kubectl("wait", "--for=condition=Ready", f"pod/{pods.NAME}", "--timeout=90s")
    text = handle.kubectl("exec", pods.NAME, "-c", "member", "--", "/bin/cat", str(probe.RESULT)).stdout
    result: dict[str, dict[str, float] | str] = json.loads(text)
    seen: dict[str, dict[str, float]] = {}
    for region, figures in result.items():
        if isinstance(figures, str):
            raise ToolError(f"{handle.name} could not reach {region}: {figures}")
        seen[region] = figures
    return seen


def _show_planes(hub: RegionHandle) -> None:
    with step("a hundred pods on nodes that kwok invents"):
        hub.kubectl("create", "deployment", "many", "--image=registry.example/any:1", "--replicas=100")
        hub.kubectl("wait", "--for=condition=Available", "deployment/many", "--timeout=90s")
        say(_indent(hub.kubectl("get", "deployments").stdout))


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.rstrip().splitlines())


if __name__ == "__main__":
    sys.exit(main())
