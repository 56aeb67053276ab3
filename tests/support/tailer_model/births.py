"""Birth times of files as the tailer sees them: a copy-up by overlayfs gives a file another one
under the same inode.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

# a file of JSON: how often each inode was copied up; where there is none, no file was
VARIABLE: Final = "HOURMARK_TEST_BIRTHS"


def install() -> None:
    """Add to the birth times of this process what the file says now: no file is copied up while the
    tailer holds it open.
    """
    from hourmark.process import file_identity
    from hourmark_producer.wiring import wire_tailer

    path = Path(os.environ.get(VARIABLE, "/nowhere"))
    if not path.exists():
        return
    copied, real = json.loads(path.read_text()), file_identity._birth_ns

    def birth_ns(descriptor: int) -> int:
        born_ns = real(descriptor)
        return born_ns and born_ns + copied.get(f"{os.fstat(descriptor).st_ino}/{born_ns}", 0)

    def may_be_copied_up(descriptor: int) -> bool:
        inode = os.fstat(descriptor).st_ino
        return any(key.startswith(f"{inode}/") for key in copied)

    file_identity._birth_ns = birth_ns
    defaults = wire_tailer.__kwdefaults__
    assert defaults is not None and "may_be_copied_up" in defaults
    defaults["may_be_copied_up"] = may_be_copied_up
