"""Regenerate the jar lock files from `tools.jar_sets`: `python -m tools.lock_jars`.

Writes `jars.lock` of `infra/hourmark_infra/jars`, `spark_jars.lock` of `bench`, and
`yarn_jars.lock`, `s3proxy_jars.lock` and `httpfs_jars.lock` of `tests/support`. The root artifacts
are resolved with their runtime dependencies, each file is hashed, and each lock file is replaced
atomically. Needs network access and takes a few minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.etl_spark import JARS_LOCK
from tests.support.httpfs import JARS_LOCK as HTTPFS_LOCK
from tests.support.s3_server import JARS_LOCK as S3PROXY_LOCK
from tests.support.yarn_cluster import JARS_LOCK as YARN_LOCK
from tools.jar_sets import HTTPFS, PEER, S3PROXY, SETS, YARN, JarSet

from hourmark.errors import Unavailable
from hourmark.process.durable import write_durably
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.jars.ivy import read_log_tail, render_dependency, start_ivy
from hourmark_infra.jars.lockfile import LOCK_FILE, Jar, render_lock, sha256_of
from hourmark_infra.java.find import java_executable

_RETRIEVED = "[organisation]/[module]/[revision]/[artifact](-[classifier]).[ext]"


def main() -> None:
    """Resolve all jar sets and write the lock files."""
    _lock(LOCK_FILE, SETS)
    _lock(JARS_LOCK, (PEER,))
    _lock(YARN_LOCK, (YARN,))
    _lock(S3PROXY_LOCK, (S3PROXY,))
    _lock(HTTPFS_LOCK, (HTTPFS,))


def _lock(lock_file: Path, jar_sets: Sequence[JarSet]) -> None:
    jars = [jar for jar_set in jar_sets for jar in _resolve(jar_set)]
    write_durably(lock_file, render_lock(jars).encode(), mode=0o644)
    for jar_set in jar_sets:
        chosen = [jar for jar in jars if jar.set == jar_set.name]
        print_progress(
            f"{jar_set.name}: {len(chosen)} files, {sum(jar.size for jar in chosen) / 1e6:.1f} MB"
        )


def _resolve(jar_set: JarSet) -> Iterator[Jar]:
    print_progress(f"{jar_set.name}: resolving")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dependencies = "\n".join(
            render_dependency(
                root.organisation,
                root.module,
                root.revision,
                [] if jar_set.transitive else [(root.ext, root.classifier)],
            )
            for root in jar_set.roots
        )
        out = folder / "out"
        more = ["-retrieve", f"{out}/{_RETRIEVED}"]
        process = start_ivy(
            java_executable(), folder, dependencies, poms=jar_set.transitive, more=more
        )
        if process.wait() != 0:
            raise Unavailable(
                f"{jar_set.name} cannot be resolved; see Ivy's words:\n{read_log_tail(folder, 30)}"
            )
        for path in sorted(path for path in out.rglob("*") if path.is_file()):
            jar = _described(jar_set.name, path, out)
            if not jar.module.startswith(jar_set.left_out or ("\0",)):
                yield jar


def _described(set_name: str, path: Path, out: Path) -> Jar:
    organisation, module, revision, file_name = path.relative_to(out).parts
    ext = "tar.gz" if file_name.endswith(".tar.gz") else file_name.rsplit(".", 1)[1]
    classifier = file_name.removeprefix(module).removesuffix(f".{ext}").removeprefix("-")
    return Jar(
        set=set_name,
        organisation=organisation,
        module=module,
        revision=revision,
        classifier=classifier,
        ext=ext,
        sha256=sha256_of(path),
        size=path.stat().st_size,
    )


if __name__ == "__main__":
    main()
