"""Code that the benchmarks share: compilers, timing in turns, results as JSON.

Machines are shared and noisy. Compilers therefore take turns in one process, and what counts is the ratio to eager
within one run, never an absolute time of two runs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

RESULTS = Path(__file__).parent / "results"
COMPILERS = ("eager", "inductor", "thunder")
THUNDERS: dict[str, dict[str, Any]] = {"thunder": {}, "prepacked": {"prepack_weights": True}}  # options of thunder.jit


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--compilers", type=lambda text: text.split(","), default=list(COMPILERS))
    result.add_argument("--device", default="cpu")
    result.add_argument("--threads", type=int, default=os.cpu_count())
    result.add_argument("--rounds", type=int, default=7)
    result.add_argument("--json", type=Path, help="result file (default: benchmarks/results/<program>-<device>.json)")
    return result


def compiled(compiler: str, target: Callable[..., Any]) -> Callable[..., Any]:
    """Return `target` as `compiler` offers it."""
    if compiler == "eager":
        return target
    if compiler == "inductor":
        return torch.compile(target)
    if compiler in THUNDERS:
        import thunder

        return thunder.jit(target, **THUNDERS[compiler])
    raise SystemExit(f"--compilers: expected some of {', '.join(COMPILERS)}, prepacked, got {compiler}")


def settle(compiler: str, target: Callable[..., Any]) -> None:
    """Block until what compiles in the background is in place."""
    if compiler in THUNDERS:
        import thunder

        thunder.wait_until_compiled(target)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(call: Callable[[], Any], count: int = 1) -> float:
    """Return the seconds per call of `count` calls, the device's work included."""
    synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    synchronize()
    return (time.perf_counter() - start) / count


def launches(step: Callable[[], Any], file: Path | None) -> int:
    """Return how many kernels a call launches; write the time of each to `file`."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    kernels = [event for event in profiler.key_averages() if event.device_time_total > 0]
    if file:
        rows = sorted(kernels, key=lambda event: -event.device_time_total)
        lines = (f"{row.device_time_total / 1e3:9.3f} ms  x{row.count:5}  {row.key[:160]}" for row in rows)
        file.write_text("\n".join(lines) + "\n")
    return sum(event.count for event in kernels)


def take_turns(calls: dict[str, Callable[[], Any]], *, count: int, rounds: int) -> dict[str, dict[str, float]]:
    """Time each call `rounds` times in turns; return the fastest and the median round, and the ratio to eager."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call, count))
    fastest = {name: min(values) for name, values in times.items()}
    return {
        name: {
            "us": fastest[name] * 1e6,
            "median_us": statistics.median(values) * 1e6,
            "ratio": fastest[name] / fastest["eager"] if "eager" in fastest else float("nan"),
        }
        for name, values in times.items()
    }


def in_own_process(compiler: str, *options: str) -> list[dict[str, Any]]:
    """Run this program again for one compiler alone, with empty caches; return the rows it gives."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "THUNDER_CACHE_DIR": f"{folder}/thunder",
        }
        file = f"{folder}/rows.json"
        command = [sys.executable, *sys.argv, *options, "--compilers", compiler, "--alone", "--json", file]
        subprocess.run(command, env=environment, check=True)
        return json.loads(Path(file).read_text())["rows"]


def add_model_options(parser: argparse.ArgumentParser, *, models: str) -> None:
    """Add the options of programs that `measure_models` runs; `models`: which ones by default."""
    parser.add_argument("--models", default=models, help="regular expression of the models to run")
    parser.add_argument("--profile", type=Path, help="folder for the times of kernels")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)


def measure_models(
    arguments: argparse.Namespace, models: Iterable[str], measure: Callable[[str, str], dict[str, Any]]
) -> None:
    """Measure each chosen model with each compiler, in processes of their own; print and write the rows."""
    rows: list[dict[str, Any]] = []
    for name in models:
        if not re.search(arguments.models, name):
            continue
        for compiler in arguments.compilers:
            if arguments.alone:
                rows.append(measure(name, compiler))
            else:
                rows += in_own_process(compiler, "--models", f"^{re.escape(name)}$")
                add_ratios(rows, "us")
                report(rows[-1])
    write(arguments, rows)


def profile_file(folder: Path | None, name: str, compiler: str) -> Path | None:
    """Return the file for the times of a model's kernels, and make its folder; None where no folder was given."""
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{re.sub('[^a-z0-9]+', '-', name)}-{compiler}.txt"


def add_ratios(rows: list[dict[str, Any]], quantity: str) -> None:
    """Add to each row the ratio of `quantity` to eager's row of the same name."""
    eager = {row["name"]: row[quantity] for row in rows if row["compiler"] == "eager"}
    for row in rows:
        if row["name"] in eager:
            row["ratio"] = row[quantity] / eager[row["name"]]


def report(row: dict[str, Any]) -> None:
    """Print a row as one line."""
    fields = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
    print("  ".join(fields), flush=True)


def processor() -> str:
    """Return the name of the processor, with its widest vectors."""
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.exists() else ""
    name = re.search(r"model name\s*: (.+)", text)
    vectors = next((flag for flag in ("avx512f", "avx2") if f" {flag} " in text), "")
    return f"{name.group(1) if name else platform.processor()} {vectors}".strip()


def write(arguments: argparse.Namespace, rows: list[dict[str, Any]], start: str = "python") -> None:
    """Write the rows with date, versions, machine and command, which begins with `start`."""
    program = Path(sys.argv[0]).stem
    path = arguments.json or RESULTS / f"{program}-{arguments.device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "program": program,
        "command": " ".join([start, f"benchmarks/{program}.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("torch", "transformers")},
        },
        "machine": {
            "device": torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine(),
            "cpu": processor(),
            "cores": os.cpu_count(),
            "threads": arguments.threads,
        },
        "rows": rows,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def llama(layers: int, width: int, vocabulary: int = 1024) -> torch.nn.Module:
    """Return a Hugging Face Llama with random weights."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=width * 11 // 4 // 8 * 8,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=vocabulary,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)
