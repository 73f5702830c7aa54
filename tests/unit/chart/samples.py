"""Values that switch the chart's parts on and off, for tests that look at all of them."""

from __future__ import annotations

from typing import Any

PLAIN: dict[str, Any] = {}
NAMESPACED: dict[str, Any] = {"watchNamespaces": ["post-training", "research"]}
LEAST: dict[str, Any] = {
    "replicas": 1,
    "crds": {"enabled": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "mine"},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "metrics": {"service": {"enabled": False}},
    "topologySpread": {"hostname": "Off", "zone": "Off"},
    "runAsUser": None,
    "runAsGroup": None,
}
MOST: dict[str, Any] = {
    "replicas": 3,
    "image": {"repository": "registry.example/team/operator", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "imagePullSecrets": ["pull"],
    "command": ["python3", "-m", "syncgroup_operator"],
    "runtime": {"image": {"repository": "registry.example/team/runtime", "tag": "v7"}, "libraryHash": "abc123"},
    "watchNamespaces": ["post-training"],
    "settings": {"workers": 3, "election": {"leaseSeconds": 30}},
    "serviceAccount": {"name": "weights", "annotations": {"example.com/role": "weights"}},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"pool": "control"},
    "tolerations": [{"key": "control", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpread": {"hostname": "DoNotSchedule", "zone": "Off"},
    "networkPolicy": {
        "apiServerCIDRs": ["10.0.0.0/8"],
        "metricsFrom": [{"namespaceSelector": {}}],
        "dnsPorts": [53, 5353],
    },
    "metrics": {
        "service": {"annotations": {"example.com/scrape": "yes"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "runbookUrl": "https://wiki.example/r",
        },
        "dashboard": {"enabled": True, "annotations": {"folder": "RL"}},
    },
    "otel": {
        "endpoint": "https://collector.example:4318/otlp",
        "headersSecret": {"name": "otlp"},
        "resourceAttributes": {"deployment.environment": "production"},
        "sampler": "parentbased_traceidratio",
        "samplerArg": 0.25,
    },
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
    "commonLabels": {"team": "rl", "app.kubernetes.io/name": "somebody-else"},
    "podLabels": {"team": "rl-pods"},
    "podAnnotations": {"example.com/note": "yes"},
}
ALL = {"plain": PLAIN, "namespaced": NAMESPACED, "least": LEAST, "most": MOST}
