"""Hypothesis strategies for SyncGroup and SyncCluster documents: valid ones, as a user could write them.

Every field is present in some documents and absent in others, so that defaults meet given values; fields that rules tie
together are drawn together. Words are picked from short lists: what matters is their shape, and drawing letters costs
ten times what the API server does.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]

MIB = 2**20
GIB = 2**30

labels = st.sampled_from(["a", "0", "x1", "a-b", "a--b", "eu", "9-9", "z" * 40])
regions = st.sampled_from(["us-east-1", "us-west-2", "eu-north-1", "x", "y" * 63])
other_clusters = st.sampled_from(["frankfurt", "oregon"])
texts = st.sampled_from(["", "a", "A b", "true", "1", "ä\n", "\u2028😀", "\x00", "null", "x" * 50])
quantities = st.integers(0, 2**40) | st.sampled_from(["500m", "2Gi", "1.5", ".5", "1e3", "3E", "0"])


def documents(
    required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]] | None = None
) -> st.SearchStrategy[Document]:
    """Objects with every required field and some of the optional ones."""
    return st.fixed_dictionaries(required, optional=optional or {})


def templates() -> st.SearchStrategy[Document]:
    """Pod templates; what is in them is nobody's business, nulls and fractions included."""
    values: st.SearchStrategy[Any] = st.sampled_from(
        [None, True, -1, 2**40, 0.5, "a", [], [None, {"a": None}], {}, {"containers": [{}]}]
    )
    opaque = st.dictionaries(texts, values, max_size=2)
    return documents({"spec": opaque}, {"metadata": opaque})


