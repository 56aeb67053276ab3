"""What a newcomer must find in the documents, with the names that the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from hourmark.config.groups import KafkaSettings
from hourmark.kafka.topic_names import central_topic, events_topic

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "document",
    ["docs/start/first-bucket.md", "docs/reference/event-types.md", "docs/operate/mirror.md"],
)
def test_topics_are_named_as_each_cluster_has_them(document: str) -> None:
    text = (ROOT / document).read_text()
    at_the_edge = events_topic("page-viewed")
    assert f"`{at_the_edge}`" in text
    assert f"`{central_topic(at_the_edge, KafkaSettings().edge_alias)}`" in text
    assert "kafka.edge_alias" in text


@pytest.mark.parametrize(
    "document", ["docs/start/first-bucket.md", "docs/reference/event-types.md"]
)
def test_the_length_of_buckets_is_told_with_its_setting(document: str) -> None:
    text = (ROOT / document).read_text()
    assert "`parsing.bucket_seconds`" in text and "--bucket-seconds 60" in text


@pytest.mark.parametrize("document", ["docs/start/three-machines.md", "docs/operate/tailers.md"])
def test_what_a_stopped_tailer_leaves_is_told_with_the_command(document: str) -> None:
    text = (ROOT / document).read_text()
    assert (
        "hourmark tail --drain" in text
        and "`without a goodbye`" in text
        and "etl.deadline_seconds" in text
    )
