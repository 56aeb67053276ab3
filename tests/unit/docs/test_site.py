"""The documentation site is built without a warning: each link and anchor leads somewhere, and each
page is in a table of contents.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.documents import ROOT

pytestmark = pytest.mark.slow


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n"]
    return subprocess.run(
        [*command, "-c", str(ROOT / "docs"), str(source), str(site)], capture_output=True, text=True
    )


def test_the_site_is_built_and_can_be_searched(tmp_path: Path) -> None:
    done = build(ROOT / "docs", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert "hourmark" in (tmp_path / "site" / "searchindex.js").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (tmp_path / "site" / name).is_file()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](other.md#nowhere)", "nowhere"),
        ("[a](nothing.md)", "nothing.md"),
        ("```{toctree}\nmissing\n```", "missing"),
    ],
)
def test_a_dead_link_is_found(text: str, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "index.md").write_text(f"# A\n\n{text}\n\n```{{toctree}}\nother\n```\n")
    (folder / "other.md").write_text("# B\n")
    done = build(folder, tmp_path / "site")
    assert done.returncode != 0 and said in done.stderr
