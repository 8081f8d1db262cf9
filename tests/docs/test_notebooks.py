"""The notebooks run from top to bottom, and lie in the repository without outputs."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_given_a_notebook_then_it_is_stored_without_outputs(name: str) -> None:
    import nbformat

    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


@pytest.mark.slow  # each starts a kernel, and a pool of processes or five programs
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    if name == "consortium-on-one-machine":
        # A new program answers each message, and loads PyTorch: one round shows as much as three.
        [cell] = [cell for cell in notebook.cells if "num-rounds=3" in cell.source]
        cell.source = cell.source.replace("num-rounds=3", "num-rounds=1")
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": tmp_path}})
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    words = "\n".join(str(output.get("text", output.get("data"))) for output in shown)
    assert "error" in words or "right" in words
    assert "stderr" not in {output.get("name") for output in shown}, words
    if name == "sets-without-labels":
        # One bar for each run, which ended full; no line for each round.
        assert words.count("10/10") == 2 * 2  # as text and as HTML
        assert "round 3/10" not in words
