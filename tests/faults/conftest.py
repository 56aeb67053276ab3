"""One running scene for the tests of a module, made as its `SCENE` says."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.support.etl_scene import Scene, scene
from tests.support.ha_hdfs import HaHdfs

from hourmark_infra.stack import LocalStack


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack with a mirror for one module, whose faults other tests must not meet."""
    made = LocalStack.load_or_create(tmp_path_factory.mktemp("own-home"), mirror=True)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def name_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaHdfs]:
    """HDFS with two NameNodes, for one module."""
    programs = LocalStack.load_or_create(tmp_path_factory.mktemp("home"), mirror=False).programs
    with HaHdfs(programs, tmp_path_factory.mktemp("name-service")) as started:
        yield started


@pytest.fixture(scope="module")
def root() -> str | None:
    """Where buckets stand: by default on the stack's HDFS."""
    return None


@pytest.fixture(scope="module")
def fresh(
    request: pytest.FixtureRequest,
    stack: LocalStack,
    tmp_path_factory: pytest.TempPathFactory,
    root: str | None,
) -> Iterator[Scene]:
    """A driver at work, and no hour begun."""
    folder = tmp_path_factory.mktemp(f"scene-{uuid.uuid4().hex[:6]}-")
    with scene(stack.layout.config_file, folder, root=root, **request.module.SCENE) as made:
        yield made


@pytest.fixture(scope="module")
def running(fresh: Scene) -> Scene:
    """An hour was closed."""
    fresh.closed(fresh.begin_hour())
    return fresh
