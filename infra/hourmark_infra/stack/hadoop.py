"""Settings of the NameNode and the DataNodes, for small servers with WebHDFS; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

from hourmark_infra.stack.layout import Layout, replication

LOG4J = """# Hadoop's own pattern and level, to the console, which is the server's log file.
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
# As in Hadoop's own file: no line for each request.
log4j.logger.http.requests=WARN
log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=WARN
"""

# The jars do not contain these folders, and the servers do not start without them.
WEBAPPS = ("hdfs", "datanode", "static")


def core_site(layout: Layout) -> dict[str, str]:
    """Return the Hadoop properties for `core-site.xml`.

    Args:
        layout: Paths and ports of the stack.

    Returns:
        Property names and values: the address of the default file system, and the temporary folder.
    """
    return {
        "fs.defaultFS": f"hdfs://{layout.address('namenode')}",
        "hadoop.tmp.dir": str(layout.data / "hadoop-tmp"),
    }


def hdfs_site(layout: Layout, datanode: str) -> dict[str, str]:
    """Return the HDFS properties for `hdfs-site.xml`.

    The NameNode and the given DataNode both read this file.

    Args:
        layout: Paths and ports of the stack.
        datanode: Name of the DataNode.

    Returns:
        Property names and values.
    """
    copies, _ = replication(len(layout.shape.datanodes))
    return {
        "dfs.replication": str(copies),
        "dfs.webhdfs.enabled": "true",
        # Plain paths, not URIs: the DataNode takes a URI's %20 for a part of the name, and then for
        # a format.
        "dfs.namenode.name.dir": str(layout.data / "namenode" / "name"),
        "dfs.namenode.rpc-address": layout.address("namenode"),
        "dfs.namenode.http-address": layout.address("namenode-http"),
        "dfs.namenode.rpc-bind-host": layout.listening_host,
        "dfs.namenode.http-bind-host": layout.listening_host,
        # Leave safe mode as soon as one DataNode has registered.
        "dfs.namenode.safemode.min.datanodes": "1",
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.handler.count": "4",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        # A dead DataNode is detected in about 20 s instead of 10 minutes.
        "dfs.heartbeat.interval": "1",
        "dfs.namenode.heartbeat.recheck-interval": "5000",
        **_datanode_properties(layout, datanode),
        # WebHDFS redirects writers and readers to this name.
        "dfs.datanode.hostname": layout.host(datanode),
        "dfs.datanode.handler.count": "4",
        # A DataNode's event loop finishes a WebHDFS upload. If the NameNode has not received the
        # block report yet, the loop sleeps this long and serves no other request. With the default
        # of 400 ms, every small file takes that long. The delay doubles with each retry: 11 of them
        # wait for 10 s, as the default of 5 does with 400 ms. With 5, an upload fails after 155 ms.
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
        "dfs.client.block.write.locateFollowingBlock.retries": "11",
        # There is no other DataNode that could replace a failed one.
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
    }


def _datanode_properties(layout: Layout, datanode: str) -> dict[str, str]:
    return {
        "dfs.datanode.data.dir": str(layout.data / datanode / "data"),
        "dfs.datanode.address": layout.listener(datanode),
        "dfs.datanode.http.address": layout.listener(f"{datanode}-http"),
        "dfs.datanode.ipc.address": layout.listener(f"{datanode}-ipc"),
    }


def datanode_options(layout: Layout, datanode: str) -> tuple[str, ...]:
    """Return the command-line options for starting a DataNode.

    DataNodes on the same host share one `hdfs-site.xml`, which contains the ports and the data
    folder of the first one. The options override these values for the others.

    Args:
        layout: Paths and ports of the stack.
        datanode: Name of the DataNode.

    Returns:
        Alternating `-D` and `name=value`. Empty for the first DataNode, and if each server runs on
        a separate host.
    """
    if layout.shape.separate_hosts or datanode == layout.shape.datanodes[0]:
        return ()
    return tuple(
        word
        for name, value in _datanode_properties(layout, datanode).items()
        for word in ("-D", f"{name}={value}")
    )


def render_site(values: Mapping[str, str]) -> str:
    """Render a Hadoop configuration file.

    Args:
        values: Property names and values.

    Returns:
        An XML document with one `<property>` element for each property, sorted by name.
    """
    rows = "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in sorted(values.items())
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{rows}</configuration>\n'
