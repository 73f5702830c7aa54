"""What works, or fails with a good sentence, without a cluster: inject, kubeconfigs, completion, trace backends."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from sync_runtime.contract.names import RUNTIME_CONTAINER
from syncgroup import completion
from syncgroup.cli import SUBCOMMANDS, main
from syncgroup.commands import trace
from syncgroup.errors import CommandError
from tests.support.groups import free_port
from tests.unit.kubectl.samples import group

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "mine", "labels": {"app": "engine"}},
    "spec": {"containers": [{"name": "engine", "image": "registry.example/engine:1"}]},
}
ON_THE_CLUSTER = [
    ("top",),
    ("why", "grpo"),
    ("links", "grpo"),
    ("replace", "near-0"),
    ("scrub", "grpo"),
    ("trace", "grpo"),
]


def write(folder: Path, name: str, *documents: Any) -> str:
    path = folder / name
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def kubeconfig(folder: Path, server: str, **more: Any) -> str:
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "rl"}}],
        **more,
    }  # fmt: skip
    return write(folder, "kubeconfig", document)


# --- inject ----------------------------------------------------------------------------------------------------------


def test_inject_prints_the_pod_that_the_operator_would_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inject", "-f", write(tmp_path, "pod.yaml", POD)]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert RUNTIME_CONTAINER in [one["name"] for one in made["spec"]["initContainers"]]
    assert made["spec"]["containers"][0]["image"] == "registry.example/engine:1"
    assert made["metadata"]["labels"]["app"] == "engine"


def test_inject_takes_the_template_of_a_workload_and_the_settings_of_a_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": POD["spec"]}}}
    settings = group(status=None, spec={"runtime": {"library": "PythonPath"}}).to_document()
    words = ["-f", write(tmp_path, "pod.yaml", workload), "--group", write(tmp_path, "group.yaml", settings)]
    assert main(["inject", *words, "--role", "eu", "-o", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert "PYTHONPATH" in [one["name"] for one in made["spec"]["containers"][0]["env"]]
    assert made["metadata"]["labels"]["syncgroup.dev/role"] == "eu"


def test_inject_shows_what_is_added_as_a_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inject", "-f", write(tmp_path, "pod.yaml", POD), "--diff"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("+") and RUNTIME_CONTAINER in line for line in lines)
    removed = [line for line in lines if line.startswith("-") and not line.startswith("---")]
    assert all("image" in line for line in removed)  # a list's first key gets company; nothing is taken away


def test_inject_refuses_what_the_operator_would_refuse_and_names_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = {**POD, "spec": {**POD["spec"], "hostNetwork": True}}  # type: ignore[dict-item]
    assert main(["inject", "-f", write(tmp_path, "pod.yaml", taken)]) == 2
    assert "template.spec.hostNetwork: two members on one node" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--role", "nobody"], "the group has no rollout nobody: --role must be trainer, near, eu"),
        (["-f", "SERVICE"], "holds no pod: give a Pod, or a workload with spec.template"),
        (["-f", "TWO"], "must hold one Pod or workload, and holds 2"),
    ],
    ids=["role", "no pod", "two"],
)
def test_inject_says_what_is_wrong_with_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    files = {
        "SERVICE": write(tmp_path, "service.yaml", {"apiVersion": "v1", "kind": "Service", "spec": {}}),
        "TWO": write(tmp_path, "two.yaml", POD, POD),
    }
    settings = write(tmp_path, "group.yaml", group(status=None).to_document())
    pod = write(tmp_path, "pod.yaml", POD)
    assert main(["inject", "-f", pod, "--group", settings, *(files.get(word, word) for word in words)]) == 2
    assert said in capsys.readouterr().err


# --- no cluster ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ON_THE_CLUSTER, ids=lambda words: words[0])
def test_without_a_kubeconfig_every_command_says_how_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert f"there is no kubeconfig ({tmp_path}/.kube/config): give --kubeconfig FILE" in said
    assert "Traceback" not in said


def test_an_api_server_that_does_not_answer_is_named_by_its_context(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig(tmp_path, f"https://127.0.0.1:{free_port()}")
    assert main(["why", "grpo", "--kubeconfig", path]) == 2
    said = capsys.readouterr().err
    assert "the API server of context here does not answer" in said
    assert "kubectl config get-contexts" in said


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        ({"current-context": ""}, [], "has no current context"),
        ({}, ["--context", "there"], "the kubeconfig has no context there; it has: here."),
        ({}, ["--kubeconfig", "/nowhere/config"], "there is no kubeconfig /nowhere/config"),
    ],
    ids=["no current", "other", "no file"],
)
def test_a_kubeconfig_that_does_not_fit_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], words: list[str], said: str
) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", **change)
    assert main(["top", "--kubeconfig", path, *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["- a list", "a: [", "\ufffe"])
def test_a_file_that_is_no_kubeconfig_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert main(["top", "--kubeconfig", str(path)]) == 2
    assert f"the kubeconfig {path} " in capsys.readouterr().err


def test_a_bad_mapping_of_clusters_to_contexts_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig(tmp_path, f"https://127.0.0.1:{free_port()}")
    assert main(["why", "grpo", "--kubeconfig", path, "--remote", "eu"]) == 2
    assert "--remote eu: give CLUSTER=CONTEXT" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["scrub", "grpo"], ["replace", "near-0"]], ids=lambda words: words[0])
def test_an_id_that_no_api_server_takes_is_refused_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    path = kubeconfig(tmp_path, f"https://127.0.0.1:{free_port()}")
    assert main([*words, "--kubeconfig", path, "--id", "Not.An.Id"]) == 2
    assert "--id Not.An.Id must be at most 63 lower-case letters" in capsys.readouterr().err


def test_a_version_that_is_no_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["trace", "grpo", "newest"])
    assert "'newest' is no version" in capsys.readouterr().err


# --- completion ------------------------------------------------------------------------------------------------------


def test_completion_knows_every_command_and_asks_for_no_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main([""]) == 0
    assert capsys.readouterr().out.split() == [*sorted(SUBCOMMANDS), ":4"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["wh"], ["why"]),
        (["top", "--o"], ["--once", "--output"]),
        (["top", "-o", ""], ["json", "wide", "yaml"]),
        (["nonsense", ""], []),
        (["version", ""], []),
    ],
)
def test_completion_of_words_that_need_no_cluster(words: list[str], found: list[str]) -> None:
    assert completion.completed(words) == (found, completion.NO_FILES)


def test_completion_of_a_file_leaves_it_to_the_shell() -> None:
    assert completion.completed(["inject", "-f", ""]) == ([], completion.FILES)


def test_completion_without_a_cluster_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    assert completion.main(["why", ""]) == 0
    assert capsys.readouterr() == (":4\n", "")


# --- backends of traces ----------------------------------------------------------------------------------------------


class Backend(http.server.BaseHTTPRequestHandler):
    """Answers as it is told."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"{}")

    def do_GET(self) -> None:
        self.send_response(self.answer[0])
        self.end_headers()
        self.wfile.write(self.answer[1])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def backend() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("telemetry", "given", "base"),
    [
        ({"endpoint": "http://otel:4318"}, None, "http://otel:16686"),
        ({"endpoint": "https://[fd00::1]:4318"}, None, "http://[fd00::1]:16686"),
        ({"endpoint": "http://otel:4318", "queryEndpoint": "https://traces/jaeger/"}, None, "https://traces/jaeger"),
        ({"queryEndpoint": "https://traces/"}, "http://127.0.0.1:1", "http://127.0.0.1:1"),
    ],
)
def test_the_backend_is_the_one_given_or_that_of_the_group(
    telemetry: dict[str, str], given: str | None, base: str
) -> None:
    assert trace.backend_of(group(spec={"telemetry": telemetry}), given) == base


def test_a_group_without_telemetry_and_a_backend_that_is_no_url_are_sentences() -> None:
    with pytest.raises(CommandError, match=r"sends no traces: set spec\.telemetry\.endpoint"):
        trace.backend_of(group(), None)
    with pytest.raises(CommandError, match="must be a URL such as"):
        trace.backend_of(group(), "file:///etc/passwd")


@pytest.mark.parametrize(
    ("answer", "said"),
    [((404, b""), "answers 404: is it a Jaeger query API"), ((200, b"<html>"), "something that is no JSON")],
    ids=["404", "html"],
)
def test_a_backend_that_is_something_else_is_told(backend: str, answer: tuple[int, bytes], said: str) -> None:
    Backend.answer = answer
    with pytest.raises(CommandError, match=said):
        trace.fetched(backend, "/api/traces")


def test_a_backend_that_is_away_comes_with_the_way_to_one_inside_a_cluster() -> None:
    with pytest.raises(CommandError, match="kubectl port-forward"):
        trace.fetched(f"http://127.0.0.1:{free_port()}", "/")


def test_what_the_backend_answers_is_parsed(backend: str) -> None:
    Backend.answer = (200, b'{"data": []}')
    assert trace.fetched(backend, "/api/traces") == {"data": []}
