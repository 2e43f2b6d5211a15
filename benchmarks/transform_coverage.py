"""Coverage of function transforms: `thunder.vmap` and `thunder.jvp` beside `torch.func`'s, over PyTorch's operators.

    python benchmarks/transform_coverage.py --transform both --samples 4 --list-failures
    python benchmarks/transform_coverage.py --transform vmap --ops '^linalg'

Every entry of `op_db` that supports float32 on the CPU is one operator. For up to `--samples` of its samples, spread
evenly over all of them, the operator's tensor arguments are stacked to a batch of three (vmap) or get a tangent (jvp).
Samples for which `torch.func`'s transform does not work are left out, and operators without any remaining sample. An
operator passes when all its samples give `torch.func`'s values. `--inside` calls `torch.func`'s own transform inside of
a jitted function in the place of thunder's.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

BATCH = 3
RTOL, ATOL = 1e-4, 1e-5
UNDEFINED_VALUES = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


def spread(samples: list[Any], count: int) -> list[Any]:
    if len(samples) <= count:
        return samples
    return [samples[i * len(samples) // count] for i in range(count)]


def split_sample(op: Any, sample: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Return the operator as a function of the sample's floating-point tensors, and these tensors."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        replaced = list(leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            replaced[position] = tensor
        first, args, kwargs = tree_unflatten(replaced, spec)
        results = tree_flatten(op.op(first, *args, **kwargs))[0]
        return tuple(result for result in results if isinstance(result, torch.Tensor))

    return call, [leaves[i].detach() for i in positions]


def vmap_arguments(tensors: list[torch.Tensor]) -> tuple[Any, ...]:
    return tuple(torch.stack([tensor + 0.01 * i for i in range(BATCH)]) for tensor in tensors)


def jvp_arguments(tensors: list[torch.Tensor]) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    tangents = tuple(torch.rand(t.shape, dtype=t.dtype, generator=generator) for t in tensors)
    return tuple(tensors), tangents


def transformed(transform: str, inside: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return (ours, torch's): functions of the operator and the arguments above."""
    import thunder

    def theirs(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if transform == "vmap":
            return torch.func.vmap(call, randomness="different")(*arguments)
        return torch.func.jvp(call, *arguments)

    def ours(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if inside:
            return thunder.jit(lambda *given: theirs(call, given))(*arguments)
        if transform == "vmap":
            return thunder.vmap(call, randomness="different")(*arguments)
        return thunder.jvp(call, *arguments)

    return ours, theirs


def check(name: str, op: Any, transform: str, samples: int, inside: bool) -> tuple[str, str]:
    """Return ("passed" | "failed" | "left out", reason)."""
    ours, theirs = transformed(transform, inside)
    make_arguments = vmap_arguments if transform == "vmap" else jvp_arguments
    compared = 0
    for sample in spread(list(op.sample_inputs("cpu", torch.float32)), samples):
        call, tensors = split_sample(op, sample)
        if not tensors:
            continue
        arguments = make_arguments(tensors)
        try:
            torch.manual_seed(0)
            expected = theirs(call, arguments)
        except Exception:
            continue
        if not tree_flatten(expected)[0]:
            continue
        compared += 1
        try:
            torch.manual_seed(0)
            got = ours(call, make_arguments(tensors))
            compare(name, got, expected)
        except Exception as error:
            lines = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()]
            return "failed", " ".join(lines)[:300]
    return ("passed", "") if compared else ("left out", "torch.func does not work on any sample")


def compare(name: str, got: Any, expected: Any) -> None:
    ours, our_spec = tree_flatten(got)
    theirs, spec = tree_flatten(expected)
    assert our_spec == spec, f"structure: expected {spec}, got {our_spec}"
    for left, right in zip(ours, theirs, strict=True):
        values = name not in UNDEFINED_VALUES
        assert left.shape == right.shape, f"shape: expected {right.shape}, got {left.shape}"
        if values:
            torch.testing.assert_close(left, right, rtol=RTOL, atol=ATOL, equal_nan=True)


def label(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def run(
    names: list[str], check: Callable[[str, Any], tuple[str, Any]], seconds: float
) -> Iterator[tuple[str, str, Any]]:
    """Yield (operator, outcome, reason), each checked in a worker process that is replaced when it dies or hangs."""
    operators = {label(op): op for op in op_db}
    context = multiprocessing.get_context("fork")
    for begin in range(0, len(names), 25):
        remaining = names[begin : begin + 25]
        while remaining:
            receiver, sender = context.Pipe(duplex=False)
            worker = context.Process(target=work_on, args=(remaining, operators, check, sender))
            worker.start()
            sender.close()
            done = 0
            reason = ""
            try:
                while done < len(remaining):
                    if not receiver.poll(seconds):
                        reason = f"no answer within {seconds} s"
                        break
                    outcome, why = receiver.recv()
                    yield remaining[done], outcome, why
                    done += 1
            except EOFError:
                reason = "the process died"
            if done < len(remaining):
                worker.kill()
                yield remaining[done], "failed", reason
                done += 1
            worker.join()
            remaining = remaining[done:]


def work_on(names: list[str], operators: dict[str, Any], check: Callable[[str, Any], tuple[str, Any]], to: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in names:
        to.send(check(name, operators[name]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transform", choices=("vmap", "jvp", "both"), default="both")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--ops", default="", help="regular expression that names have to match")
    parser.add_argument("--inside", action="store_true", help="torch.func's transform inside of thunder.jit")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one operator")
    parser.add_argument("--list-failures", action="store_true")
    parser.add_argument("--min", type=float, default=0.0, help="exit status 1 below this share, in percent")
    options = parser.parse_args()
    names = [label(op) for op in op_db if torch.float32 in op.supported_dtypes("cpu")]
    names = [name for name in names if re.search(options.ops, name)]
    status = 0
    for transform in ("vmap", "jvp") if options.transform == "both" else (options.transform,):
        begin = time.monotonic()
        counts = {"passed": 0, "failed": 0, "left out": 0}
        checked = functools.partial(check, transform=transform, samples=options.samples, inside=options.inside)
        for name, outcome, reason in run(names, checked, options.timeout):
            counts[outcome] += 1
            if outcome == "failed" and options.list_failures:
                print(f"{transform} {name}: {reason}", flush=True)
        compared = counts["passed"] + counts["failed"]
        share = 100.0 * counts["passed"] / max(compared, 1)
        print(
            f"{transform}: {counts['passed']} of {compared} operators equal torch.func ({share:.1f} %), "
            f"{counts['left out']} left out, {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        status |= int(share < options.min)
    return status


if __name__ == "__main__":
    sys.exit(main())
