"""Time of a forward without gradients, compilers in turns.

python benchmarks/inference.py [--compilers eager,inductor,thunder] [--models REGEX] [--batch FACTOR] [--device cuda]
"""

from __future__ import annotations

import common
import models
import torch


def main() -> None:
    arguments = models.parser(__doc__).parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for name, build in models.chosen(arguments).items():
        model, inputs = build()
        model.eval()
        del inputs["labels"]
        calls, first = {}, {}
        with torch.no_grad():
            for compiler in arguments.compilers:
                candidate = common.compiled(compiler, model)
                calls[compiler] = lambda candidate=candidate, inputs=inputs: candidate(**inputs)
                first[compiler] = common.seconds(calls[compiler])
                common.settle(compiler, candidate)
                common.seconds(calls[compiler], 3)
            for compiler, figure in common.take_turns(calls, count=1, rounds=arguments.rounds).items():
                rows.append({"name": name, "compiler": compiler, **figure, "first_s": first[compiler]})
                common.report(rows[-1])
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
