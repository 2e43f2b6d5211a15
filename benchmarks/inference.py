"""Time of a forward without gradients, compilers in turns.

python benchmarks/inference.py [--compilers eager,inductor,thunder] [--models REGEX] [--batch FACTOR] [--device cuda]
"""

from __future__ import annotations

import functools

import models
import torch


def without_labels(build: models.Builder) -> tuple[torch.nn.Module, models.Inputs]:
    model, inputs = build()
    del inputs["labels"]
    return model.eval(), inputs


def main() -> None:
    arguments = models.parser(__doc__).parse_args()
    builders = {name: functools.partial(without_labels, build) for name, build in models.chosen(arguments).items()}
    with torch.no_grad():
        models.compare(arguments, builders, lambda model, inputs: model(**inputs))


if __name__ == "__main__":
    main()
