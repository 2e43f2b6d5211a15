"""The cost of checking all guards of a Hugging Face Llama: parameters, config values, flags, hooks, code.

    python benchmarks/guards.py [--layers 32] [--specializations 2]

The width is tiny: what counts is the number of guards. `us` is the time of one check by the clock in C++, warm;
`us_evicted` is the same when other work has emptied the caches of the processor between two checks.
"""

from __future__ import annotations

from typing import Any

import common
import torch

import thunder


def evicted(model: Any, ids: torch.Tensor, rounds: int) -> float:
    """Return the fastest seconds of one check after 64 MB of other memory were written."""
    other = torch.zeros(16 << 20)
    times = []
    for _ in range(rounds):
        other.add_(1)
        times.append(model.__compiled__.time_guards(1, input_ids=ids))
    return min(times)


def measure(arguments: Any) -> dict[str, Any]:
    model = thunder.jit(common.llama(arguments.layers, 64).eval())
    ids = torch.randint(0, 1000, (1, 32))
    with torch.no_grad():
        for length in range(arguments.specializations):
            model(input_ids=torch.randint(0, 1000, (1, 16 + length)))
        model(input_ids=ids)
        for _ in range(3):
            model(input_ids=ids)
        count = 2000
        times = [model.__compiled__.time_guards(count, input_ids=ids) for _ in range(arguments.rounds)]
        cold = evicted(model, ids, arguments.rounds)
    stats = thunder.compile_stats(model)
    return {
        "name": f"guards of llama {arguments.layers}",
        "compiler": "thunder",
        "guards": stats["guards"],
        "specializations": stats["specializations"],
        "shared_guards": stats["shared_guards"],
        "us": min(times) * 1e6,
        "us_evicted": cold * 1e6,
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--specializations", type=int, default=0, help="others that share the guards")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    row = measure(arguments)
    common.report(row)
    common.write(arguments, [row])


if __name__ == "__main__":
    main()
