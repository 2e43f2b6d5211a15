"""Time of a training step's forward and backward, compilers in turns.

python benchmarks/step.py [--compilers eager,inductor,thunder] [--models REGEX] [--batch FACTOR] [--device cuda]
"""

from __future__ import annotations

import re

import common
import torch
from models import models


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--models", default="", help="regular expression of the models to run")
    parser.add_argument("--batch", type=int, default=1, help="how many times the small batches")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for name, build in models(arguments.batch).items():
        if not re.search(arguments.models, name):
            continue
        torch.manual_seed(0)
        model, inputs = build()
        model.to(arguments.device)
        inputs = {key: value.to(arguments.device) for key, value in inputs.items()}
        calls, first = {}, {}
        for compiler in arguments.compilers:
            candidate = common.compiled(compiler, model)
            calls[compiler] = lambda candidate=candidate, inputs=inputs: candidate(**inputs).loss.backward()
            first[compiler] = common.seconds(calls[compiler])
            common.settle(compiler, candidate)
            common.seconds(calls[compiler], 2)
        for compiler, figure in common.take_turns(calls, count=1, rounds=arguments.rounds).items():
            rows.append({"name": name, "compiler": compiler, **figure, "first_s": first[compiler]})
            common.report(rows[-1])
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
