"""The notebooks in a real kernel: no cell complains, progress is shown, and studies show themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
RUNS = {"first_steps": 1 + 3 * 3 + 1, "your_own_method": 1 + 1 + 4}
"""How many runs each notebook has: every one shows its progress."""

nbformat: Any = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install nbclient ipykernel")
nbclient: Any = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install nbclient ipykernel")


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")  # of the packages around the kernel, which is a process of its own
@pytest.mark.parametrize("name", RUNS)
def test_a_kernel_shows_progress_tables_and_plots(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = {"".join(cell.source): cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    every = [output for outputs in shown.values() for output in outputs]
    assert not [output for output in every if output.get("name") == "stderr" or output.output_type == "error"]
    lines = [output.data["text/html"] for output in every if "<progress" in output.get("data", {}).get("text/html", "")]
    assert len(lines) == RUNS[name]
    for line in lines:
        ended = re.search(r'value="(\d+)" max="(\d+)"', line)
        assert ended is not None
        assert ended[1] == ended[2], "the line says where the run ended"
    (curves,) = shown["study.plot()"]
    assert "image/png" in curves.data
    if "study" in shown:
        (table,) = shown["study"]
        assert table.data["text/html"].count("<tr>") == 1 + 3
