"""Time of a training step's forward and backward, compilers in turns.

python benchmarks/step.py [--compilers eager,inductor,thunder] [--models REGEX] [--batch FACTOR] [--device cuda]
"""

from __future__ import annotations

import models


def main() -> None:
    arguments = models.parser(__doc__).parse_args()
    models.compare(arguments, models.chosen(arguments), lambda model, inputs: model(**inputs).loss.backward())


if __name__ == "__main__":
    main()
