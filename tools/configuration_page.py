"""Generate docs/configuration.md from the descriptions of the settings.

Run `python -m tools.configuration_page` after each change of a setting.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hourmark.config.groups import EventTimeLimits, TailedSource
from hourmark.config.loading import PREFIX, Config

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
HEAD: Final = f"""# Configuration

Made by `python -m tools.configuration_page` from `core/hourmark/config/loading.py`: change a setting's description there.

Settings stand in one TOML file: that of `--config`, else of `$HOURMARK_CONFIG`, else `./hourmark.toml`, else the one that
`hourmark up` wrote for the local stack. A variable of the environment wins over the file, and the file over the default.
Lists and tables in a variable are JSON: `{PREFIX}TAILER__SERVICE_URLS='["http://127.0.0.1:8780"]'`. An unknown setting is an
error, and so is a variable `{PREFIX}…__…` of no known table. `hourmark serve --port` wins over `service.port`.

`hourmark config show` tells what is in force and where each value is from, without passwords and keys. They may stand in
`registry.url`, `etl.ledger`, `etl.spark_conf` and `kafka.….properties`; to keep them out of the file, write in their place, or
within a text, `${{file:/path}}` (what it holds, without the last line end) or `${{env:NAME}}` (a variable), as for Kafka's tools.

A log host needs no more than [examples/tailer.toml](../examples/tailer.toml).
"""
COLUMNS: Final = ("setting", "type, allowed", "default", "variable", "what it says")
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_KINDS: Final = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
}


def page() -> str:
    """Return the text of docs/configuration.md."""
    return "\n".join([HEAD, *_general(), *_sections(Config, ())])


def settings_without_description() -> list[str]:
    """Return the names of settings that have no description."""
    groups: list[tuple[str, type[BaseModel]]] = [
        ("", Config),
        ("tailer.sources.", TailedSource),
        ("limits.", EventTimeLimits),
    ]
    return [
        name
        for prefix, model in groups
        for name, field in _fields(model, prefix)
        if not field.description
    ]


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        group = _group(field)
        if group is None:
            yield prefix + name, field
        else:
            yield from _fields(group, f"{prefix}{name}.")


def _general() -> Iterator[str]:
    yield "## Outside of any table\n"
    yield _table(Config, ())


def _sections(model: type[BaseModel], keys: tuple[str, ...]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if (group := _group(field)) is None:
            continue
        inner = (*keys, name)
        said = f"{name}: {_description(field)}." if field.description else _said(group)
        yield f"## `[{'.'.join(inner)}]`\n\n{said}\n"
        yield _table(group, inner)
        yield from _sections(group, inner)
        if name == "tailer":
            yield f"## `[[tailer.sources]]`\n\n{_said(TailedSource)}\n"
            yield _table(TailedSource, None)
        if name == "parsing":
            yield f"## `[limits]` in `types/sources.toml`\n\n{_said(EventTimeLimits)}\n"
            yield _table(EventTimeLimits, None)


def _table(model: type[BaseModel], keys: tuple[str, ...] | None) -> str:
    """Return the Markdown table of one group of settings, without nested groups.

    Args:
        model: Settings of the group.
        keys: Path of the group, from which the names of environment variables are made, or None if
            no environment variable sets them.
    """
    columns = (
        COLUMNS if keys is not None else tuple(column for column in COLUMNS if column != "variable")
    )
    schema = model.model_json_schema()["properties"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, field in model.model_fields.items():
        if _group(field) is None:
            variable = () if keys is None else (f"`{PREFIX}{'__'.join((*keys, name)).upper()}`",)
            cells = (
                f"`{name}`",
                _allowed(schema[name]),
                _default(name, field),
                *variable,
                _description(field),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _group(field: FieldInfo) -> type[BaseModel] | None:
    """Return the settings class of a field that is a nested group, or None for another field."""
    if get_origin(field.annotation) is dict:  # tables by name
        return None
    kinds = (
        (field.annotation, *get_args(field.annotation))
        if get_args(field.annotation)[1:]
        else (field.annotation,)
    )
    return next(
        (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None
    )


def _description(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _said(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "")


def _allowed(schema: dict[str, Any]) -> str:
    """Describe in words which values a JSON schema allows."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        inner = schema["items"]
        return ("tables" if "$ref" in inner else f"list of {_allowed(inner)}s") + (
            ", not empty" if "minItems" in schema else ""
        )
    if schema.get("type") == "object":
        (inner,) = (
            schema["patternProperties"].values()
            if "patternProperties" in schema
            else (schema["additionalProperties"],)
        )
        return "tables by name" if "$ref" in inner else f"table of {_allowed(inner)}s"
    if "pattern" in schema:
        return f"text, `{schema['pattern']}`"
    if "anyOf" in schema:  # a setting that may be absent
        return _allowed(next(kind for kind in schema["anyOf"] if kind["type"] != "null"))
    kind = "path" if schema.get("format") == "path" else _KINDS[schema["type"]]
    words = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
    return ", ".join(
        [kind, *(f"{word} {schema[bound]}" for bound, word in words.items() if bound in schema)]
    )


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "none, required"
    value = field.get_default()
    if value is None:
        return "absent"
    text = f"`{json.dumps(str(value) if isinstance(value, Path) else value)}`"
    if "bytes" in name:
        text += next(
            (f" ({value // size} {unit})" for size, unit in _UNITS if value % size == 0), ""
        )
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE}: written")
