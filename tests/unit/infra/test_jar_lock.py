"""The lock of jars as committed, and what Ivy is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.etl_spark import JARS_LOCK
from tests.support.httpfs import JARS_LOCK as HTTPFS_LOCK
from tests.support.s3_server import JARS_LOCK as S3PROXY_LOCK
from tests.support.yarn_cluster import JARS_LOCK as YARN_LOCK
from tools.jar_sets import HTTPFS, PEER, S3PROXY, SETS, YARN, JarSet

from hourmark_infra.jars.ivy import render_locked_dependencies
from hourmark_infra.jars.lockfile import LOCK_FILE, digest_of, read_lock, render_lock

LOCKED = [
    *((jar_set, LOCK_FILE) for jar_set in SETS),
    (PEER, JARS_LOCK),
    (YARN, YARN_LOCK),
    (S3PROXY, S3PROXY_LOCK),
    (HTTPFS, HTTPFS_LOCK),
]


@pytest.mark.parametrize(
    ("jar_set", "lock_file"), LOCKED, ids=[jar_set.name for jar_set, _ in LOCKED]
)
def test_every_root_is_locked_in_the_version_that_is_wanted(
    jar_set: JarSet, lock_file: Path
) -> None:
    locked = {
        (jar.organisation, jar.module, jar.revision, jar.classifier, jar.ext)
        for jar in read_lock(jar_set.name, lock_file)
    }
    assert {
        (root.organisation, root.module, root.revision, root.classifier, root.ext)
        for root in jar_set.roots
    } <= locked


@pytest.mark.parametrize(
    ("jar_set", "lock_file"), LOCKED, ids=[jar_set.name for jar_set, _ in LOCKED]
)
def test_no_module_is_locked_twice(jar_set: JarSet, lock_file: Path) -> None:
    names = [
        (jar.organisation, jar.module, jar.classifier) for jar in read_lock(jar_set.name, lock_file)
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("lock_file", "jar_sets"),
    [
        (LOCK_FILE, SETS),
        (JARS_LOCK, (PEER,)),
        (YARN_LOCK, (YARN,)),
        (S3PROXY_LOCK, (S3PROXY,)),
        (HTTPFS_LOCK, (HTTPFS,)),
    ],
    ids=["servers", "peer", "yarn", "s3proxy", "httpfs"],
)
def test_the_lock_is_sorted_and_whole(lock_file: Path, jar_sets: Sequence[JarSet]) -> None:
    jars = [jar for jar_set in jar_sets for jar in read_lock(jar_set.name, lock_file)]
    assert render_lock(jars) == lock_file.read_text()
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in jars)


def test_a_change_of_one_digest_names_another_folder() -> None:
    jars = read_lock("registry")
    assert digest_of(jars) != digest_of([replace(jars[0], sha256="0" * 64), *jars[1:]])


def test_ivy_is_asked_for_each_locked_file_and_nothing_beyond() -> None:
    jars = [*read_lock("hadoop"), *read_lock("registry")]
    root = ElementTree.fromstring(
        f'<d xmlns:m="http://ant.apache.org/ivy/maven">{render_locked_dependencies(jars)}</d>'
    )
    asked = {
        (dependency.get("org"), dependency.get("name"), dependency.get("rev"), artifact.get("ext"))
        for dependency in root
        for artifact in dependency
    }
    assert asked == {(jar.organisation, jar.module, jar.revision, jar.ext) for jar in jars}
    assert sum(1 for dependency in root for _ in dependency) == len(jars)
    assert {dependency.get("transitive") for dependency in root} == {"false"}
