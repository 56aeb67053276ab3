"""One-time setup of a containerized site: cluster IDs, the ledger's password and TLS certificates.

The role `setup` writes them to the volume that all containers share:

clusters.json       {"edge": …, "central": …}: Kafka cluster IDs, with which brokers format their folders
ledger-password     password of the PostgreSQL user `hourmark`
size.json           numbers that cannot change after the first start, by environment variable
tls/                ca.pem; service.pem of the delivery services and client.pem of their clients, each with its key
ready               written last; all other roles wait for it
types-applied       written by the role `types`; the ETL waits for it

The CA's private key is deleted, so no further certificate can be issued. To create everything
again, remove the volume.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hourmark.errors import ConfigError, Unavailable
from hourmark.process.durable import write_durably
from hourmark_infra.containers.site import BALANCER, ContainerSite
from hourmark_infra.stack.state import new_cluster_ids

READY: Final = "ready"
APPLIED: Final = "types-applied"
SIZE: Final = "size.json"
DELIVERY_SERVICES: Final = ("delivery-1", "delivery-2")
_DAYS: Final = "3650"  # certificate lifetime, longer than such a volume is kept


def create_site_files(shared: Path) -> bool:
    """Create the cluster IDs, database password and TLS certificates of a site, unless they exist.

    A site is a set of containers that form one Hourmark installation. If a call is interrupted, the
    next call creates all files again.

    Args:
        shared: Folder of the volume that all containers of the site share.

    Returns:
        True if the files were created, False if they already existed.

    Raises:
        Unavailable: `openssl` cannot create a certificate.
    """
    if (shared / READY).exists():
        return False
    write_durably(shared / "clusters.json", json.dumps(new_cluster_ids()).encode())
    write_durably(shared / "ledger-password", secrets.token_hex(24).encode())
    tls = shared / "tls"
    shutil.rmtree(tls, ignore_errors=True)
    tls.mkdir(mode=0o700)
    _issue_certificates(tls)
    write_durably(shared / READY, b"")
    return True


def record_size(shared: Path, site: ContainerSite) -> None:
    """Record the size of a site at its first start.

    Args:
        shared: Folder of the volume that all containers of the site share.
        site: The site, as read from environment variables.
    """
    if not (shared / SIZE).exists():
        write_durably(shared / SIZE, json.dumps(_fixed_values(site)).encode())


def check_size(shared: Path, site: ContainerSite) -> None:
    """Check that a container has the size with which its site was started first.

    The number of brokers and the length of a bucket cannot change afterwards. A site that version
    0.3.0 started has no record until its next start; then nothing is checked.

    Args:
        shared: Folder of the volume that all containers of the site share.
        site: The site, as read from environment variables.

    Raises:
        ConfigError: The size is another one.
    """
    if not (shared / SIZE).exists():
        return
    started: dict[str, int] = json.loads((shared / SIZE).read_bytes())
    wanted = _fixed_values(site)
    if changed := [name for name in started if wanted.get(name) != started[name]]:
        raise ConfigError(
            f"this site was started with {', '.join(f'{n}={started[n]}' for n in changed)}, not "
            f"{', '.join(str(wanted.get(name)) for name in changed)}; repeat the option --env-file "
            "of the first start in every compose command, such as `--env-file "
            "infra/containers/small.env`. To start with another size, delete all volumes first"
        )


def _fixed_values(site: ContainerSite) -> dict[str, int]:
    return {
        "SITE_EDGE_BROKERS": site.edge,
        "SITE_CENTRAL_BROKERS": site.central,
        "SITE_BUCKET_SECONDS": site.bucket_seconds,
    }


def read_cluster_ids(shared: Path) -> dict[str, str]:
    """Read the Kafka cluster IDs that `create_site_files` generated for a site.

    A site is a set of containers that form one Hourmark installation.

    Args:
        shared: Folder of the volume that all containers of the site share.

    Returns:
        Maps the cluster names `edge` and `central` to cluster IDs.

    Raises:
        FileNotFoundError: `create_site_files` has not created the file yet.
    """
    ids: dict[str, str] = json.loads((shared / "clusters.json").read_bytes())
    return ids


def _issue_certificates(tls: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ca_key = Path(folder) / "ca.key"
        made = (
            "-x509",
            "-days",
            _DAYS,
            "-keyout",
            str(ca_key),
            "-out",
            str(tls / "ca.pem"),
            "-subj",
            "/CN=hourmark-site",
        )
        _run_openssl(*made)
        issued = ("-x509", "-days", _DAYS, "-CA", str(tls / "ca.pem"), "-CAkey", str(ca_key))
        for name, hosts in (
            ("service", (BALANCER, *DELIVERY_SERVICES, "localhost")),
            ("client", ()),
        ):
            certificate, key = Path(folder) / f"{name}.pem", Path(folder) / f"{name}.key"
            files = ("-keyout", str(key), "-out", str(certificate))
            _run_openssl(
                *issued, *files, "-subj", f"/CN=hourmark-{name}", *_extension_options(hosts)
            )
            write_durably(tls / f"{name}.pem", certificate.read_bytes() + key.read_bytes())


def _extension_options(hosts: Sequence[str]) -> tuple[str, ...]:
    names = (
        ("-addext", "subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts)) if hosts else ()
    )
    return ("-addext", "basicConstraints=critical,CA:FALSE", *names)


def _run_openssl(*arguments: str) -> None:
    command = (
        "openssl",
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        *arguments,
    )
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"openssl cannot create a certificate: {done.stderr.strip()[-500:]}")
