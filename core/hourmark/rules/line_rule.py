"""How the lines of an event type are parsed: the table `[line]` of its declaration.

See docs/event-types.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from hourmark.config.groups import FrozenModel

DECLARED: Final = {
    "declared": True
}  # context of validation: declarations in files are checked strictly, published ones are not
SKIPPED: Final = "-"  # name of a column that is ignored
TIME_WORDS: Final = ("rfc3339", "unix", "unix-ms", "unix-us", "unix-ns")
HEADER_PARTS: Final = ("host", "program", "pid", "facility", "severity", "msgid", "structured_data")
SD_PARAM: Final = re.compile(
    r"\[([!#-<>-\\^-~]{1,255}) ([!#-<>-\\^-~]{1,255})\]"
)  # of RFC 5424's structured data
_GROUP_NAME: Final = re.compile(r"\(\?P?<(\w+)>")  # both of RE2's spellings
_LITERAL: Final = re.compile(
    r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL
)  # parts of a pattern that contain no groups
_OF_0_2_0: Final = ("payload", "field", "pattern", "time_format", "time")
_GOES_WITH: Final = {
    "pattern": ("pattern",),
    "columns": ("tsv",),
    "coerce": ("json",),
    "keys": ("json", "logfmt"),
    "null_text": ("pattern", "logfmt", "tsv"),
    "unknown_field": ("json", "logfmt"),
    "time_format": ("pattern", "json", "logfmt", "tsv"),
    "time_field": ("pattern", "json", "logfmt", "tsv"),
    "host_field": ("pattern", "json", "logfmt", "tsv"),
}


class Redaction(FrozenModel):
    """A rule that removes or replaces the content of a field before an event leaves the service.

    Attributes:
        field: Name of the field.
        pattern: RE2 pattern. All matches in the field's text, or in any nested string, are
            replaced. If None, the whole value of the field is replaced.
        by: Replacement text. If None, matches of `pattern` are removed or, without a pattern, the
            value is replaced with the field's default or null.
    """

    field: str
    pattern: str | None = None
    by: str | None = None


class LineRule(FrozenModel):
    """The parsing rule for lines of an event type: the table `[line]` of a type declaration.

    The message of a line is the part after its header, or the whole line if the source has no
    header. `payload` selects the format of the message:

    - `json`: The message is a JSON object with the type's fields.
    - `text`: The message becomes the value of `field`. A field of type `bytes` accepts any content,
      a `string` only UTF-8.
    - `pattern`: The named groups of the RE2 `pattern` are fields. `time_format` is the format of
      the group `time`.
    - `logfmt`: The message is a sequence of `key=value` and `key="value"`.
    - `tsv`: The message consists of tab-separated columns. `columns` contains their names.

    Other attributes select the time and the host of the event (`time_field`, `time_format`, `time`,
    `host_field`), or fill fields from the syslog header (`header`) or from keys with other names
    (`keys`). `unknown`, `coerce`, `null_text` and `redact` determine how unknown keys, text values
    and secrets are handled.
    """

    payload: Literal["json", "text", "pattern", "logfmt", "tsv"] = "json"
    field: str | None = None
    """the field that takes the text, or a whole line as the source's catch_all type"""
    pattern: str | None = None
    """RE2 pattern that must match the whole message"""
    columns: list[str] | None = None
    """fields in the order of the columns; "-" for a column to ignore"""
    time_field: str | None = None
    """the key, column or group that contains the time; it need not be a field"""
    time_format: str | None = None
    """format of the time as in datetime.strptime; with time_field also rfc3339 (the default), unix,
    unix-ms, unix-us, unix-ns
    """
    time: Literal["event", "observed"] = "event"
    """observed: if there is no timestamp, observed_at is used"""
    host_field: str | None = None
    """the key, column or group that contains the host; it need not be a field"""
    header: dict[str, str] = Field({})
    """fields filled from parts of the syslog header: `HEADER_PARTS`, or "[id param]" of the
    structured data
    """
    programs: list[str] = Field([])
    """for a source with format = 'syslog': only lines of these programs are of this type"""
    unknown: Literal["refuse", "ignore", "keep"] = "refuse"
    """treatment of keys that are no fields; keep: store them in `unknown_field`"""
    unknown_field: str | None = None
    """a field of the type map of strings; other values are stored as JSON"""
    keys: dict[str, str | list[str]] = Field({})
    """keys of the message by field name, for a key that is no field name (`log.level`) or, as a list
    of keys, for a value within nested JSON objects. A field that is named here is also the name for
    `time_field` and `host_field`
    """
    coerce: list[str] = Field([])
    """fields whose JSON value may be a string that is converted, such as "12" to 12"""
    null_text: str | None = None
    """a text that means no value, such as "-" in many logs: the field gets its default, or null"""
    redact: list[Redaction] = Field([], max_length=100)
    """content that is replaced before an event leaves the service"""

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Defaults of settings added after 0.2.0 are omitted, so that older digests stay valid.
        settings: dict[str, Any] = serialize(self)
        fields = type(self).model_fields
        return {
            k: v
            for k, v in settings.items()
            if k in _OF_0_2_0 or v != fields[k].get_default(call_default_factory=True)
        }

    @property
    def is_plain(self) -> bool:
        """Return whether the rule uses none of the advanced parsing options.

        The result is False if the payload is `logfmt` or `tsv`, or if an option changes how fields,
        times or hosts are found, converted or redacted.
        """
        return not (
            self.payload in ("logfmt", "tsv")
            or self.time_field
            or self.host_field
            or self.header
            or self.programs
            or self.unknown != "refuse"
            or self.keys
            or self.coerce
            or self.null_text is not None
            or self.redact
        )

    @property
    def key_paths(self) -> dict[str, tuple[str, ...]]:
        """Return where to find the fields of `keys` in the message.

        Returns:
            A dict that maps each field name to a path: a single key, or the keys of nested JSON
            objects from the outermost to the innermost.
        """
        return {
            name: (path,) if isinstance(path, str) else tuple(path)
            for name, path in self.keys.items()
        }

    @property
    def groups(self) -> frozenset[str]:
        """Return the names of the named groups in `pattern`.

        Returns:
            The group names. Empty if the rule has no pattern.
        """
        return frozenset(_GROUP_NAME.findall(_LITERAL.sub("", self.pattern or "")))

    @property
    def time_group(self) -> str:
        """Return the name of the group in `pattern` that contains the time of the event.

        Returns:
            The value of `time_field`; `time` if it is not set.
        """
        return self.time_field or "time"

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Self:
        for name, payloads in _GOES_WITH.items():
            if getattr(self, name) and self.payload not in payloads:
                raise ValueError(f"{name} requires payload = {' or '.join(map(repr, payloads))}")
        if self.payload == "pattern":
            self._check_pattern(info.context == DECLARED)
        if self.payload == "text" and self.field is None:
            raise ValueError(
                "payload = 'text' requires `field`, the name of the field for the text"
            )
        if self.payload == "tsv" and not self.columns:
            raise ValueError("payload = 'tsv' requires `columns`, the names of the fields in order")
        if self.payload != "pattern" and self.time_format is not None and self.time_field is None:
            raise ValueError(
                "time_format requires time_field, the name of the field that contains the time"
            )
        if self.unknown != "refuse" and self.payload not in ("json", "logfmt"):
            raise ValueError("unknown requires payload = 'json' or 'logfmt'")
        if (self.unknown == "keep") != (self.unknown_field is not None):
            raise ValueError(
                "unknown = 'keep' requires unknown_field, the map for unknown keys, and vice versa"
            )
        _check_paths(self.key_paths, may_nest=self.payload == "json")
        for field, part in self.header.items():
            if part not in HEADER_PARTS and not SD_PARAM.fullmatch(part):
                raise ValueError(
                    f'header.{field} = {part!r}: allowed: {", ".join(HEADER_PARTS)} and "[id '
                    'param]"'
                )
        return self

    def _check_pattern(self, declared: bool) -> None:
        if self.pattern is None:
            raise ValueError("payload = 'pattern' requires `pattern`")
        has_time = self.time_group in _GROUP_NAME.findall(self.pattern)
        if self.time_field is not None and not has_time:
            raise ValueError(f"time_field = {self.time_field!r} is not a group of the pattern")
        if self.time_field is None and has_time != (self.time_format is not None):
            raise ValueError("the group `time` requires time_format, and vice versa")
        if not has_time and self.time == "event":
            raise ValueError("a pattern without the group `time` requires time = 'observed'")
        if declared:
            _check_groups(self.pattern)

    def check_names(self, fields: Iterable[dict[str, Any]]) -> None:
        """Check that all fields that this rule refers to exist and have a suitable type.

        Args:
            fields: The Avro field declarations of the event type.

        Raises:
            ValueError: A field does not exist or has an unsuitable type. The message contains the
                setting and the field.
        """
        types = {str(field.get("name")): field.get("type") for field in fields}
        named = {
            "field": [self.field] if self.field else [],
            "columns": [
                name
                for name in self.columns or ()
                if name not in (SKIPPED, self.time_field, self.host_field)
            ],
            "header": list(self.header),
            "keys": [name for name in self.keys if name not in (self.time_field, self.host_field)],
            "coerce": self.coerce,
            "unknown_field": [self.unknown_field] if self.unknown_field else [],
            "redact": [redaction.field for redaction in self.redact],
        }
        for setting, names in named.items():
            for name in names:
                if name not in types:
                    raise ValueError(
                        f"line.{setting} = {name!r} is not one of the fields {list(types)}"
                    )
        if self.columns and (
            twice := {
                name for name in self.columns if name != SKIPPED and self.columns.count(name) > 1
            }
        ):
            raise ValueError(f"line.columns: {', '.join(sorted(twice))} is listed twice")
        for name in ("time_field", "host_field"):
            if self.columns and (value := getattr(self, name)) and value not in self.columns:
                raise ValueError(
                    f"line.{name} = {value!r} is not one of the columns {self.columns}"
                )
        maps = [
            self.unknown_field,
            *(field for field, part in self.header.items() if part == "structured_data"),
        ]
        for name in filter(None, maps):
            if types[name] != {"type": "map", "values": "string"}:
                raise ValueError(
                    f'the field {name!r} must be of the type {{ type = "map", values = "string" }}'
                )


def _check_paths(paths: Mapping[str, tuple[str, ...]], *, may_nest: bool) -> None:
    for name, path in paths.items():
        if not path or (len(path) > 1 and not may_nest):
            raise ValueError(
                f"keys.{name} = {list(path)!r}: allowed: one key or, with payload = 'json', a "
                "list of at least one key"
            )
        for other, longer in paths.items():
            if other != name and longer[: len(path)] == path:
                raise ValueError(f"keys.{other} is a prefix of keys.{name}: choose other keys")


def _check_groups(pattern: str) -> None:
    # RE2 accepts two groups of one name and ignores the second.
    names = _GROUP_NAME.findall(_LITERAL.sub("", pattern))
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"the pattern has two groups named {name}; put the alternatives into one group"
            )
