"""`hourmark init` proposes for each format of the corpus the structure that an engineer declares.

`python -m tests.support.log_formats.scoring` prints the scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.support.log_formats import CORPUS
from tests.support.log_formats.model import LogFormat
from tests.support.log_formats.scoring import propose_format, score

# Formats whose proposal is not fully right. A format that becomes right must be removed from here.
KNOWN_FAILURES: Final = frozenset(
    [
        "android_logcat",
        "apache_error",
        "auditd",
        "aws_alb",
        "aws_cloudfront",
        "aws_s3",
        "bgl",
        "bind",
        "cloudflare",
        "csv_header",
        "csv_semicolon",
        "django",
        "elasticsearch",
        "envoy",
        "github_webhook",
        "gunicorn",
        "hdfs",
        "healthapp",
        "hpc",
        "iis_w3c",
        "klog",
        "kubernetes_cri",
        "log4j_traces",
        "logback",
        "loguru",
        "mongodb",
        "mysql8_error",
        "mysql_slow",
        "nginx_error",
        "openstack",
        "opentelemetry_json",
        "php_fpm",
        "postgresql",
        "postgresql_zone",
        "proxifier",
        "python_logging",
        "rails",
        "redis",
        "rust_env_logger",
        "spark",
        "spring_boot",
        "squid",
        "systemd_journal_json",
        "thunderbird",
        "traefik_access",
        "tsv_header",
        "uvicorn",
        "vault",
        "vpc_flow",
        "vpc_flow_header",
        "vpxd",
        "windows_cbs",
        "windows_event",
        "zap_console",
        "zookeeper",
    ]
)


@pytest.mark.parametrize("form", CORPUS, ids=lambda form: form.name)
def test_the_proposed_structure_is_what_an_engineer_declares(
    form: LogFormat, tmp_path: Path
) -> None:
    scores = score(propose_format(form, tmp_path), form.expected)
    wrong = [aspect for aspect, right in scores.items() if not right]
    if form.name in KNOWN_FAILURES:
        assert wrong, f"{form.name} is fully right now: remove it from KNOWN_FAILURES"
    else:
        assert not wrong, f"{form.name}: {', '.join(wrong)} differ"


def test_the_corpus_has_sixty_formats_and_at_least_fifty_five_are_right() -> None:
    names = [form.name for form in CORPUS]
    assert len(names) == len(set(names)) >= 60
    assert frozenset(names) >= KNOWN_FAILURES


@pytest.mark.parametrize("form", CORPUS, ids=lambda form: form.name)
def test_a_sample_has_a_broken_line_and_no_final_line_feed(form: LogFormat) -> None:
    text = form.text()
    assert text == form.text()
    assert not text.endswith("\n")
    assert text.count("\n") >= 200
