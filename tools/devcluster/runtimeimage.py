"""The runtime's image for real nodes, made of this machine's interpreter and packages: no registry, no Docker.

What the operator adds to pods runs from an image, so mounts of the host (`hostpython`) cannot serve it. Interpreter and
packages become one layer, made once per set of versions and kept in the cache, compiled; this checkout's own code is
another on top. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.cache import cache_root, exclusive, platform_tag, replacing
from tools.devcluster import images
from tools.devcluster.hostpython import REPOSITORY
from tools.errors import HostError

REFERENCE = "syncgroup.local/runtime:dev"
PACKAGES = ("sync_runtime", "syncgroup")
EXTRA = "sidecar"
PREFIX = Path("usr/local")
"""Where Python is in the image; it finds its library from there whatever prefix it was built for."""
LOOPS = "loops"
HIDDEN = "/tmp"  # noqa: S108 where pods have that volume
LOOPS_PLACE = "/tmp/loops"  # noqa: S108 the sidecar's own volume; numba wants to write where it reads
ENVIRONMENT = {
    "LD_LIBRARY_PATH": f"/{PREFIX}/lib",
    "NUMBA_CACHE_DIR": LOOPS_PLACE,
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
SCRIPT = """\
#!{python}
import os, shutil, sys
if sys.argv[1:2] == ["sidecar"] and os.path.isdir("{loops}"):
    shutil.copytree("{loops}", "{place}", dirs_exist_ok=True)
from syncgroup.cli import main
sys.exit(main())
"""
COMPILE_LOOPS = "from sync_runtime.offline.selfcheck import codec_sentence; codec_sentence()"
KEPT_S = 7 * 24 * 3600.0
STAGED_BY = "5"
"""Raised when what is staged changes: the cache then holds nothing of that name."""
LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "idlelib", "lib2to3", "tkinter", "ensurepip", "turtledemo"}
)
# Libraries that glibc loads by name at run time, so that no program says that it needs them.
LOADED_BY_NAME = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")


def build(target: Path) -> None:
    """Write `target`, an OCI archive of the runtime as it is in this checkout."""
    code = checkout()
    below = base_layer().read_bytes()
    with tempfile.TemporaryDirectory(prefix="runtime-image-") as holder:
        root = Path(holder)
        # Below the sidecar's own volume nothing of the image is seen; then loops are compiled in the pod.
        place = Path("/") / packages_folder() if code.is_relative_to(HIDDEN) else code
        shutil.copytree(code, root / place.relative_to("/"))
        (root / packages_folder()).mkdir(parents=True, exist_ok=True)
        (root / packages_folder() / "checkout.pth").write_text(f"{code}\n")
        program = root / PREFIX / "bin" / "syncgroup"
        program.parent.mkdir(parents=True)
        program.write_text(
            SCRIPT.format(python=f"/{PREFIX}/bin/{python_name()}", loops=place / LOOPS, place=LOOPS_PLACE)
        )
        program.chmod(0o755)
        make_readable(root)
        images.pack(
            root, target, reference=REFERENCE, entrypoint=["syncgroup"], environment=ENVIRONMENT, below=[below],
        )  # fmt: skip


def checkout() -> Path:
    """This checkout's packages, staged under a name made of their content, where the image has them too.

    Numba believes a compiled loop by path, size and time of its source: so loops that were compiled here with
    NUMBA_CACHE_DIR set to the folder `loops` beside the packages serve in the image.
    """
    whole = hashlib.sha256(STAGED_BY.encode())
    files = sorted(path for name in PACKAGES for path in (REPOSITORY / name).rglob("*") if path.suffix != ".pyc")
    for path in files:
        if path.is_file():
            whole.update(f"{path.relative_to(REPOSITORY)}:{path.stat().st_size}:".encode())
            whole.update(path.read_bytes())
    folder = cache_root() / "images" / platform_tag() / f"runtime-code-{whole.hexdigest()[:16]}"
    if not folder.exists():
        with exclusive(folder.parent / ".code-lock"):
            _stage_code(folder)
    return _used(folder)


def _stage_code(folder: Path) -> None:
    """Unless somebody else did meanwhile: a second staging would take away the folder that the first one works in."""
    if folder.exists():
        return
    with replacing(folder) as staged:
        for name in PACKAGES:
            shutil.copytree(REPOSITORY / name, staged / name, ignore=shutil.ignore_patterns("__pycache__"))
        compile_below(staged, staged, str(folder))
        for path in staged.rglob("*"):
            os.utime(path, (0, 0))  # as `images` packs it


def compile_loops() -> None:
    """The CPU codec's loops for this checkout, unless that was done: a sidecar in a pod then starts in a moment.

    As our real images do it (`images/finish.py`): small weights through every codec.
    """
    code = checkout()
    loops = code / LOOPS
    with exclusive(code.parent / ".loops-lock"):
        if loops.exists():
            return
        with replacing(loops) as staged:
            staged.mkdir()
            environment = os.environ | {"PYTHONPATH": str(code), "NUMBA_CACHE_DIR": str(staged)}
            subprocess.run([sys.executable, "-c", COMPILE_LOOPS], cwd=code, env=environment, check=True)


def _used(path: Path) -> Path:
    """Notes that something in the cache is of use, and forgets what was not for a long time."""
    with contextlib.suppress(OSError):  # the cache may be somebody else's, and read-only
        path.touch()
        for other in path.parent.glob("runtime-*"):
            if time.time() - other.stat().st_mtime > KEPT_S:
                shutil.rmtree(other, ignore_errors=True) if other.is_dir() else other.unlink(missing_ok=True)
    return path


def needed(extra: str = EXTRA) -> list[importlib.metadata.Distribution]:
    """The distributions behind one extra of this project, with all that they need, by name."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    waiting = list(project["optional-dependencies"][extra])
    found: dict[str, importlib.metadata.Distribution] = {}
    while waiting:
        name = re.split(r"[^A-Za-z0-9._-]", waiting.pop(), maxsplit=1)[0]
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # needed on other systems only, or this environment would not work either
        waiting += [line for line in found[key].requires or () if "extra ==" not in line]
    return [found[key] for key in sorted(found)]


