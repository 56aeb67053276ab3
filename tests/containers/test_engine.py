"""What the engine does with secrets of builds and with containers that end, without a site."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.compose import MISSING, ROOT, program
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

BASE = "debian:bookworm-slim"  # of all images
PASSWORD = "planted-4711-password"
STEP = """FROM debian:bookworm-slim
COPY with_build_secrets.sh /usr/local/bin/with_build_secrets
RUN mkdir -p /etc/ssl/certs && touch /etc/ssl/certs/ca-certificates.crt
RUN --mount=type=secret,id=pip_index_url --mount=type=secret,id=uv_default_index \\
    --mount=type=secret,id=build_ca \\
    with_build_secrets sh -c 'test "$PIP_INDEX_URL" = "$(cat /run/secrets/pip_index_url)" \\
    && echo "$PIP_INDEX_URL" | sha256sum >/seen && test -z "${UV_DEFAULT_INDEX:-}"'
"""


@pytest.fixture(scope="module")
def engine() -> str:
    command = program()
    if command is None:
        pytest.skip(MISSING)
    return command[0].removesuffix("-compose")


def output(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def test_a_password_in_the_url_of_an_index_is_in_no_layer_and_no_history(
    engine: str, tmp_path: Path
) -> None:
    shutil.copy2(ROOT / "infra" / "containers" / "with_build_secrets.sh", tmp_path)
    (tmp_path / "Containerfile").write_text(STEP)
    tag = f"hourmark-test-secret:{uuid.uuid4().hex[:8]}"
    secrets = ("pip_index_url,env=PIP_INDEX_URL", "uv_default_index,env=UV_DEFAULT_INDEX")
    build = [engine, "build", "-t", tag, "-f", str(tmp_path / "Containerfile")]
    build += [word for each in secrets for word in ("--secret", f"id={each}")]
    build += ["--secret", "id=build_ca,src=/dev/null", str(tmp_path)]
    url = f"https://me:{PASSWORD}@index.example/simple"
    try:
        # UV_DEFAULT_INDEX is not set, as where nobody needs another index.
        output(*build, PIP_INDEX_URL=url, DOCKER_BUILDKIT="1")
        assert PASSWORD not in output(engine, "history", "--no-trunc", tag)
        assert PASSWORD not in output(engine, "inspect", tag)
        output(engine, "save", "-o", str(tmp_path / "image.tar"), tag)
        found = b"".join(contents(tmp_path / "image.tar"))
        seen = hashlib.sha256(f"{url}\n".encode()).hexdigest()
        assert seen.encode() in found, "the step of the build did not get the secret"
        assert PASSWORD.encode() not in found
    finally:
        output(engine, "rmi", "--force", tag)


def contents(archive: Path) -> Iterator[bytes]:
    """The files of an image, those of its layers included; large files of Debian are left out."""
    with tarfile.open(archive) as outer:
        for member in outer:
            file = outer.extractfile(member)
            if file is None:
                continue
            try:
                with tarfile.open(fileobj=file) as layer:
                    for each in layer:
                        small = each.isfile() and each.size < 1 << 20
                        inner = layer.extractfile(each) if small else None
                        if inner is not None:
                            yield each.name.encode() + inner.read()
            except tarfile.ReadError:
                file.seek(0)
                yield file.read()


def test_a_container_whose_process_is_killed_comes_back(engine: str) -> None:
    options = ("-d", "--restart", "unless-stopped", "-m", "64m", "--network", "none")
    container = output(engine, "run", *options, BASE, "sleep", "1000").strip()
    try:
        first = pid(engine, container)
        os.kill(first, 9)
        wait_for(lambda: pid(engine, container) not in (0, first), "it runs again", 60, 0.5)
    finally:
        output(engine, "rm", "--force", container)


def pid(engine: str, container: str) -> int:
    """Of its process; 0 where it does not run."""
    return int(output(engine, "inspect", "--format", "{{.State.Pid}}", container))
