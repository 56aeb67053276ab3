"""The schema registry, by Confluent's API: one id space for all sites."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka.schema_registry import Schema as RegistrySchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx2 import HTTPError

from hourmark.avro import Schema
from hourmark.config import Registry
from hourmark.errors import Unavailable, UsageError


class SchemaRegistry:
    """Registers and fetches Avro schemas. Raises Unavailable, naming the URL, when it does not answer."""

    def __init__(self, settings: Registry) -> None:
        self._url = settings.url
        self._client = SchemaRegistryClient({"url": settings.url})

    def close(self) -> None:
        """Let go of its connections."""
        self._client.close()

    def register(self, topic: str, schema: Schema) -> int:
        """The id of `schema` under TopicNameStrategy; registers it where it is new. UsageError if it is incompatible."""
        subject = f"{topic}-value"
        try:
            self._client.set_compatibility(subject_name=subject, level="BACKWARD")
            return int(self._client.register_schema(subject, RegistrySchema(json.dumps(schema), "AVRO")))
        except (SchemaRegistryError, HTTPError) as error:
            if isinstance(error, SchemaRegistryError) and error.http_status_code == 409:
                raise UsageError(
                    f"the schema of {subject} is not backward compatible with the registered one: {error.error_message}; "
                    "new fields need a default, and fields keep their type"
                ) from error
            raise self._unavailable(error) from error

    def find(self, topic: str, schema: Schema) -> int | None:
        """The id under which this very schema is registered under TopicNameStrategy; None where it is not."""
        try:
            return self._client.lookup_schema(f"{topic}-value", RegistrySchema(json.dumps(schema), "AVRO")).schema_id
        except (SchemaRegistryError, HTTPError) as error:
            if isinstance(error, SchemaRegistryError) and error.http_status_code == 404:
                return None
            raise self._unavailable(error) from error

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of this id; None if the registry answers, and knows none."""
        try:
            text: Any = self._client.get_schema(schema_id).schema_str
        except (SchemaRegistryError, HTTPError) as error:
            if isinstance(error, SchemaRegistryError) and error.http_status_code == 404:
                return None
            raise self._unavailable(error) from error
        parsed: Schema = json.loads(text)
        return parsed

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(f"the schema registry {self._url} (registry.url) did not answer: {error}; is it up?")
