"""The brokers' own counts beside ours: what JmxTool prints is read, and each disagreement is
seen.
"""

from __future__ import annotations

import pytest

from hourmark_evaluate.clients.broker_metrics import (
    BrokerMetrics,
    compare_with_metrics,
    parse_jmx_output,
)

PRINTED = """\
Trying to connect to JMX url: service:jmx:rmi:///jndi/rmi://127.0.0.1:28079/jmxrmi
time=1795612650265
kafka.log:type=Log,name=LogEndOffset,topic=a.b-1,partition=0:Value=334
kafka.log:type=Log,name=LogEndOffset,topic=a.b-1,partition=12:Value=333
kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=a.b-1:Count=667
"""
READ = {("t", 0): 5, ("t", 1): 7}


def _broker(zero: int = 5, one: int = 7, came: int = 4) -> BrokerMetrics:
    return BrokerMetrics({"t": came}, {("t", 0): zero, ("t", 1): one})


def test_what_the_tool_prints_is_read() -> None:
    assert parse_jmx_output(PRINTED) == BrokerMetrics(
        {"a.b-1": 667}, {("a.b-1", 0): 334, ("a.b-1", 12): 333}
    )
    assert parse_jmx_output("No matched attributes for the queried objects []") == BrokerMetrics(
        {}, {}
    )


def test_what_agrees_agrees() -> None:
    found = compare_with_metrics(READ, [_broker()] * 3, 3, undisturbed=True)
    assert [(c.ours, c.brokers) for c in found] == [(12, 12), (6, 6), (12, 12)]


@pytest.mark.parametrize(
    ("brokers", "wrong"),
    [
        ([_broker(), _broker(), _broker(one=8)], {0, 1}),  # one holds a record that nobody read
        ([_broker(), _broker(), _broker(zero=4)], {1}),  # a replica is behind
        ([_broker(), _broker()], {1, 2}),  # one was not asked
        ([_broker(), _broker(), _broker(came=5)], {2}),  # something came in that is not there
    ],
)
def test_each_disagreement_is_seen(brokers: list[BrokerMetrics], wrong: set[int]) -> None:
    found = compare_with_metrics(READ, brokers, 3, undisturbed=True)
    assert {number for number, c in enumerate(found) if c.ours != c.brokers} == wrong


def test_counts_that_begin_again_with_a_broker_are_not_compared() -> None:
    assert len(compare_with_metrics(READ, [_broker(came=0)] * 3, 3, undisturbed=False)) == 2