@st.composite
def limits(draw: st.DrawFn, *, low: int, high: int, default_min: int, default_max: int, step: int = 1) -> Document:
    """A `{min, max}` object, either of them left to its default."""
    shape = draw(st.sampled_from(["", "min", "max", "min max"])).split()
    lowest = draw(st.integers(low // step, (high if "max" in shape else default_max) // step)) * step
    highest = draw(st.integers((lowest if "min" in shape else default_min) // step, high // step)) * step
    if shape == ["min", "max"] and draw(st.booleans()):
        highest = lowest
    return {key: value for key, value in (("min", lowest), ("max", highest)) if key in shape}


@st.composite
def exposures(draw: st.DrawFn, *, crosses_clusters: bool) -> Document:
    """How the trainer is reached, given whether anybody in another cluster must reach it."""
    kinds = ["NodePort", "LoadBalancer", "External"] + ([] if crosses_clusters else ["ClusterIP"])
    kind = draw(st.sampled_from(kinds))
    hosts = st.sampled_from(["203.0.113.7", "2001:db8::7", "Trainer.example.com"])
    ports = st.integers(1, 65535)
    annotations = st.dictionaries(texts, texts, max_size=2)
    ranges = st.lists(st.sampled_from(["10.0.0.0/8", "203.0.113.7/32", "2001:db8::/32", "::/0"]), unique=True)
    if kind == "External":
        return {"type": kind, "host": draw(hosts), "port": draw(ports)}
    optional: dict[str, st.SearchStrategy[Any]] = {"port": ports, "annotations": annotations}
    if kind != "ClusterIP":
        optional["host"] = hosts
    if kind == "LoadBalancer":
        optional["sourceRanges"] = ranges
    return draw(documents({"type": st.just(kind)}, optional))


@st.composite
def rollouts(draw: st.DrawFn, *, name: str, crosses_clusters: bool) -> Document:
    """One set of members."""
    clusters = st.just("local") | (other_clusters if crosses_clusters else st.nothing())
    places = documents({"region": regions}, {"cluster": clusters})
    rollout = draw(
        documents(
            {"name": st.just(name), "region": regions, "template": templates()},
            {
                "cluster": clusters,
                "replicas": st.integers(0, 500),
                "size": st.just(1),
                "engine": st.sampled_from(["module", "vllm"]),
                "container": labels,
                "placement": documents(
                    {},
                    {
                        "fallback": st.lists(places, max_size=3, unique_by=_place),
                        "spread": st.sampled_from(["None", "Nodes", "Zones"]),
                    },
                ),
            },
        )
    )
    replicas = rollout.get("replicas", 1)
    if draw(st.booleans()):
        rollout["maxUnavailable"] = draw(st.integers(1, replicas or 1024))
    if "fallback" in rollout.get("placement", {}):
        away = [place for place in rollout["placement"]["fallback"] if _place(place) != _place(rollout)]
        rollout["placement"]["fallback"] = away
    return rollout


def _place(item: Document) -> tuple[str, str]:
    return item.get("cluster", "local"), item["region"]


@st.composite
def syncs(draw: st.DrawFn, *, transport: str | None) -> Document:
    """How weights travel."""
    sync = draw(
        documents(
            {},
            {
                "codec": st.sampled_from(["Auto", "Fast", "Tight"]),
                "anchorEvery": st.integers(0, 1_000_000),
                "gpuAccess": st.sampled_from(["InProcess", "CudaIpc"]),
                "streams": limits(low=1, high=64, default_min=1, default_max=32),
                "bucketBytes": limits(
                    low=65536, high=16 * MIB, default_min=256 * 1024, default_max=8 * MIB, step=65536
                ),
                "retention": documents(
                    {}, {"versions": st.integers(4, 10_000), "bytes": st.integers(64 * MIB, 24 * GIB)}
                ),
            },
        )
    )
    if draw(st.booleans()):
        sync["maxStaleness"] = draw(st.integers(0, sync.get("retention", {}).get("versions", 32)))
    if transport is not None:
        sync["transport"] = transport
    if transport == "ObjectStore":
        sync["objectStore"] = draw(
            documents(
                {"url": st.sampled_from(["s3://a", "gs://b/c", "https://h:9000/b", "file:///tmp/x"])},
                {"secretRef": st.just({"name": "keys.a"}), "prefix": st.sampled_from(["a", "runs/8b/x.y"])},
            )
        )
    return sync


@st.composite
def ways_of_regions(draw: st.DrawFn, rollouts: list[Document], *, has_store: bool) -> list[Document]:
    """Some places of these rollouts with a way of their own; those in other clusters by a store, so that any exposure
    of the trainer will do."""
    fallbacks = [place for one in rollouts for place in one.get("placement", {}).get("fallback", ())]
    places = sorted({_place(item) for item in (*rollouts, *fallbacks)})
    found = []
    for number, (cluster, region) in enumerate(draw(st.lists(st.sampled_from(places), max_size=3, unique=True))):
        way: Document = {"cluster": cluster, "region": region, "transport": "ObjectStore"}
        if cluster == "local" and draw(st.booleans()):
            del way["cluster"]
            way["transport"] = "Streams"
        elif not has_store or draw(st.booleans()):
            secret = {"secretRef": st.just({"name": f"keys-{number}"})}
            way["objectStore"] = draw(documents({"url": st.just(f"s3://of-region-{number}")}, secret))
        found.append(way)
    return found


def leases() -> st.SearchStrategy[Document]:
    """Lease policies whose three times fit each other, whichever are left to their defaults."""
    return documents(
        {},
        {
            "durationSeconds": st.integers(20, 900),
            "renewIntervalSeconds": st.integers(1, 10),
            "lostGraceSeconds": st.integers(900, 604_800),
            "maxConcurrentReplacements": st.integers(1, 1024),
            "maxReplacementsPerHour": st.integers(0, 100_000),
            "onClusterLost": st.sampled_from(["Hold", "Replace"]),
        },
    )


@st.composite
def runtimes(draw: st.DrawFn) -> Document:
    """The injected runtime; its storage always holds the largest retention that `syncs` draws."""
    key = documents({"name": st.just("a.b"), "key": st.just("k_1.x")})
    sources = documents({"secretKeyRef": key}) | documents({"configMapKeyRef": key})
    env_names = st.sampled_from(["A", "_", "a1", "OTEL_X", "SYNCGROUP", "syncgroup_x"])
    env = st.lists(
        documents({"name": env_names, "value": texts}) | documents({"name": env_names, "valueFrom": sources}),
        max_size=3,
        unique_by=lambda item: item["name"],
    )
    resources = st.dictionaries(st.sampled_from(["cpu", "memory", "a/b"]), quantities, max_size=2)
    storage_sizes = {"sizeBytes": st.integers(24 * GIB, 2**50), "sharedMemoryBytes": st.integers(MIB, 64 * GIB)}
    storages = documents({}, {"type": st.just("EmptyDir"), **storage_sizes}) | (
        documents({"type": st.just("PersistentVolumeClaim")}, {"storageClassName": labels, **storage_sizes})
    )
    optional: dict[str, st.SearchStrategy[Any]] = {
        "image": st.sampled_from(["r.example/a:1", "a@sha256:0a", "localhost:5000/x/y"]),
        "imagePullPolicy": st.sampled_from(["Always", "IfNotPresent", "Never"]),
        "resources": documents({}, {"requests": resources, "limits": resources}),
        "env": env,
        "library": st.sampled_from(["Mount", "PythonPath", "None"]),
        "storage": storages,
    }
    return draw(documents({}, optional))


def requests() -> st.SearchStrategy[Document]:
    """Valid requests."""
    return st.one_of(
        documents({"id": labels, "type": st.just("Scrub")}, {}),
        documents({"id": labels, "type": st.just("Replace"), "member": labels}, {}),
    )


@st.composite
def syncgroups(draw: st.DrawFn) -> Document:
    """Valid SyncGroups."""
    transport = draw(st.sampled_from([None, "Streams", "ObjectStore"]))
    crosses = draw(st.booleans())
    names = draw(st.lists(labels.filter(lambda name: name != "trainer"), min_size=1, max_size=4, unique=True))
    trainer = draw(documents({"region": regions, "template": templates()}, {"container": labels}))
    if crosses or draw(st.booleans()):
        trainer["exposure"] = draw(exposures(crosses_clusters=crosses and transport != "ObjectStore"))
    spec: Document = {
        "trainer": trainer,
        "rollouts": [draw(rollouts(name=name, crosses_clusters=crosses)) for name in names],
    }
    if transport or draw(st.booleans()):
        spec["sync"] = draw(syncs(transport=transport))
        ways = draw(ways_of_regions(spec["rollouts"], has_store=transport == "ObjectStore"))
        spec["sync"] |= {"regions": ways} if ways else {}
    small = {
        "suspend": st.booleans(),
        "managedBy": st.sampled_from(["syncgroup.dev/operator", "kueue.x-k8s.io/multikueue"]),
        "lease": leases(),
        "requests": st.lists(requests(), max_size=3, unique_by=lambda one: str(one["id"])),
        "runtime": runtimes(),
        "work": documents(
            {},
            {
                "mode": st.sampled_from(["Disabled", "Leased"]),
                "leaseSeconds": st.integers(1, 86_400),
                "maxInflightPerWorker": st.integers(1, 4096),
                "maxAttempts": st.integers(1, 1000),
                "maxPayloadBytes": st.integers(1024, 64 * MIB),
            },
        ),
        "telemetry": documents(
            {},
            {
                "endpoint": st.sampled_from(["http://a:4318", "https://[::1]:4318/v1/traces"]),
                "queryEndpoint": st.sampled_from(["http://a:16686", "https://traces.example/jaeger"]),
                "sampledMembersPerRegion": st.integers(0, 64),
            },
        ),
    }
    return document("SyncGroup", spec | draw(documents({}, small)))


def syncclusters() -> st.SearchStrategy[Document]:
    """Valid SyncClusters."""
    namespaces = st.lists(
        documents(
            {"local": labels, "remote": labels.filter(lambda name: not name.startswith("kube-"))},
            {"serviceAccounts": st.lists(labels, max_size=3, unique=True)},
        ),
        max_size=3,
        unique_by=lambda item: item["local"],
    )
    secret = documents({"name": labels}, {"key": st.sampled_from(["kubeconfig", "a.b"])})
    specs = documents({"kubeconfigSecretRef": secret, "region": regions}, {"allowedNamespaces": namespaces})
    return specs.map(lambda spec: document("SyncCluster", spec))


def document(kind: str, spec: Document) -> Document:
    """A resource with a name that is good for both kinds."""
    return {"apiVersion": "syncgroup.dev/v1alpha1", "kind": kind, "metadata": {"name": "sample"}, "spec": spec}
