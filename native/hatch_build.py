"""Build hook of hatchling that adds the compiled module to the wheel.

If it cannot be compiled, the wheel contains only Python code, and a warning is shown.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

import native_build

_PLACE = Path("hourmark_native") / native_build.NAME
_ZIG = "ziglang>=0.13"


class NativeHook(BuildHookInterface):
    """A build hook that makes one wheel for each platform, for all versions of Python (stable ABI)."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the build dependencies: a C compiler, if the machine has none."""
        return [] if native_build.installed_compiler() else [_ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the module into the source tree (editable installation) or into the wheel."""
        if version == "editable":
            self._compile(Path(self.root) / _PLACE)
            return
        self._folder = Path(tempfile.mkdtemp())
        made = self._folder / native_build.NAME
        if self._compile(made):
            build_data["pure_python"] = False
            build_data["tag"] = (
                f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            )
            build_data["force_include"][str(made)] = str(_PLACE)

    # hatchling's
    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Delete the temporary folder of the build."""
        if version != "editable":
            shutil.rmtree(self._folder, ignore_errors=True)

    def _compile(self, target: Path) -> bool:
        try:
            native_build.compile_module(
                target, native_build.installed_compiler() or native_build.zig_compiler()
            )
        except native_build.CannotCompile as error:
            target.unlink(missing_ok=True)  # what was compiled of other sources is none of these
            self.app.display_warning(
                "the compiled module is left out, Python will do its work, at several "
                f"times the CPU: {error}"
            )
            return False
        return True
