"""A store of Podman for one run of the tests, with an image that is made from what Debian ships: busybox-static."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tarfile
from functools import cache
from io import BytesIO
from pathlib import Path

IMAGE = "localhost/handrail-tests:1"
_BUSYBOX = Path("/usr/bin/busybox")
_FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "workspace")
_MODE = 0o755


@cache
def podman_command() -> tuple[str, ...]:
    """Podman over that store, as it works in a container and on every version of control groups."""
    folder = Path(os.environ["HANDRAIL_TEST_RUN"], "podman")
    folder.mkdir(exist_ok=True)
    where = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))
    command = ("podman", *where, "--runtime", "runc", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs")
    # The first worker imports the image, and the others wait for it.
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "image.tar").exists():
            (folder / "image.tar").write_bytes(_image())
            subprocess.run(
                (*command, "import", "--quiet", str(folder / "image.tar"), IMAGE), check=True, capture_output=True
            )
    return command


def containers(root: Path) -> list[str]:
    """The names of the containers that stay over a workspace; other workers have others in the store.

    One that Podman is removing is listed until it is gone, so Podman is asked up to a hundred times.
    """
    command = (*podman_command(), "ps", "--all", "--filter", f"volume={root}", "--format", "{{.Names}}")
    names: list[str] = []
    for _ in range(100):
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        if not names:
            break
    return names


def _image() -> bytes:
    data = BytesIO()
    applets = subprocess.run((_BUSYBOX, "--list"), check=True, capture_output=True, text=True).stdout.split()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, _MODE
            archive.addfile(folder)
        program = _BUSYBOX.resolve().read_bytes()
        entry = tarfile.TarInfo("bin/busybox")
        entry.size, entry.mode = len(program), _MODE
        archive.addfile(entry, BytesIO(program))
        for name in applets:
            if name != "busybox":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
    return data.getvalue()
