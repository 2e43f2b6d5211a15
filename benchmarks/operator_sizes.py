"""Which operators of PyTorch have one program for all sizes, over `op_db`.

    python benchmarks/operator_sizes.py --samples 3 --list-failures
    python benchmarks/operator_sizes.py --ops '^linalg'

For up to `--samples` samples of each operator, spread evenly over those whose sizes can change: the operator is called
with the sample, then twice with its tensors at other sizes, in eager and through one `thunder.jit`. All sizes of the
tensors become multiples, or grow by a constant; where eager refuses that, one size does, with the numbers among the
arguments that are equal to it. Eager *refuses* what raises an error, and what gives other numbers when it is called
again. A sample for which it refuses all changes is skipped. An operator is *general* when the third call runs the
program that the second one made, for each of its samples. Results that differ from eager's are *wrong*.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import common
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map
from transform_coverage import compare, label, run, spread

Change = Callable[[int], int]


def other_size(tensor: torch.Tensor, change: Change) -> torch.Tensor:
    """Return a contiguous tensor of the changed sizes with the elements of `tensor` over and over."""
    sizes = [change(size) for size in tensor.shape]
    count = torch.Size(sizes).numel()
    elements = tensor.detach().flatten()
    return elements.repeat(-(-count // max(elements.numel(), 1)))[:count].view(sizes)


def changed(sample: Any, change: Change, *, with_numbers: bool) -> Any:
    def map_leaf(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return other_size(leaf, change)
        return change(leaf) if with_numbers and type(leaf) is int else leaf

    return tree_map(map_leaf, sample)


def changes(sample: Any) -> Iterator[tuple[Change, Change]]:
    """Yield pairs of changes: the most general ones first."""
    sizes = sorted({size for tensor in tensors_of(sample) for size in tensor.shape if size > 1})
    for chosen in [sizes, *([size] for size in sizes if len(sizes) > 1)]:
        for factor, step in ((2, 0), (1, 2)):

            def change(
                size: int, times: int, chosen: list[int] = chosen, factor: int = factor, step: int = step
            ) -> int:
                return size * factor**times + step * times if size in chosen else size

            yield functools.partial(change, times=1), functools.partial(change, times=2)


MOST_ELEMENTS = 1 << 24  # of a tensor, so that three calls fit into any machine


def is_small(sample: Any, change: Change) -> bool:
    return all(torch.Size(map(change, tensor.shape)).numel() <= MOST_ELEMENTS for tensor in tensors_of(sample))


def is_changeable(leaf: Any) -> bool:
    return not isinstance(leaf, torch.Tensor) or (leaf.layout == torch.strided and not leaf.is_quantized)


def variants(name: str, op: Any, sample: Any) -> list[Any] | None:
    """Return the sample at three sizes; None: eager takes no other ones."""
    if not all(map(is_changeable, tree_flatten(sample)[0])):
        return None
    for pair in changes(sample):
        if not all(is_small(sample, change) for change in pair):
            continue
        for with_numbers in (False, True):
            family = [sample, *(changed(sample, change, with_numbers=with_numbers) for change in pair)]
            if all(is_accepted(name, op, each) for each in family):
                return family
    return None


def is_accepted(name: str, op: Any, sample: Any) -> bool:
    """Whether eager gives results that depend on nothing but the arguments."""
    try:
        compare(name, call(op, sample), call(op, sample))
    except Exception:
        return False
    return True


def call(op: Any, sample: Any) -> list[Any]:
    torch.manual_seed(0)
    first, args, kwargs = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, sample)
    return tensors_of(op(first, *args, **kwargs))


def tensors_of(values: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(values)[0] if isinstance(leaf, torch.Tensor)]


def check(name: str, op: Any, *, samples: int) -> tuple[str, dict[str, Any]]:
    """Return one of `OUTCOMES`, and more about it: the reason, and how many samples there are."""
    families = []
    skipped = 0
    for sample in op.sample_inputs("cpu", torch.float32):
        family = variants(name, op.op, (sample.input, sample.args, sample.kwargs))
        if family is None:
            skipped += 1
        else:
            families.append(family)
    chosen = spread(families, samples)
    counts = {"samples": len(families) + skipped, "skipped": skipped, "compared": len(chosen)}
    if not families:
        return "left out", {"reason": "eager takes no other sizes of any sample", **counts}
    outcomes = [check_family(name, op.op, family) for family in chosen]
    outcome, reason = min(outcomes, key=lambda outcome: OUTCOMES.index(outcome[0]))
    return outcome, {"reason": reason, **counts}


OUTCOMES = ("wrong", "failed", "traced again", "general", "left out")  # the worst first


def check_family(name: str, op: Any, family: list[Any]) -> tuple[str, str]:
    import thunder

    compiled: Any = thunder.jit(lambda first, args, kwargs: op(first, *args, **kwargs))
    counts = []
    for sample in family:
        expected = call(op, sample)
        try:
            got = call(lambda first, *args, **kwargs: compiled(first, args, kwargs), sample)
        except Exception as error:
            return "failed", first_line(error)
        try:
            compare(name, got, expected)
        except AssertionError as error:
            return "wrong", first_line(error)
        counts.append(thunder.compile_stats(compiled)["specializations"])
    stats = thunder.compile_stats(compiled)
    if counts[2] == counts[1] and not stats["eager_calls"]:
        return "general", ""
    sizes = [list(tensor.shape) for tensor in tensors_of(family[0])]
    reason = "runs in eager" if stats["eager_calls"] else f"pinned: {stats['pinned_sizes']}"
    return "traced again", f"{reason}, sizes {sizes}"


def first_line(error: Exception) -> str:
    lines = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()]
    return " ".join(lines)[:300]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--ops", default="", help="regular expression that names have to match")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one operator")
    parser.add_argument("--list-failures", action="store_true")
    parser.add_argument("--min", type=float, default=0.0, help="exit status 1 below this share, in percent")
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/operator_sizes-cpu.json)")
    options = parser.parse_args()
    options.device, options.threads = "cpu", 1
    names = [label(op) for op in op_db if torch.float32 in op.supported_dtypes("cpu")]
    names = [name for name in names if re.search(options.ops, name)]
    begin = time.monotonic()
    rows: list[dict[str, Any]] = []
    for name, outcome, found in run(names, functools.partial(check, samples=options.samples), options.timeout):
        more = found if isinstance(found, dict) else {"reason": found}
        rows.append({"name": name, "outcome": outcome, **more})
        if outcome not in ("general", "left out") and options.list_failures:
            print(f"{name}: {outcome}: {more['reason']}", flush=True)
    counts = {outcome: sum(row["outcome"] == outcome for row in rows) for outcome in OUTCOMES}
    compared = len(rows) - counts["left out"]
    share = 100.0 * counts["general"] / max(compared, 1)
    print(f"{counts['general']} of {compared} operators have one program for all sizes ({share:.1f} %)")
    total, skipped = (sum(row.get(key, 0) for row in rows) for key in ("samples", "skipped"))
    print(f"{counts['left out']} operators left out: eager takes no other sizes of any of their samples")
    print(f"{skipped} of {total} samples skipped: eager takes no other sizes of them")
    print(counts, f"{time.monotonic() - begin:.0f} s")
    common.write(options, rows)
    return int(share < options.min or counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
