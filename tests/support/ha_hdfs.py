"""A real HDFS with a name service and HTTPS: two NameNodes that share their edit log in a folder,
and one DataNode.

With a KDC, all servers and clients use Kerberos, and the traffic between them is encrypted.

There is no ZooKeeper: tests fail over themselves (`hdfs haadmin`). The edit log is in a shared
folder, as on NFS, so that no JournalNodes are needed.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Final, Self, cast

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12PrivateKeyTypes,
    serialize_key_and_certificates,
)
from cryptography.x509 import load_pem_x509_certificate
from tests.support.certificates import Authority
from tests.support.kdc import REALM, TICKET_S, Kdc
from tests.support.ports import free_port
from tests.support.waiting import wait_for

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage.spnego import negotiate_header
from hourmark_infra.stack.hadoop import LOG4J, WEBAPPS, render_site
from hourmark_infra.stack.servers import DATANODE, NAMENODE, SMALL_JAVA, Programs

SERVICE: Final = "events"
USER: Final = "root"
_STARTING_S: Final = 300.0
_PAUSE_S: Final = 0.5
_DFSADMIN: Final = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_FS_SHELL: Final = "org.apache.hadoop.fs.FsShell"
_HAADMIN: Final = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
_SERVER: Final = "hdfs/127.0.0.1"
_KERBEROS_CORE: Final = {
    "hadoop.security.authentication": "kerberos",
    "hadoop.rpc.protection": "privacy",
}
_SETTINGS: Final = {
    "dfs.replication": "1",
    "dfs.http.policy": "HTTPS_ONLY",
    "dfs.nameservices": SERVICE,
    f"dfs.ha.namenodes.{SERVICE}": "nn1,nn2",
    f"dfs.client.failover.proxy.provider.{SERVICE}": (
        "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    ),
    # The tests end the active NameNode, or make it a standby, before the other takes over.
    "dfs.ha.fencing.methods": "shell(/bin/true)",
    "dfs.namenode.safemode.min.datanodes": "1",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.datanode.hostname": "127.0.0.1",
    "dfs.heartbeat.interval": "1",
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
    "dfs.client.block.write.locateFollowingBlock.retries": "11",
    "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
}


class HaHdfs:
    """The servers, from the start of a `with` block to its end; logs stay in `folder`.

    nn1 is active at first. With a KDC, the client is `hourmark/127.0.0.1`, whose tickets are short.

    Args:
        programs: Java and Hadoop.
        folder: Folder of all files.
        kdc: The KDC of a cluster with Kerberos.
        token_s: With a KDC, the seconds after which a delegation token expires.
    """

    def __init__(
        self, programs: Programs, folder: Path, kdc: Kdc | None = None, token_s: int = 86_400
    ) -> None:
        self._programs, self.folder, self._kdc, self._token_s = programs, folder, kdc, token_s
        self._authority = Authority(folder / "tls")
        self._https = {name: f"127.0.0.1:{free_port()}" for name in ("nn1", "nn2")}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._write_settings()

    def __enter__(self) -> Self:
        try:
            self._run(NAMENODE, "-D", "dfs.ha.namenode.id=nn1", "-format", "-nonInteractive")
            shutil.copytree(self.folder / "nn1", self.folder / "nn2")
            for name in ("nn1", "nn2", "datanode"):
                self.start(name)
            wait_for(
                lambda: None not in map(self.state, self._https),
                "NameNodes start",
                _STARTING_S,
                _PAUSE_S,
            )
            self.activate("nn1")
            wait_for(lambda: self._is_writable("nn1"), "HDFS is writable", _STARTING_S, _PAUSE_S)
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    @property
    def settings(self) -> StorageSettings:
        """For a client of both NameNodes."""
        identity: dict[str, Any] = {"user": USER}
        if self._kdc is not None:
            principal = f"hourmark/127.0.0.1@{REALM}"
            identity = {"principal": principal, "keytab": self._client_keytab}
        return StorageSettings(
            root=f"hdfs://{SERVICE}/hourmark",
            webhdfs=",".join(f"https://{address}" for address in self._https.values()),
            ca=self._authority.ca,
            replication=1,
            **identity,
        )

    def start(self, name: str) -> None:
        """Start a server that does not run."""
        own = () if name == "datanode" else ("-D", f"dfs.ha.namenode.id={name}")
        main_class = DATANODE if name == "datanode" else NAMENODE
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._command(main_class, *own), cwd=self.folder, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        server = self._running.pop(name)
        server.kill()
        server.wait()

    def activate(self, name: str) -> None:
        """Make a standby active; the other must be a standby, or dead."""
        self._run(_HAADMIN, "-transitionToActive", "--forceactive", name)
        assert self.state(name) == "active"

    def retire(self, name: str) -> None:
        """Make the active NameNode a standby."""
        self._run(_HAADMIN, "-transitionToStandby", name)

    def fail_over(self, active: str, standby: str) -> None:
        """Swap the two; for a moment, there is no active NameNode."""
        self.retire(active)
        self.activate(standby)

    def dfsadmin(self, *words: str) -> None:
        """`hdfs dfsadmin WORDS`."""
        self._run(_DFSADMIN, *words)

    def dfs(self, *words: str) -> str:
        """`hdfs dfs WORDS`, as the superuser; returns what it prints."""
        return self._run(_FS_SHELL, *words)

    def state(self, name: str) -> str | None:
        """`active` or `standby`; None while it does not respond."""
        return self._read(name, "NameNodeStatus", "State")

    def _is_writable(self, name: str) -> bool:
        live = self._read(name, "NameNodeInfo", "LiveNodes")
        return bool(json.loads(live or "{}")) and not self._read(name, "NameNodeInfo", "Safemode")

    def _read(self, name: str, bean: str, attribute: str) -> str | None:
        url = f"https://{self._https[name]}/jmx?qry=Hadoop:service=NameNode,name={bean}"
        try:
            context = ssl.create_default_context(cafile=self._authority.ca)
            request = urllib.request.Request(url, headers=self._authorization())
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                (found,) = json.load(answer)["beans"]
                return str(found[attribute])
        except (OSError, ValueError, KeyError):
            assert self._running[name].poll() is None, f"{name} ended (see {self.folder})"
            return None

    def _authorization(self) -> dict[str, str]:
        if self._kdc is None:
            return {}
        principal = f"hourmark/127.0.0.1@{REALM}"
        return {"Authorization": negotiate_header("127.0.0.1", principal, self._client_keytab)}

    def _write_settings(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir()
        for webapp in WEBAPPS:
            (conf / "webapps" / webapp).mkdir(parents=True)
        core = {
            "fs.defaultFS": f"hdfs://{SERVICE}",
            "hadoop.tmp.dir": str(self.folder / "tmp"),
            # An HttpFS of this user may act for its clients.
            f"hadoop.proxyuser.{USER}.hosts": "*",
            f"hadoop.proxyuser.{USER}.groups": "*",
        }
        own = {
            "dfs.namenode.shared.edits.dir": (self.folder / "edits").as_uri(),
            "dfs.datanode.data.dir": str(self.folder / "data"),
            **{
                f"dfs.datanode.{of}address": f"127.0.0.1:{free_port()}"
                for of in ("", "https.", "ipc.")
            },
        }
        for name, https in self._https.items():
            own |= {
                f"dfs.namenode.name.dir.{SERVICE}.{name}": str(self.folder / name),
                f"dfs.namenode.rpc-address.{SERVICE}.{name}": f"127.0.0.1:{free_port()}",
                f"dfs.namenode.https-address.{SERVICE}.{name}": https,
            }
        if self._kdc is not None:
            core |= _KERBEROS_CORE
            own |= self._kerberos_settings(self._kdc)
        (conf / "ssl-server.xml").write_text(render_site(self._keystore()))
        (conf / "core-site.xml").write_text(render_site(core))
        (conf / "hdfs-site.xml").write_text(render_site({**_SETTINGS, **own}))
        (conf / "log4j.properties").write_text(LOG4J)

    def _kerberos_settings(self, kdc: Kdc) -> dict[str, str]:
        self._client_keytab = kdc.keytab("hourmark/127.0.0.1", ticket_s=TICKET_S)
        self._server_keytab = kdc.keytab(_SERVER)
        web = kdc.keytab("HTTP/127.0.0.1")
        return {
            "hadoop.http.authentication.type": "kerberos",
            "hadoop.http.authentication.kerberos.principal": f"HTTP/127.0.0.1@{REALM}",
            "hadoop.http.authentication.kerberos.keytab": str(web),
            "dfs.namenode.kerberos.principal": f"{_SERVER}@{REALM}",
            "dfs.namenode.keytab.file": str(self._server_keytab),
            "dfs.datanode.kerberos.principal": f"{_SERVER}@{REALM}",
            "dfs.datanode.keytab.file": str(self._server_keytab),
            "dfs.web.authentication.kerberos.principal": f"HTTP/127.0.0.1@{REALM}",
            "dfs.web.authentication.kerberos.keytab": str(web),
            "dfs.block.access.token.enable": "true",
            "dfs.data.transfer.protection": "privacy",
            "dfs.namenode.delegation.token.renew-interval": str(self._token_s * 1000),
        }

    def _keystore(self) -> dict[str, str]:
        pair, file = self._authority.issue("servers"), self.folder / "tls" / "servers.p12"
        certificate = load_pem_x509_certificate(pair.certificate.read_bytes())
        key = load_pem_private_key(pair.key.read_bytes(), None)
        password = uuid.uuid4().hex
        file.write_bytes(
            serialize_key_and_certificates(
                b"servers",
                cast(PKCS12PrivateKeyTypes, key),
                certificate,
                None,
                BestAvailableEncryption(password.encode()),
            )
        )
        return {
            "ssl.server.keystore.location": str(file),
            "ssl.server.keystore.type": "PKCS12",
            "ssl.server.keystore.password": password,
            "ssl.server.keystore.keypassword": password,
        }

    def _command(self, main_class: str, *words: str) -> list[str]:
        classpath = f"{self.folder / 'conf'}:{self._programs.hadoop}/*"
        options = ["-Xmx256m", *SMALL_JAVA, f"-Dhadoop.log.dir={self.folder}", "-cp", classpath]
        if self._kdc is not None:
            options.append(f"-Djava.security.krb5.conf={self._kdc.config}")
        return [str(self._programs.java), *options, main_class, *words]

    def _run(self, main_class: str, *words: str) -> str:
        environment = {**os.environ, "HADOOP_USER_NAME": USER}
        if self._kdc is not None:
            self._kdc.kinit(_SERVER, self._server_keytab)
            environment = {**os.environ, **self._kdc.environment}
        done = subprocess.run(
            self._command(main_class, *words),
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_STARTING_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _end_all(self) -> None:
        for name in list(self._running):
            self.kill(name)
