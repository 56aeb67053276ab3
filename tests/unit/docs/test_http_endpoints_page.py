"""docs/reference/http-endpoints.md is the OpenAPI document of the delivery service."""

from __future__ import annotations

import re

from tools.http_endpoints_page import PAGE, page

from hourmark.config.groups import ServiceSettings
from hourmark_delivery_service.edge.app import OPEN_PATHS
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


def test_only_operations_that_may_need_a_token_list_the_status_401() -> None:
    paths = openapi_document(ServiceSettings())["paths"]
    listed = {
        path for path, found in paths.items() for o in found.values() if "401" in o["responses"]
    }
    assert paths.keys() - listed == set(OPEN_PATHS)
