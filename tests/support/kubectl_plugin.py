"""`kubectl syncgroup` as a person types it: the real kubectl, which finds the plug-in and its completion on PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.devcluster.client import RegionHandle

_ENTRIES = {"kubectl-syncgroup": "syncgroup.cli", "kubectl_complete-syncgroup": "syncgroup.completion"}


class Person:
    """Somebody with a kubeconfig and the plug-in on PATH."""

    def __init__(self, region: RegionHandle, folder: Path, kubeconfig: Path) -> None:
        self.kubectl = region.cluster.tools["kubectl"]
        programs = folder / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name, module in _ENTRIES.items():
            script = programs / name
            script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
            script.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{Path(self.kubectl).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(folder),
        }

    def types(self, *words: str, timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
        """`kubectl WORDS`, piped."""
        return subprocess.run(
            [self.kubectl, *words], env=self.environment, capture_output=True, text=True, check=False, timeout=timeout_s
        )

    def syncgroup(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`kubectl syncgroup WORDS`."""
        return self.types("syncgroup", *words)
