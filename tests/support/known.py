"""What a version knows by name, for the ways back to it: settings, fields of markers, fields of
ranges on their way.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator

from pydantic import BaseModel

from hourmark.config.loading import Config
from hourmark.records.manifest import Manifest
from hourmark.records.ranges import LATER_FIELDS


def setting_names(model: type[BaseModel] = Config, before: str = "") -> Iterator[str]:
    """All settings there are, dotted; those of a list's tables as one's."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *typing.get_args(field.annotation))
        groups = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        yield from setting_names(groups[0], f"{before}{name}.") if groups else [before + name]


def known() -> dict[str, list[str]]:
    """By this version. Of ranges those fields that came after 0.2.0."""
    return {
        "settings": sorted(setting_names()),
        "marker fields": sorted(Manifest.model_fields),
        "range fields": sorted(LATER_FIELDS),
    }
