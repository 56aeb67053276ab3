"""Generate docs/reference/http-endpoints.md from the OpenAPI document of the delivery service.

Run `python -m tools.http_endpoints_page` after each change of the document. The limits in the page
are those of the default settings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tools.markdown import wrap

from hourmark.config.groups import ServiceSettings
from hourmark.records.host_reports import HostReport, SourceReport
from hourmark_delivery_service.edge.openapi import openapi_document
from hourmark_delivery_service.edge.responses import PROBLEM

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "http-endpoints.md"
_HEAD: Final = """# HTTP endpoints

This page lists the parameters, request bodies and responses of all HTTP endpoints of the delivery
service. It is for authors of HTTP clients.

The delivery service describes these endpoints in an OpenAPI document, which it returns at
`GET /openapi.json`. `python -m tools.http_endpoints_page` generates this page from the document
with the default settings, so the limits of your service may differ. To learn how to use the
endpoints, see [HTTP API](http-api.md).
"""
_ERRORS: Final = """If the request fails, the response has the status {statuses}. Its body is a
[problem document](#problem-documents) that states the cause and the next step."""
_Json = dict[str, Any]


def page() -> str:
    """Return the text of docs/reference/http-endpoints.md."""
    document = openapi_document(ServiceSettings())
    parts = [_HEAD]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += _operation(f"{method.upper()} {path}", operation)
    schemas = document["components"]["schemas"]
    parts += [
        "## Problem documents\n",
        wrap(
            f"An error response has the media type `{PROBLEM}`. Its body is a JSON object with the "
            "following members. The page [error codes](error-codes.md) explains the values of `code`."
        )
        + "\n",
    ]
    parts += _object(schemas["Problem"])
    parts += [
        "## Host reports\n",
        "The body of `POST /v1/reports` is a JSON object with these members:\n",
    ]
    parts += _object(schemas["HostReport"], _attributes(HostReport))
    parts += ["Each element of `sources` is an object with these members:\n"]
    parts += _object(schemas["HostReport"]["$defs"]["SourceReport"], _attributes(SourceReport))
    return "\n".join(parts)


def _operation(title: str, operation: _Json) -> Iterator[str]:
    yield f"## {title}\n"
    yield wrap(f"{operation['summary']}. {operation.get('description', '')}") + "\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | required | value | description |\n|---|---|---|---|"
        for one in parameters:
            required = "yes" if one["required"] else "no"
            name = f"{one['name']}" + (" (path)" if one["in"] == "path" else "")
            text = one.get("description", "")
            yield f"| `{name}` | {required} | {_value(one['schema'])} | {text} |"
        yield ""
    if body := operation.get("requestBody"):
        kinds = [
            media + (f" ({schema['description']})" if "description" in schema else "")
            for media, content in body["content"].items()
            for schema in [content["schema"]]
        ]
        yield wrap(f"The media type of the body is {' or '.join(kinds)}.") + "\n"
    yield from _responses(operation["responses"])


def _responses(responses: _Json) -> Iterator[str]:
    errors = []
    for status, response in sorted(responses.items()):
        ((media, content),) = response["content"].items()
        if media == PROBLEM:
            errors.append(f"{status} ({response['description']})")
            continue
        yield wrap(f"**Response {status}** ({media}): {response['description']}.") + "\n"
        if content["schema"].get("properties"):
            yield from _object(content["schema"])
    if errors:
        statuses = " or ".join(filter(None, (", ".join(errors[:-1]), errors[-1])))
        yield wrap(_ERRORS.format(statuses=statuses)) + "\n"


def _object(schema: _Json, texts: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the table of an object's members.

    Args:
        schema: JSON schema of the object.
        texts: Descriptions of members by name, for those that the schema does not describe.
    """
    yield "| member | always present | value | description |\n|---|---|---|---|"
    for name, value in schema["properties"].items():
        present = "yes" if name in schema.get("required", ()) else "no"
        text = value.get("description") or (texts or {}).get(name, "")
        yield f"| `{name}` | {present} | {_value(value)} | {text} |"
    yield ""


def _value(schema: _Json) -> str:
    """Describe in words which values a schema allows."""
    if "const" in schema:
        return f"`{str(schema['const']).lower()}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_value(one) for one in schema["anyOf"])
    kind = schema.get("type", "object")
    words = kind if isinstance(kind, str) else " or ".join(kind)
    if "pattern" in schema:
        code = str(schema["pattern"]).replace("|", "\\|")
        return f"{words}, `{code}`"
    return f"{words}{_bounds(schema)}"


def _bounds(schema: _Json) -> str:
    if "maxLength" in schema:
        return f", {schema['minLength']} to {schema['maxLength']} characters"
    if "minLength" in schema:
        return ", not empty"
    if "exclusiveMaximum" in schema:
        return f", 0 to 2^{schema['exclusiveMaximum'].bit_length() - 1} - 1"
    return ", not negative" if "minimum" in schema else ""


def _attributes(of: type) -> dict[str, str]:
    """Return the descriptions in the section Attributes of a class's docstring, by name."""
    section = inspect.cleandoc(of.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.split(r"^    (?=\w+:)", section, flags=re.MULTILINE)[1:]
    return {
        name: " ".join(text.split()).removesuffix(".").replace("None if", "null if")
        for name, _, text in (entry.partition(":") for entry in entries)
    }


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE}: written")
