"""Syslog over TLS (RFC 5425): who may send, and certificates that change."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from tests.support.certificates import Authority, Pair
from tests.support.syslog_senders import connect, counted, receives
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.errors import ConfigError
from hourmark_producer.tailer import Tailer


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def pair(authority: Authority, host: Host) -> Pair:
    pair = authority.issue("receiver")
    receives(
        host,
        "syslog+tls://127.0.0.1:0",
        syslog={"tls": {"certificate": pair.certificate, "key": pair.key}},
    )
    return pair


def connect_tls(tailer: Tailer, authority: Authority, shown: Pair | None = None) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(authority.ca))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return context.wrap_socket(connect(tailer), server_hostname="127.0.0.1")


def is_closed(sender: socket.socket) -> bool:
    """Whether the other side ends it, perhaps with an alert; TimeoutError where it does not."""
    try:
        while sender.recv(100):
            pass
    except TimeoutError:
        raise
    except OSError:
        return True
    return True


def test_messages_over_tls_are_delivered(
    host: Host, pair: Pair, authority: Authority, recorder: Recorder
) -> None:
    sent = lines(20_000)
    with host.running() as tailer:
        with connect_tls(tailer, authority) as sender:
            sender.sendall(counted(sent))
        recorder.wait_text(sent)
        wait_for(lambda: recorder.last.pending_bytes == 0, "all is acknowledged")
    assert recorder.text() == sent and recorder.last.lost_bytes == recorder.last.unknown_losses == 0


def test_only_who_shows_a_certificate_may_send_where_one_is_asked_for(
    host: Host, pair: Pair, authority: Authority, recorder: Recorder
) -> None:
    host.settings["syslog"]["tls"]["client_ca"] = authority.ca
    with host.running() as tailer:
        with connect_tls(tailer, authority) as nobody:  # TLS 1.3 tells with the first read
            assert is_closed(nobody)
        with connect_tls(tailer, authority, authority.issue("sender")) as sender:
            sender.sendall(counted(lines(3)))
            recorder.wait_text(lines(3))
    assert recorder.text() == lines(3)


def test_a_connection_that_is_no_tls_is_closed_and_others_go_on(
    host: Host, pair: Pair, authority: Authority, recorder: Recorder
) -> None:
    with host.running() as tailer, connect(tailer) as plain:
        plain.sendall(lines(1))
        assert is_closed(plain)
        with connect_tls(tailer, authority) as sender:
            sender.sendall(counted(lines(3)))
            recorder.wait_text(lines(3))


def test_certificates_that_change_are_read_again_and_broken_ones_are_not_taken(
    host: Host, pair: Pair, authority: Authority, recorder: Recorder
) -> None:
    with host.running() as tailer:
        with connect_tls(tailer, authority) as first:
            before = first.getpeercert(binary_form=True)
        authority.issue("receiver")
        with connect_tls(tailer, authority) as second:
            after = second.getpeercert(binary_form=True)
        assert before != after
        pair.certificate.write_text("nothing")
        with connect_tls(tailer, authority) as third:
            assert third.getpeercert(binary_form=True) == after
        assert [
            trouble.message
            for trouble in tailer.take_snapshot().troubles
            if "remain in use" in trouble.message
        ]


def test_a_certificate_that_cannot_be_used_stops_the_start(host: Host, pair: Pair) -> None:
    pair.certificate.write_text("nothing")
    with pytest.raises(ConfigError, match=r"tailer\.syslog\.tls\.certificate"), host.tailer():
        pass
