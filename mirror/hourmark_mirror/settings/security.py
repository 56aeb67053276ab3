"""How MirrorMaker 2 gets into a cluster: librdkafka's settings in Java's names.

What cannot be said in Java stops the start.

Secrets stand in a file of their own, and MirrorMaker's properties refer to it: it writes these, as
they are, into a topic of the target (its connectors' configurations), from where other workers take
them: so the file is named without its folder, which is where each worker's Java runs. Files of
certificates and keys are referred to as well, and read at each start; their paths must be the same
for all workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hourmark.config.groups import KafkaCluster
from hourmark.errors import ConfigError

PROVIDERS: Final[Mapping[str, str]] = {  # how references are resolved (KIP-297)
    "config.providers": "file,directory",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}

_SAME: Final = (
    "security.protocol",
    "sasl.mechanism",
    "ssl.keystore.location",
    "ssl.endpoint.identification.algorithm",
)
_JAVA_NAMES: Final[Mapping[str, str]] = {
    **{name: name for name in _SAME},
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
}
_FILES: Final[Mapping[str, str]] = {
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
_SECRETS: Final = ("ssl.keystore.password", "ssl.key.password")
_LOGIN: Final = ("sasl.username", "sasl.password")
_LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_ALLOWED: Final = (*_JAVA_NAMES, *_FILES, *_SECRETS, *_LOGIN)
_KEYS_OF_JAVA: Final = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def client_security(alias: str, cluster: KafkaCluster, secrets_file: str) -> dict[str, str]:
    """Security in Java's names, with references in place of secrets and of what stands in files of
    PEM.

    `secrets_file`: its name, in the folder where Java runs.
    """
    given = cluster.properties
    values: dict[str, str] = {}
    for name, value in given.items():
        if name in _JAVA_NAMES:
            values[_JAVA_NAMES[name]] = value
        elif name in _FILES:
            folder = str(Path(value).parent.absolute())
            values |= {
                "ssl.keystore.type": "PEM",
                _FILES[name]: _reference("directory", folder, Path(value).name),
            }
        elif name.startswith(("ssl.", "sasl.", "security.")) and name not in _ALLOWED:
            raise ConfigError(
                f"kafka properties: {name} of cluster {alias!r} cannot be passed to MirrorMaker 2; "
                f"allowed: {', '.join(sorted(_ALLOWED))}"
            )
    if "ssl.ca.location" in given:
        values["ssl.truststore.type"] = "PEM"
    if values.get("ssl.endpoint.identification.algorithm") == "none":
        values["ssl.endpoint.identification.algorithm"] = ""  # Java's word for it
    values = {f"{alias}.{name}": value for name, value in values.items()}
    return values | {
        name: _reference("file", secrets_file, name) for name in secret_settings(alias, cluster)
    }


def secret_settings(alias: str, cluster: KafkaCluster) -> dict[str, str]:
    """What stands in the file of secrets, by the names of MirrorMaker's properties."""
    given = cluster.properties
    return _login(alias, given) | {
        f"{alias}.{name}": given[name] for name in _SECRETS if name in given
    }


def check_bootstrap(alias: str, cluster: KafkaCluster) -> None:
    """ConfigError where an address names a user: Java refuses it, and its log would show the
    password.
    """
    if "@" in cluster.bootstrap:
        raise ConfigError(
            f"kafka: the bootstrap addresses of cluster {alias!r} contain @, which MirrorMaker "
            "2 refuses; allowed: host:port, "
            "comma separated. Give the login as the properties sasl.username and sasl.password"
        )


def check_private_key(alias: str, cluster: KafkaCluster) -> None:
    """ConfigError where the private key cannot be read by Java, which would say so of every single
    connection.
    """
    file = cluster.properties.get("ssl.key.location")
    if file is None:
        return
    try:
        text = Path(file).read_text(errors="replace")
    except OSError as error:
        raise ConfigError(
            f"kafka properties: ssl.key.location = {file!r} of cluster {alias!r}: {error.strerror}"
        ) from error
    if not any(begin in text for begin in _KEYS_OF_JAVA):
        raise ConfigError(
            f"kafka properties: ssl.key.location = {file!r} of cluster {alias!r} is no key in "
            "PKCS #8 (BEGIN PRIVATE KEY), which "
            "MirrorMaker 2 needs; make one with `openssl pkcs8 -topk8`, for all rooms"
        )


def _reference(provider: str, place: str, key: str) -> str:
    return f"${{{provider}:{place}:{key}}}"


def _login(alias: str, given: Mapping[str, str]) -> dict[str, str]:
    if "sasl.username" not in given:
        return {}
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms", "PLAIN")
    if mechanism not in _LOGIN_MODULES:
        raise ConfigError(
            f"kafka properties: sasl.mechanism = {mechanism!r}; allowed: "
            f"{', '.join(_LOGIN_MODULES)}"
        )
    user, password = (_quoted(given.get(name, "")) for name in _LOGIN)
    return {
        f"{alias}.sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
