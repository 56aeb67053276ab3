"""A machine whose own name has no address is told so before anything is started."""

from __future__ import annotations

import socket

import pytest

from hourmark.errors import Unavailable
from hourmark_infra.stack.lifecycle import check_host_name


def test_a_name_without_an_address_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-name.invalid")
    with pytest.raises(
        Unavailable,
        match=(
            r"no-such-name\.invalid, does not resolve .*add the line `127\.0\.1\.1 "
            r"no-such-name\.invalid`"
        ),
    ):
        check_host_name()


def test_one_that_has_an_address_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    check_host_name()
