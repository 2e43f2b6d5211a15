"""`thunder.view`: a page about a compiled callable."""

from __future__ import annotations

import html
import html.parser
import inspect
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder

LAYER = torch.nn.Linear(8, 8)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
VOID = {"meta", "br", "link", "img", "input", "hr"}


def program(x: torch.Tensor) -> torch.Tensor:
    y = LAYER(x)
    z = torch.softmax(y, -1) * 2
    return z.sum()


FIRST_LINE = inspect.getsourcelines(program)[1]


@pytest.fixture(scope="module")
def compiled() -> Any:
    f = thunder.jit(program)
    f(torch.randn(4, 8)).backward()
    return f


@pytest.fixture(scope="module")
def page(compiled: Any) -> thunder.View:
    return thunder.view(compiled)


class Checker(html.parser.HTMLParser):
    """Requires that tags are closed in order, and keeps what scripts hold and what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loaded += [given[name] or "" for name in ("src", "href") if name in given]
        self.ids += [given["id"] or ""] if "id" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_page_is_well_formed_and_loads_nothing(page: thunder.View) -> None:
    checker = Checker()
    checker.feed(page.html)
    assert checker.open == []
    assert checker.loaded == []
    assert len(checker.ids) == len(set(checker.ids))
    assert json.loads(checker.scripts[0]) == page.data
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", checker.scripts[1])


KINDS = {
    "prologue": thunder.last_prologue_traces,
    "computation": thunder.last_traces,
    "backward": thunder.last_backward_traces,
    "epilogue": thunder.last_epilogue_traces,
}


@pytest.mark.parametrize("kind", KINDS)
def test_page_has_the_traces_of_all_stages(compiled: Any, page: thunder.View, kind: str) -> None:
    stages, traces = page.data["stages"][kind], KINDS[kind](compiled)
    texts = {"\n".join(line["text"] for line in stage["lines"]).partition("\n")[2] for stage in stages}
    assert texts == {str(trace).rstrip("\n").partition("\n")[2] for trace in traces}


@pytest.mark.parametrize("kind", ["computation", "backward"])
def test_every_operation_has_its_lines(compiled: Any, page: thunder.View, kind: str) -> None:
    symbols = KINDS[kind](compiled)[-1].bound_symbols
    lines = [line for line in page.data["stages"][kind][-1]["lines"] if line["operation"] is not None]
    assert [*dict.fromkeys(line["operation"] for line in lines)] == [symbol.index for symbol in symbols]
    for line in lines:
        symbol = symbols[line["operation"]]
        assert (line["file"], line["line"]) == (symbol.file, symbol.line)
    for symbol in symbols:
        expected = 1 + (len(symbol.nested) if symbol.name == "prims.fused" else 0)
        assert sum(line["operation"] == symbol.index for line in lines) == expected


def test_page_has_the_lines_of_the_program(page: thunder.View) -> None:
    lines = {line["line"]: line for line in page.data["sources"][__file__]}
    assert lines[FIRST_LINE + 2]["text"] == "    z = torch.softmax(y, -1) * 2"
    assert lines[FIRST_LINE + 2]["used"]
    assert not lines[FIRST_LINE]["used"]


def test_page_has_the_fusions(compiled: Any, page: thunder.View) -> None:
    found = [(fusion["trace"], tuple(fusion["operations"])) for fusion in page.data["fusions"]]
    assert found == [(fusion.trace, fusion.operations) for fusion in thunder.fusions(compiled)]
    assert page.data["fusions"][0]["seconds"] is None
    assert thunder.view(compiled, measure=True).data["fusions"][0]["seconds"] > 0


def test_page_has_the_kernels_of_the_fusions(compiled: Any, page: thunder.View) -> None:
    for fusion, shown in zip(thunder.fusions(compiled, sources=True), page.data["fusions"], strict=True):
        assert page.data["kernels"][shown["kernel"]] == fusion.cuda_source.strip()
    assert "__global__" in page.data["kernels"][0]


def test_lines_of_the_executed_traces_name_their_fusion(page: thunder.View) -> None:
    numbers = []
    for kind in ("computation", "backward"):
        for line in page.data["stages"][kind][-1]["lines"]:
            assert (line["fusion"] is not None) == line["fused"]
            if line["fused"] and line["fusion"] not in numbers:
                numbers.append(line["fusion"])
                assert page.data["fusions"][line["fusion"]]["line"] == line["line"]
    assert numbers == list(range(len(page.data["fusions"])))
    assert len(numbers) >= 2


def test_page_has_the_memory_of_each_operation(compiled: Any, page: thunder.View) -> None:
    points = page.data["memory"]["computation"]
    assert len(points) == len(thunder.last_traces(compiled)[-1].bound_symbols)
    assert max(point["bytes"] for point in points) >= 4 * 8 * 4


def test_memory_of_composite_operations_is_counted_and_views_are_not() -> None:
    f = thunder.jit(lambda x, y: torch.matmul(x, y).reshape(-1).contiguous())
    f(torch.ones(8, 8), torch.ones(8, 8))
    assert {point["bytes"] for point in thunder.view(f).data["memory"]["computation"]} == {8 * 8 * 4}


def test_names_and_sources_cannot_break_the_page() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x + len('</script><b>')", namespace)
    f = namespace["f"]
    f.__qualname__ = "<b>f</b>"
    compiled = thunder.jit(f)
    compiled(torch.ones(2))
    checker = Checker()
    checker.feed(thunder.view(compiled).html)
    assert checker.open == []
    assert json.loads(checker.scripts[0])["name"] == "<b>f</b>"


def test_page_is_saved_and_shown(compiled: Any, page: thunder.View, tmp_path: Path) -> None:
    saved = thunder.view(compiled, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf8") == saved.html
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')


def test_functions_that_were_not_called_are_refused() -> None:
    with pytest.raises(ValueError, match="that was called"):
        thunder.view(thunder.jit(torch.sin))
    with pytest.raises(TypeError, match=r"thunder\.jit returned"):
        thunder.view(torch.sin)


CLICKS = """<script>
window.addEventListener("load", () => {
  const count = (place) => document.querySelectorAll(place + " .chosen").length;
  document.querySelector('#source .row[data-key$=":LINE"]').click();
  const chosen = [count("#source"), count("#trace-left"), count("#trace-right"), count("#fusions")];
  document.querySelector("#trace-left .row[data-key]").click();
  const source = document.querySelector("#source .chosen").dataset.key.split(":").pop();
  const empty = document.querySelector("#kernel pre").textContent;
  document.querySelector("#fusions tr[data-key]").click();
  const kernel = document.querySelector("#kernel pre").textContent;
  document.querySelector("#kernel").replaceChildren();
  document.querySelector("#trace-right .fused").click();
  const same = document.querySelector("#kernel pre").textContent === kernel;
  const select = document.getElementById("right");
  select.value = select.options.length - 1;
  select.dispatchEvent(new Event("change"));
  const stage = document.querySelector("#trace-right h2").textContent;
  const drawn = document.querySelectorAll("#memory polyline").length;
  document.title = JSON.stringify({ chosen, source, stage, drawn, empty, kernel, same });
});
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: apt-get install chromium)")
def test_clicks_in_a_browser(page: thunder.View, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page.html.replace("</body>", CLICKS.replace("LINE", str(FIRST_LINE + 2))), encoding="utf8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    done = subprocess.run([*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120)
    title = re.search("<title>(.*?)</title>", done.stdout, re.DOTALL)
    found = json.loads(html.unescape(title.group(1)))
    # The program's line; softmax and product as recorded; the fusion that they are in, with its lines; its row.
    source, left, right, fusions = found["chosen"]
    assert (source, left) == (1, 2)
    assert right >= 4
    assert fusions >= 1
    assert found["source"] == str(FIRST_LINE + 1)
    assert found["stage"].startswith("epilogue")
    assert found["drawn"] == 2
    assert found["empty"].startswith("Click a fusion")
    assert found["kernel"].startswith("// aten.")
    assert found["kernel"].endswith(page.data["kernels"][page.data["fusions"][0]["kernel"]])
    assert found["same"]
