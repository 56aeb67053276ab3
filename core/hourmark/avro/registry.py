"""Client of a schema registry with Confluent's API. All sites share one registry.

Subjects have compatibility BACKWARD_TRANSITIVE: the newest schema can read the buckets of all
earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka.schema_registry import Schema as RegistrySchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx2 import HTTPError, InvalidURL

from hourmark.avro.framing import Schema, canonical_json
from hourmark.config.groups import RegistrySettings
from hourmark.config.redaction import redact, redact_setting
from hourmark.errors import ConfigError, HourmarkError, Unavailable, UsageError

_COMPATIBILITY: Final = "BACKWARD_TRANSITIVE"
_NEXT_STEPS: Final = {
    401: "it requires credentials; set them in registry.url (https://user:password@host)",
    403: (
        "these credentials lack a permission: ask the registry's administrator for permission "
        "to read and register schemas"
    ),
    404: "no registry responds under this path; check that registry.url is the address of its "
    "API, including the path",
    429: "too many requests: try again later",
}


class SchemaRegistry:
    """A client that registers and fetches Avro schemas in a Confluent-compatible schema registry.

    Requests raise `Unavailable` if the registry does not answer or rejects the request for a
    possibly temporary reason. They raise `ConfigError` if the URL cannot be used. Error messages
    contain the URL.

    Args:
        settings: URL, CA certificates and client certificate.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._name = f"the schema registry {redact_setting(settings.url)} (registry.url)"
        self._client = _client(settings)

    def close(self) -> None:
        """Close the HTTP connections to the registry. The client cannot be used afterwards."""
        self._client.close()

    def register(self, topic: str, schema: Schema) -> int:
        """Register a schema for the values of a Kafka topic, and return its id.

        The call is idempotent: a schema that is already registered keeps its id. The method first
        sets the compatibility level of the subject to `BACKWARD_TRANSITIVE`.

        Args:
            topic: Name of the Kafka topic. The subject is `<topic>-value`.
            schema: The schema as parsed JSON.

        Returns:
            The schema id.

        Raises:
            UsageError: The schema is invalid, or incompatible with an earlier schema of the topic.
            Unavailable: The registry does not answer, or rejects the request for another reason.
            ConfigError: The URL cannot be used.
        """
        subject, asked = _subject(topic), _asked_schema(schema)
        with self._asked(subject):
            self._client.set_compatibility(subject_name=subject, level=_COMPATIBILITY)
            return int(self._client.register_schema(subject, asked))

    def find(self, topic: str, schema: Schema) -> int | None:
        """Look up the id of a schema among those registered for the values of a Kafka topic.

        Args:
            topic: Name of the Kafka topic. The subject is `<topic>-value`.
            schema: The schema as parsed JSON.

        Returns:
            The schema id. None if this exact schema is not registered for the topic.

        Raises:
            UsageError: The registry does not accept the schema.
            Unavailable: The registry does not answer, or rejects the request for another reason.
            ConfigError: The URL cannot be used.
        """
        subject, asked = _subject(topic), _asked_schema(schema)
        with self._asked(subject), _nothing_known():
            found: Any = self._client.lookup_schema(subject, asked).schema_id
            return int(found)
        return None

    def schema(self, schema_id: int) -> Schema | None:
        """Fetch a schema by its id.

        Args:
            schema_id: Id of the schema, as in the header of a Kafka value.

        Returns:
            The schema as parsed JSON. None if the registry has no schema with this id.

        Raises:
            Unavailable: The registry does not answer or rejects the request.
            ConfigError: The URL cannot be used.
        """
        with self._asked(f"id {schema_id}"), _nothing_known():
            text: Any = self._client.get_schema(schema_id).schema_str
            parsed: Schema = json.loads(text)
            return parsed
        return None

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        try:
            yield
        except SchemaRegistryError as error:
            raise self._refusal(what, error) from error
        except InvalidURL as error:
            raise _unusable_url(self._name, error) from error
        except HTTPError as error:
            raise Unavailable(
                f"{self._name} did not respond: {error}; check that it is running"
            ) from error
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ) as error:  # raised by the client for an unexpected response
            raise Unavailable(
                f"{self._name} gave an unexpected response for {what}: {error!r}; check that "
                "registry.url is the address of a schema registry"
            ) from error

    def _refusal(self, what: str, error: SchemaRegistryError) -> HourmarkError:
        status, reason = error.http_status_code, error.error_message
        if status == 409:
            return UsageError(
                f"the schema of {what} is not backward compatible with every schema registered "
                f"before it: {reason}; "
                "new fields need a default, and fields keep their type"
            )
        if status == 422:
            return UsageError(
                f"{self._name} does not accept the schema of {what}: {reason}; change the "
                "declaration"
            )
        next_step = _NEXT_STEPS.get(status, "check its log")
        return Unavailable(f"{self._name} refused {what} with {status}: {reason}; {next_step}")


def _client(settings: RegistrySettings) -> SchemaRegistryClient:
    files = {
        "ssl.ca.location": settings.ca,
        "ssl.certificate.location": settings.certificate,
        "ssl.key.location": settings.key if settings.certificate is not None else None,
    }
    named = {name: str(file) for name, file in files.items() if file is not None}
    try:
        return SchemaRegistryClient({"url": settings.url, **named})
    except OSError as error:
        raise ConfigError(
            f"registry.ca, registry.certificate, registry.key: {', '.join(named.values())}: {error}"
        ) from error
    except ValueError as error:
        raise _unusable_url(f"registry.url = {redact_setting(settings.url)}", error) from error


def _unusable_url(what: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{what} is not valid: {redact(str(error))}; allowed: http://host:port or "
        "https://user:password@host:port, with @ / : # ? % in a user name or password written "
        "as %40 %2F %3A %23 %3F %25"
    )


def _subject(topic: str) -> str:
    return f"{topic}-value"  # TopicNameStrategy


def _asked_schema(schema: Schema) -> RegistrySchema:
    return RegistrySchema(canonical_json(schema), "AVRO")


@contextmanager
def _nothing_known() -> Iterator[None]:
    try:
        yield
    except SchemaRegistryError as error:
        # A 404 without an error code means that the URL is wrong, not that an id is unknown.
        if (
            error.http_status_code != 404
            or not isinstance(error.error_code, int)
            or error.error_code <= 0
        ):
            raise
