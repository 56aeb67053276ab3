"""The real local stack as a fixture: started once a session, taken down at its end whatever
happened.

`HOURMARK_TEST_HOME=<home>` names a home whose stack is used instead, and left running: quicker
while working on a test.
"""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from tests.support.ending import (
    pytest_configure,
    pytest_runtest_logstart,
    pytest_sessionfinish,
    pytest_unconfigure,
)
from tests.support.s3_server import CREDENTIALS, s3proxy
from tests.support.stacks import running_mirror, running_stack

from hourmark.config.groups import BucketSettings, StorageSettings
from hourmark.config.loading import Config, load_config
from hourmark.config.redaction import forget_secrets
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.servers import is_mirror_installed

__all__ = [
    "pytest_configure",
    "pytest_runtest_logstart",
    "pytest_sessionfinish",
    "pytest_unconfigure",
]

os.environ.pop(
    "HOURMARK_CALLED", None
)  # messages name Hourmark as they do where it is installed, whoever runs the tests

settings.register_profile("hourmark", deadline=None)  # a busy machine is no fault of the code
settings.register_profile("quick", max_examples=25, deadline=None)  # `hourmark test --quick`
settings.load_profile("hourmark")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and tests, a million objects that live to the end, from the garbage collector.

    Otherwise each full collection visits all of them, in each worker.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Captured output may hold file names that are not UTF-8, which pytest-xdist cannot send."""
    report = yield
    report.sections = [
        (name, content.encode(errors="backslashreplace").decode())
        for name, content in report.sections
    ]
    return report


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests() -> Iterator[None]:
    """What one test registers as a secret is an ordinary word to the next."""
    forget_secrets()
    yield
    forget_secrets()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageSettings]:
    """A server with the API of S3, and the credentials for it in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with s3proxy(tmp_path_factory.mktemp("s3proxy")) as settings:
            yield settings


@pytest.fixture(scope="module")
def s3_root(s3: StorageSettings) -> Iterator[str]:
    """An empty root on that server, which settings may name: its address is in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOURMARK_STORAGE__S3_ENDPOINT", s3.s3_endpoint)
        patch.setenv("HOURMARK_STORAGE__S3_REGION", s3.s3_region)
        yield f"{s3.root}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The running stack, without its mirror (`mirror_runs`).

    A test that stops or kills a server starts it again before it ends.
    """
    home = tmp_path_factory.mktemp("hourmark-home")
    with running_stack(
        lambda: LocalStack.load_or_create(home, mirror=is_mirror_installed(), jmx=True),
        with_mirror=False,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def mirror_runs(stack: LocalStack) -> Iterator[None]:
    """MirrorMaker 2 of the stack runs while the tests of a module do."""
    with running_mirror(stack):
        yield


@pytest.fixture(scope="session")
def config(stack: LocalStack) -> Config:
    """The configuration that `hourmark up` wrote for the stack, with buckets of a minute: a cluster
    has one length for all.
    """
    return load_config(stack.layout.config_file).model_copy(
        update={"parsing": BucketSettings(bucket_seconds=60)}
    )
