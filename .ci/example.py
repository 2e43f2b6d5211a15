"""Run the Python of a page in Markdown, and print how long it took: python .ci/example.py README.md."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    start = time.perf_counter()
    for block in re.findall(r"```python\n(.*?)```", Path(sys.argv[1]).read_text(encoding="utf8"), re.DOTALL):
        exec(compile(block, sys.argv[1], "exec"), {"__name__": "__main__"})
    print(f"ran the example in {time.perf_counter() - start:.1f} s")