def base_layer() -> Path:
    """The layer with interpreter, packages and libraries; made once per set of versions."""
    distributions = needed()
    versions = [f"{one.metadata['Name']} {one.version}" for one in distributions]
    text = "\n".join([STAGED_BY, sys.version, sys.base_prefix, *versions])
    name = f"runtime-{hashlib.sha256(text.encode()).hexdigest()[:16]}.layer.tar"
    layer = cache_root() / "images" / platform_tag() / name
    if not layer.exists():  # asked before the lock: a whole cache may be someone else's, and read-only
        with exclusive(layer.parent / ".runtime-lock"):
            if not layer.exists():
                with replacing(layer) as staged, tempfile.TemporaryDirectory(prefix="runtime-base-") as root:
                    _stage(Path(root), distributions)
                    staged.write_bytes(images.layer_of(Path(root)))
    return _used(layer)


def _stage(root: Path, distributions: Iterable[importlib.metadata.Distribution]) -> None:
    for name in ("tmp", "proc", "dev", "sys", "etc", "run", "var/lib", f"{PREFIX}/bin"):
        (root / name).mkdir(parents=True, exist_ok=True)
    program = root / PREFIX / "bin" / python_name()
    shutil.copy2(os.path.realpath(sys.executable), program)
    library = root / PREFIX / "lib" / python_name()
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=lambda _folder, found: _unwanted(found))
    for distribution in distributions:
        copy_distribution(distribution, root / packages_folder())
    _copy_libraries(root, [program, *root.rglob("*.so"), *root.rglob("*.so.*")])
    compile_below(library, root, "/")
    make_readable(root)


def copy_distribution(distribution: importlib.metadata.Distribution, target: Path) -> None:
    """The files of an installed distribution, without its tests."""
    for file in distribution.files or ():
        if ".." in file.parts or "__pycache__" in file.parts or "tests" in file.parts:
            continue
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / file)


def _copy_libraries(root: Path, programs: list[Path]) -> None:
    """Every library that the dynamic linker would load, where it finds it; the interpreter's own beside it."""
    for source in sorted({*_linked(programs), *_by_name()}):
        inside = source.is_relative_to(sys.base_prefix) and sys.base_prefix not in ("/", "/usr")
        target = root / PREFIX / "lib" / source.name if inside else root / source.relative_to("/")
        if source.is_relative_to(root) or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(os.path.realpath(source), target)


def _linked(programs: list[Path]) -> Iterator[Path]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(Path(sys.base_prefix) / "lib")}
    command = ["ldd", *map(str, programs)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError as error:
        raise HostError("the program `ldd` is missing; it comes with the C library's development tools.") from error
    for line in done.stdout.splitlines():
        match = re.search(r"(?:=>\s+|^\s+)(/\S+)\s+\(0x", line)
        if match is not None:
            yield Path(match[1])


def _by_name() -> Iterator[Path]:
    """Beside the C library."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[5]) if line.count("/") else None
        if path is not None and path.name.startswith("libc.so"):
            yield from (path.parent / name for name in LOADED_BY_NAME if (path.parent / name).exists())
            return


def compile_below(folder: Path, root: Path, place: str) -> None:
    """Bytecode beside its source, believed without a look at that: times in an image mean nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    command = [sys.executable, "-m", "compileall", "-qq", "-j", "0", "-s", str(root), "-p", place]
    # Its exit status tells of files that do not compile, such as templates in packages of others: they stay so.
    subprocess.run(
        [*command, "--invalidation-mode", "unchecked-hash", str(folder)], env=environment, check=False
    )  # fmt: skip


def make_readable(root: Path) -> None:
    """The sidecar is nobody's user: a private umask of this machine must not lock it out."""
    for folder, _, files in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            mode = path.lstat().st_mode
            wanted = stat.S_IMODE(mode) | (0o755 if stat.S_ISDIR(mode) or mode & 0o100 else 0o644)
            if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) != wanted:
                path.chmod(wanted)


def _unwanted(found: list[str]) -> set[str]:
    return {name for name in found if name in LEFT_OUT or name == "__pycache__" or name.startswith("config-")}


def python_name() -> str:
    """What the interpreter is called in the image."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def packages_folder() -> Path:
    """Where the image has its packages, from its root."""
    return PREFIX / "lib" / python_name() / "site-packages"
