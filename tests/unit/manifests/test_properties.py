"""Properties of injection over templates that users might write, and over templates that nobody should."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sync_runtime.contract import names
from syncgroup_operator.manifests import shapes
from syncgroup_operator.manifests.injection import injected
from syncgroup_operator.manifests.inputs import pod_inputs
from syncgroup_operator.manifests.parts import part_of
from syncgroup_operator.manifests.pods import pod, template_hashes
from syncgroup_operator.manifests.problems import problems_of
from tests.support.examples import examples
from tests.unit.manifests.samples import EU_SEAT, EXTRAS, IMAGE, LIBRARY, UID, clusters, group, observation

pytestmark = pytest.mark.timeout(60)
Document = dict[str, Any]

words = st.sampled_from(["a", "b", "engine", "gpu", "x-1"])
anything: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, False, 0, -1, 7443, 2**60, 0.5, "", "a", names.RUN_DIR, names.RUN_VOLUME, "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.just("name"), inner, max_size=3),
    max_leaves=6,
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    """An object with some of these fields, any of them null at times."""
    return st.fixed_dictionaries({}, optional={key: st.none() | value for key, value in fields.items()})


def named(least: int = 0, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Document]]:
    """A list of objects with different names."""
    items = st.tuples(words, some(**fields)).map(lambda pair: {"name": pair[0], **pair[1]})
    return st.lists(items, min_size=least, max_size=3, unique_by=lambda item: str(item["name"]))


def containers(least: int = 0) -> st.SearchStrategy[list[Document]]:
    variables = st.sampled_from(["A", "HOME", "SYNCGROUP_OTHER"]).map(lambda name: {"name": name, "value": "x"})
    return named(
        least,
        image=st.just("registry.example/engine:1"),
        command=st.just(["python"]),
        env=st.lists(variables, max_size=2, unique_by=lambda item: item["name"]),
        ports=st.sampled_from([80, 7444]).map(lambda number: [{"containerPort": number, "name": "web"}]),
        volumeMounts=st.tuples(words, st.sampled_from(["/data", "/run", "/opt/syncgroup"])).map(
            lambda pair: [{"name": pair[0], "mountPath": pair[1]}]
        ),
        resources=some(limits=st.just({"nvidia.com/gpu": 1}), claims=st.just([{"name": "gpu"}])),
        securityContext=some(runAsUser=st.sampled_from([0, 1000])),
    )


def templates() -> st.SearchStrategy[Document]:
    """Templates as users write them, nearly all without a problem."""
    spec = some(
        initContainers=containers(),
        volumes=named(emptyDir=st.just({})),
        nodeSelector=st.dictionaries(words, words, max_size=2),
        affinity=some(
            nodeAffinity=some(
                preferredDuringSchedulingIgnoredDuringExecution=st.just([{"weight": 1, "preference": {}}]),
                requiredDuringSchedulingIgnoredDuringExecution=st.just({"nodeSelectorTerms": []}),
            ),
            podAntiAffinity=st.just({}),
        ),
        topologySpreadConstraints=st.just([{"topologyKey": "kubernetes.io/hostname", "maxSkew": 2}]),
        securityContext=some(runAsUser=st.just(7), fsGroup=st.just(9)),
        automountServiceAccountToken=st.booleans(),
        shareProcessNamespace=st.just(True),
        hostPID=st.booleans(),
        hostNetwork=st.just(False),
        serviceAccountName=st.just("default"),
        tolerations=st.just([{"operator": "Exists"}, {"key": None}]),
        runtimeClassName=words,
    )
    whole = st.tuples(containers(least=1), spec).map(lambda pair: {**pair[1], "containers": pair[0]})
    metadata = some(
        labels=st.dictionaries(words, words, max_size=2),
        annotations=st.dictionaries(words, words, max_size=2),
        creationTimestamp=st.none(),
    )
    return st.fixed_dictionaries({"spec": whole}, optional={"metadata": metadata})


runtimes = some(
    library=st.sampled_from(["Mount", "PythonPath", "None"]),
    storage=st.sampled_from([{}, {"type": "PersistentVolumeClaim"}]),
).map(lambda found: {key: value for key, value in found.items() if value is not None})
accesses = st.sampled_from(["InProcess", "InProcess", "CudaIpc"])
SHARING = clusters(frankfurt={"shares_devices": True}, local={"shares_devices": True})


def keeps(theirs: Any, ours: Any) -> bool:
    """Whether everything in `theirs` is in `ours`, unchanged and in the same order; null means absent."""
    if isinstance(theirs, Mapping):
        given = {key: value for key, value in theirs.items() if value is not None}
        return isinstance(ours, Mapping) and all(
            key in ours and keeps(value, ours[key]) for key, value in given.items()
        )
    if isinstance(theirs, list):
        rest = iter(ours)
        return all(any(keeps(item, candidate) for candidate in rest) for item in theirs)
    return bool(theirs == ours)


@settings(max_examples=examples(100))
@given(template=templates(), runtime=runtimes, access=accesses, avoid=st.lists(words, max_size=2, unique=True))
def test_a_template_without_a_problem_becomes_a_pod_that_keeps_all_of_it(
    template: Document, runtime: Document, access: str, avoid: list[str]
) -> None:
    of = group(rollout={"template": template}, runtime=runtime, sync={"gpuAccess": access})
    seen = observation(of, SHARING)
    # One kind of problem is left, a GPU to share without a claim; were there more, hypothesis would complain.
    assume(not any(problem.field.startswith("spec.rollouts") for problem in problems_of(seen)))
    made = pod(seen, EU_SEAT, EXTRAS)
    assert made is not None
    assert keeps(of.spec.rollouts[0].template.spec, made["spec"])
    assert keeps(of.spec.rollouts[0].template.metadata, made["metadata"])
    part = part_of(of.spec, "eu")
    assert part is not None
    inputs = pod_inputs(
        of, UID, part, 0, EU_SEAT.place, namespace="n", default_image=IMAGE, library=LIBRARY,
        avoid_nodes=tuple(avoid), select_region=True,
    )  # fmt: skip
    once = injected(inputs, part.template.spec)
    assert injected(inputs, once) == once
    assert shapes.template_misfits({}, once) == ()


@st.composite
def hostile_templates(draw: st.DrawFn) -> Document:
    """Templates with anything anywhere: in place of a field that is looked at, or deep inside one."""
    spec: Document = {"containers": [{"name": "engine"}]}
    for key in draw(st.lists(st.sampled_from(sorted(shapes.POD_SPEC)), max_size=3)):
        spec[key] = draw(anything)
    if draw(st.booleans()):
        field = draw(st.sampled_from(["env", "ports", "volumeMounts", "resources", "securityContext", "name"]))
        spec["containers"] = [{"name": "engine", field: draw(anything)}, draw(anything)]
    metadata = draw(st.dictionaries(st.sampled_from(["labels", "annotations", "name"]), anything, max_size=2))
    return {"spec": spec, "metadata": metadata}


@settings(max_examples=examples(100))
@given(template=hostile_templates(), access=accesses)
def test_whatever_stands_in_a_template_ends_in_problems_or_in_a_pod(template: Document, access: str) -> None:
    of = group(rollout={"template": template}, sync={"gpuAccess": access})
    seen = observation(of, SHARING)
    problems = problems_of(seen)
    assert all(problem.reason and problem.field.startswith("spec.") and problem.message for problem in problems)
    template_hashes(of, UID, IMAGE, LIBRARY)
    if not any(problem.field.startswith("spec.rollouts") for problem in problems):
        assert pod(seen, EU_SEAT, EXTRAS) is not None


quantities = st.from_regex(
    r"^([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$", fullmatch=True
).filter(lambda text: text.isascii() and len(text) <= 32)


@settings(max_examples=examples(100))
@example(request=0, limit="0E1000000000000000000")
@given(request=quantities | st.integers(0, 2**53 - 1), limit=quantities | st.integers(0, 2**53 - 1))
def test_any_quantity_that_the_contract_allows_can_be_judged(request: int | str, limit: int | str) -> None:
    resources = {"requests": {"memory": request}, "limits": {"memory": limit}}
    problems_of(observation(group(runtime={"resources": resources})))
