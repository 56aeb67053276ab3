"""Servers of the stack that are killed and come back, or that take nothing for a while."""

from __future__ import annotations

import subprocess

from hourmark.errors import Unavailable
from hourmark_infra.stack import LocalStack


def come_back(stack: LocalStack, *names: str) -> None:
    """Start the servers until all are well: a broker that finds no controller in time ends by
    itself.
    """
    for left in reversed(range(3)):
        for name in names:
            stack.start(name)
        try:
            for name in names:
                stack.wait_ready(name)
            return
        except Unavailable:
            if not left:
                raise


def dfsadmin(stack: LocalStack, *words: str) -> str:
    """What `hdfs dfsadmin WORDS` prints; AssertionError where it fails."""
    programs, layout = stack.programs, stack.layout
    classpath = f"{layout.settings / 'hadoop'}:{programs.hadoop}/*"
    command = [
        str(programs.java),
        "-cp",
        classpath,
        "org.apache.hadoop.hdfs.tools.DFSAdmin",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def set_safe_mode(stack: LocalStack, action: str) -> None:
    """`hdfs dfsadmin -safemode ACTION`."""
    dfsadmin(stack, "-safemode", action)
