"""Python workers that are used again: what PySpark does between two tasks is to cost less than a
small task.

Before each task it invalidates the caches of imports: for every folder of an archive that modules
came from, Python then reads the archive's whole directory again (up to 3.11), and Spark hands
PySpark itself to its workers as a zip. After each task it collects garbage, for which everything
that was ever loaded is looked at. With what staging loads, that was more CPU than staging itself in
batches of 20,000 events.
"""

from __future__ import annotations

import gc
import sys
import zipimport


def spare_loaded() -> None:
    """Leave what this process has loaded out of both from now on.

    Every task of ours begins with it.

    Imports go on to work: a finder that is needed again is made again, of the directory that is
    known.
    """
    if not gc.get_freeze_count():  # once: what a task leaves behind is to be collected
        gc.freeze()
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[place]
