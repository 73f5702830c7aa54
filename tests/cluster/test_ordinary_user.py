"""An ordinary user, with no further ids and no root, gets real nodes by the same code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ordinary_user
from tools.cache import cache_root
from tools.devcluster.hostpython import REPOSITORY

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(180)]

SCRIPT = """
import json, os, sys
from pathlib import Path
from tests.support import pods
from tools.devcluster import client
from tools.devcluster.config import ClusterConfig, Level, parse_regions

config = ClusterConfig(directory=Path(sys.argv[1]), level=Level.NODES, regions=parse_regions("1"))
cluster = client.start(config, die_with_caller=True)
handle = cluster.regions["us-east"]
context = {"runAsUser": 4321, "runAsNonRoot": True, "fsGroup": 4321}
pod = pods.web_pod("web", securityContext=context)
pod["spec"]["containers"][0]["securityContext"] = {"runAsUser": 1234, "runAsGroup": 1234}
pod["spec"]["initContainers"][0]["securityContext"] = {"runAsNonRoot": True}
pods.create(handle, pod)
handle.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
inside = handle.kubectl("exec", "web", "-c", "main", "--", "/usr/bin/id", "-u").stdout.strip()
cluster.down()
left = sorted(path.name for path in Path(sys.argv[1]).iterdir())
print(json.dumps({"outside": os.getuid(), "inside": inside, "left": left}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="run as an ordinary user, every other test here shows the same")
def test_real_nodes_without_root(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cache = home / ".cache" / "syncgroup"
    cache.mkdir(parents=True)
    (cache / "tools").symlink_to(cache_root() / "tools")  # the programs are root's, all else is the user's own
    for path in (tmp_path, home, cache.parent, cache):
        path.chmod(0o777)
    keep = [Path(sys.prefix), Path(sys.base_prefix), cache_root(), REPOSITORY, tmp_path]
    line = ordinary_user.command([sys.executable, "-c", SCRIPT, str(home / "cluster")], keep)
    environment = os.environ | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(cache.parent),
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {"outside": ordinary_user.UID, "inside": "0", "left": ["lock", "logs"]}
