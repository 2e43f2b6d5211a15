"""Execute the notebooks of this folder; fails when a cell raises.

python notebooks/execute.py [NOTEBOOK …]

Each executed copy goes to build/notebooks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parent
OUTPUT = FOLDER.parent / "build" / "notebooks"


def execute(path: Path) -> bool:
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
    return True


def main() -> int:
    """Execute the notebooks named, or all of the folder."""
    paths = [Path(argument) for argument in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb"))
    results = [execute(path) for path in paths]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
