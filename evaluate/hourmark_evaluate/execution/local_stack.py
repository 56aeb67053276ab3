"""Operations on the servers of a local stack, and the CPU time of its brokers."""

from __future__ import annotations

import dataclasses
import shutil
import signal
from collections.abc import Callable, Iterable
from typing import Final

import psutil
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from hourmark.kafka.clients import TIMEOUT_S
from hourmark_evaluate.clients.cluster import EvaluatedCluster
from hourmark_evaluate.execution.server_operations import ServerOperations
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.servers import MIRROR

_LIMIT: Final = "max.message.bytes"
_SET, _UNSET = AlterConfigOpType.SET, AlterConfigOpType.DELETE
# In bytes: smaller than a batch of one record, and larger than a transaction marker (78). If even
# markers do not fit, the coordinator of Kafka 4.3 never completes the transaction, and a restart of
# the mirror does not help.
_TOO_SMALL: Final = "100"


def required_servers(stack: LocalStack) -> tuple[str, ...]:
    """Return the servers of a local stack that an evaluation needs: brokers and MirrorMaker 2.

    Args:
        stack: The local stack, running or not.

    Returns:
        Names of the servers, such as `edge-1`.
    """
    return tuple(name for name in stack.names if name.startswith(("edge-", "central-", MIRROR)))


def local_operations(stack: LocalStack, central: EvaluatedCluster | None) -> ServerOperations:
    """Return the operations that an evaluation can perform on the servers of a local stack.

    Args:
        stack: The running stack.
        central: The central cluster. If it is None or if the stack has no mirror, operations on the
            mirror and on its target are not available.
    """

    def wipe(broker: int) -> None:
        shutil.rmtree(stack.server(_server_name(broker)).data)

    of_brokers = ServerOperations(
        stop_broker=lambda broker: stack.kill(_server_name(broker)),
        start_broker=lambda broker: stack.start(_server_name(broker)),
        wipe_broker=wipe,
        pause_broker=lambda broker: stack.send_signal(_server_name(broker), signal.SIGSTOP),
        resume_broker=lambda broker: stack.send_signal(_server_name(broker), signal.SIGCONT),
    )
    workers = {
        stack.server(name).address: name
        for name in stack.layout.shape.mirrors
        if name in stack.names
    }
    if central is None or not workers:
        return of_brokers
    return dataclasses.replace(
        of_brokers,
        refuse_target=lambda topic: _alter_message_limit(
            central, topic, ConfigEntry(_LIMIT, _TOO_SMALL, incremental_operation=_SET)
        ),
        accept_target=lambda topic: _alter_message_limit(
            central, topic, ConfigEntry(_LIMIT, None, incremental_operation=_UNSET)
        ),
        stop_worker=lambda worker: stack.kill(workers[worker]),
        start_worker=lambda worker: stack.start(workers[worker]),
        pause_worker=lambda worker: stack.send_signal(workers[worker], signal.SIGSTOP),
        resume_worker=lambda worker: stack.send_signal(workers[worker], signal.SIGCONT),
        stop_mirror=lambda: _call_for_each(stack.kill, workers.values()),
        start_mirror=lambda: _call_for_each(stack.start, workers.values()),
    )


def read_broker_cpu_seconds(stack: LocalStack) -> dict[int, float]:
    """Read the CPU time that each edge broker has used since its process started.

    Args:
        stack: The running local stack.

    Returns:
        CPU seconds by process id. Brokers that are not running are omitted. A restarted broker has
        a new process id and starts at 0.
    """
    processes = [process for name in stack.brokers if (process := stack.process(name)) is not None]
    times = {process.pid: psutil.Process(process.pid).cpu_times() for process in processes}
    return {pid: float(spent.user + spent.system) for pid, spent in times.items()}


def _server_name(broker: int) -> str:
    return f"edge-{broker}"


def _call_for_each(operation: Callable[[str], None], names: Iterable[str]) -> None:
    for name in names:
        operation(name)


def _alter_message_limit(central: EvaluatedCluster, topic: str, entry: ConfigEntry) -> None:
    # Below the size of any record, the target refuses each write with MESSAGE_TOO_LARGE, which a
    # retry does not resolve. A high min.insync.replicas would not refuse writes if the topic has
    # one replica: brokers require no more in-sync replicas than there are.
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in central.cluster.admin.incremental_alter_configs(
        [resource], request_timeout=TIMEOUT_S
    ).values():
        future.result(TIMEOUT_S + 1)
