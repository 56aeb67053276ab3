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
    """A hatchling build hook that compiles the extension module and adds it to the wheel.

    The wheel of a platform works with all supported Python versions (stable ABI).
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the packages that the build requires in addition to those of `pyproject.toml`.

        Returns:
            The package `ziglang`, which contains a C compiler; empty if a C compiler is installed.
        """
        return [] if native_build.installed_compiler() else [_ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the extension module and include it in the package.

        If compilation fails, a warning is shown, and the wheel contains only Python code.

        Args:
            version: Build target version. For `editable`, the module is written to the source tree;
                otherwise, it is added to the wheel.
            build_data: Build configuration of hatchling, updated with the module and the platform
                tag.
        """
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

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version != "editable":
            shutil.rmtree(self._folder, ignore_errors=True)

    def _compile(self, target: Path) -> bool:
        try:
            native_build.compile_module(
                target, native_build.installed_compiler() or native_build.zig_compiler()
            )
        except native_build.CannotCompile as error:
            target.unlink(missing_ok=True)  # it may be from other sources
            self.app.display_warning(
                "built without the compiled module; Python code is used instead, at several times "
                f"the CPU cost: {error}"
            )
            return False
        return True
