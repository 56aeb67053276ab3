"""docs/reference/metrics.md has each metric with its kind and labels.

Those of the tailer: tests/unit/producer/report/test_tailer_metrics.py.
"""

from __future__ import annotations

import re

from prometheus_client.metrics import MetricWrapperBase
from tests.support.documents import ROOT

from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_etl.telemetry.metrics import EtlMetrics
from hourmark_mirror.watch.metrics import MirrorMetrics

PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
ROWS = dict(re.findall(r"^\| `(hourmark_\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE))


def described(metrics: object) -> dict[str, str]:
    """Kind and labels of each metric, as the page writes them."""
    found = {}
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            labels = ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ()))
            name = family.name + ("_total" if family.type == "counter" else "")
            found[name] = family.type + (f", by {labels}" if labels else "")
    return found


def documented(prefix: str) -> dict[str, str]:
    return {name: kind for name, kind in ROWS.items() if name.startswith(prefix)}


def test_every_metric_of_the_service_is_documented_with_its_labels_and_no_other() -> None:
    expected = described(ServiceMetrics())
    assert len(expected) > 15
    assert documented("hourmark_service_") == expected


def test_every_metric_of_the_etl_and_the_mirror_is_documented_with_its_labels() -> None:
    assert documented("hourmark_etl_") == described(EtlMetrics())
    assert documented("hourmark_mirror_") == described(MirrorMetrics())


def test_an_expression_of_an_alert_names_metrics_that_exist() -> None:
    tables = re.findall(r"^### Alerts .*?\n(?=#|\Z)", PAGE + "\n", re.MULTILINE | re.DOTALL)
    named = {name for table in tables for name in re.findall(r"hourmark_\w+", table)}
    assert len(tables) == 4 and len(named) > 15
    assert named <= ROWS.keys()
