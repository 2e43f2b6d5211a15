"""Time of a whole training step, the optimizer's update included, compilers in turns.

python benchmarks/optimizer_step.py [--compilers eager,inductor,thunder] [--models REGEX] [--optimizer adamw|sgd]

A compiler's name stands for the compiled model, whose optimizer runs as it is; "thunder, one program" jits the function
that does forward, backward and update.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import common
import models
import torch

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-4, foreach=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, 1e-4, momentum=0.9, foreach=True),
}


def training_step(model: Any, optimizer: torch.optim.Optimizer, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    loss = model(**inputs).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def main() -> None:
    parser = models.parser(__doc__)
    parser.add_argument("--optimizer", default="adamw", choices=OPTIMIZERS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    variants = [*arguments.compilers, "thunder, one program"]
    rows = []
    for name, build in models.chosen(arguments).items():
        model, inputs = build()
        calls, first = {}, {}
        for variant in variants:
            module = copy.deepcopy(model)
            optimizer = OPTIMIZERS[arguments.optimizer](module.parameters())
            is_whole = variant not in arguments.compilers
            step = common.compiled("thunder", training_step) if is_whole else training_step
            candidate = module if is_whole else common.compiled(variant, module)
            calls[variant] = lambda step=step, candidate=candidate, optimizer=optimizer, inputs=inputs: step(
                candidate, optimizer, inputs
            )
            first[variant] = common.seconds(calls[variant])
            common.settle("thunder" if is_whole else variant, step if is_whole else candidate)
            common.seconds(calls[variant], 2)
        for variant, figure in common.take_turns(calls, count=1, rounds=arguments.rounds).items():
            compiler, *whole = variant.split(", ")
            what = ", ".join([f"{name} {arguments.optimizer}", *whole])
            rows.append({"name": what, "compiler": compiler, **figure, "first_s": first[variant]})
            common.report(rows[-1])
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
