"""Execute the notebooks of this folder; fails when a cell raises.

python notebooks/execute.py [--write] [NOTEBOOK …]

Each executed copy goes to build/notebooks; --write keeps the outputs in the notebook itself.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parent
OUTPUT = FOLDER.parent / "build" / "notebooks"


def execute(path: Path, *, keeps_outputs: bool) -> bool:
    """Execute one notebook, announcing each cell of code; return whether it went through."""
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    total = sum(cell.cell_type == "code" for cell in notebook.cells)
    done = 0
    start = time.perf_counter()
    try:
        with client.setup_kernel():
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type == "code":
                    done += 1
                    first = cell.source.splitlines()[0]
                    print(f"{path.name} [{done}/{total}] (+{time.perf_counter() - start:.1f}s) {first}", flush=True)
                    client.execute_cell(cell, index)
    except nbclient.exceptions.CellExecutionError as error:
        print(error, file=sys.stderr)
        return False
    finally:
        OUTPUT.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, OUTPUT / path.name)
    if keeps_outputs:
        nbformat.write(without_times(notebook), path)
    return True


def without_times(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a notebook without what differs between two executions of it: times and the kernel's version."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main() -> int:
    """Execute the notebooks named, or all of the folder."""
    options = sys.argv[1:]
    keeps_outputs = "--write" in options
    paths = [Path(option) for option in options if option != "--write"] or sorted(FOLDER.glob("*.ipynb"))
    results = [execute(path, keeps_outputs=keeps_outputs) for path in paths]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
