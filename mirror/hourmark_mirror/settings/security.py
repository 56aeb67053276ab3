"""Security settings of MirrorMaker 2: librdkafka's settings translated to Java names.

A setting without a Java equivalent prevents the start.

Secrets are stored in a separate file, and the properties of MirrorMaker 2 only refer to it. The
reason is that MirrorMaker 2 copies its properties to a topic on the target, from which other
workers read them. The reference contains the name of the file without its folder, which is the
working folder of each worker. Certificate and key files are also referenced and read at each start;
their paths must be the same for all workers.
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
    """Translate the security settings of a cluster from librdkafka to Java client properties.

    Secrets and the contents of PEM files are replaced with references that Java resolves (KIP-297).

    Args:
        alias: Alias of the cluster, used as the prefix of each property.
        cluster: Cluster settings with librdkafka properties.
        secrets_file: Name of the file in the work folder that contains the secrets.

    Returns:
        Java property names, each prefixed with the alias and a dot, and values; empty if the
        cluster has no security settings.

    Raises:
        ConfigError: A property has no Java equivalent, or the SASL mechanism is not supported. The
            message lists the allowed properties.
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
        values["ssl.endpoint.identification.algorithm"] = ""  # Java's value for "none"
    values = {f"{alias}.{name}": value for name, value in values.items()}
    return values | {
        name: _reference("file", secrets_file, name) for name in secret_settings(alias, cluster)
    }


def secret_settings(alias: str, cluster: KafkaCluster) -> dict[str, str]:
    """Return the passwords and the login of a cluster as MirrorMaker 2 properties.

    Args:
        alias: Alias of the cluster, used as the prefix of each property.
        cluster: Cluster settings with librdkafka properties.

    Returns:
        Property names and secret values; empty if the cluster has no login and no passwords.

    Raises:
        ConfigError: The SASL mechanism is not supported.
    """
    given = cluster.properties
    return _login(alias, given) | {
        f"{alias}.{name}": given[name] for name in _SECRETS if name in given
    }


def check_bootstrap(alias: str, cluster: KafkaCluster) -> None:
    """Check that the bootstrap addresses of a cluster do not contain a user name.

    Java rejects such an address, and would write the password to its log.

    Args:
        alias: Alias of the cluster, for the error message.
        cluster: Cluster settings that contain the addresses.

    Raises:
        ConfigError: An address contains `@`. Configure the login as a SASL property instead.
    """
    if "@" in cluster.bootstrap:
        raise ConfigError(
            f"kafka: the bootstrap addresses of cluster {alias!r} contain @, which MirrorMaker 2 "
            "refuses; allowed: host:port, comma separated. Set the login in the properties "
            "sasl.username and sasl.password"
        )


def check_private_key(alias: str, cluster: KafkaCluster) -> None:
    """Check that Java can read the private key that is configured for a cluster.

    Java only accepts PKCS #8 keys in PEM format. With any other key, it would log an error for
    every connection. Does nothing if no key is configured.

    Args:
        alias: Alias of the cluster, for the error message.
        cluster: Cluster settings; `ssl.key.location` is the path of the key file.

    Raises:
        ConfigError: The file cannot be read or does not contain a PKCS #8 key.
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
            f"kafka properties: ssl.key.location = {file!r} of cluster {alias!r} is not a "
            "PKCS #8 key (BEGIN PRIVATE KEY), which MirrorMaker 2 needs; convert it with `openssl "
            "pkcs8 -topk8`, which all components accept"
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
