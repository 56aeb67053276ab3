"""The judge imports no code that it judges: only the standard library and third-party packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import hourmark_verify.judge

JUDGE = "hourmark_verify.judge"
FOLDER = Path(hourmark_verify.judge.__file__).parent


def imported_modules(file: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"relative import in {file}"
            modules.add(node.module)
    return modules


def is_of_hourmark(module: str) -> bool:
    return module.partition(".")[0].startswith("hourmark")


def test_every_module_of_the_judge_imports_only_the_judge() -> None:
    files = sorted(FOLDER.rglob("*.py"))
    assert len(files) > 10
    of_hourmark = {
        (file.name, module)
        for file in files
        for module in imported_modules(file)
        if is_of_hourmark(module) and module != JUDGE and not module.startswith(f"{JUDGE}.")
    }
    assert of_hourmark == set()


def test_a_process_that_runs_the_judge_loads_no_other_code_of_hourmark() -> None:
    names = [f"{JUDGE}.{file.stem}" for file in sorted(FOLDER.glob("*.py")) if file.stem[0] != "_"]
    program = f"import sys, {', '.join(names)}\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()
    assert set(names) <= set(loaded)
    others = {
        module
        for module in loaded
        if is_of_hourmark(module)
        and module not in ("hourmark_verify", JUDGE)
        and not module.startswith(f"{JUDGE}.")
    }
    assert others == set()
