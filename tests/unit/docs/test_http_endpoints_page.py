"""docs/reference/http-endpoints.md is the OpenAPI document of the delivery service."""

from __future__ import annotations

import re

from tools.http_endpoints_page import PAGE, page

from hourmark.config.groups import ServiceSettings
from hourmark_delivery_service.edge.openapi import openapi_document


def test_the_page_is_what_the_generator_gives() -> None:
    assert PAGE.read_text() == page(), "run `python -m tools.http_endpoints_page`"


def test_every_operation_has_a_section_and_every_parameter_a_description() -> None:
    paths = openapi_document(ServiceSettings())["paths"]
    operations = [f"{method.upper()} {path}" for path, found in paths.items() for method in found]
    assert [title for title in operations if f"\n## {title}\n" not in page()] == []
    rows = re.findall(r"^\| `.*\|$", page(), re.MULTILINE)
    assert len(rows) > 60
    assert [row for row in rows if row.endswith("|  |")] == []
