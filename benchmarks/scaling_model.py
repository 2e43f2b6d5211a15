"""Predicts time and memory of training steps on many GPUs, from traces and from what two GPUs were measured to do.

python benchmarks/scaling_model.py [--models Llama-2-7b-hf,Llama-2-70b-hf] [--rates FILE] [--nic 50e9] [--svg FILE]

Work comes from traces of a model with one and with two layers (`trace_costs.py`), rates from `machine_rates.py`. The
schedule is that of `thunder.distributed`: one stream computes, one communicates; ZeRO 3 gathers a block while the one
before it computes, and scatters the gradients behind it. Parameters, gradients and moments are bfloat16. Nodes have
eight GPUs, each with a network card of `--nic` bytes per second; this and the time of a hop between nodes are
assumptions, as nothing was measured between nodes. Weak scaling keeps the sequences of a GPU, strong scaling those of
all: GPUs then take several steps of one sequence, of which the last one reduces gradients.

`ms` and `GiB` are of a step of one GPU, `efficiency` is the speed of a GPU beside that of one that trains alone (and
had memory enough); `recomputes` says that blocks are computed again in the backward, as their values did not fit.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import common
from scaling_chart import draw
from trace_costs import StepWork, Work, step_work

GPUS_OF_A_NODE = 8
NODE_HOP_SECONDS = 5e-6
BUCKET_BYTES = 25 * 2**20
STRATEGIES = ("ddp", "zero2", "zero3", "hybrid")
SCALES = (1, 2, 8, 16, 64, 256, 1024)


class Rates:
    """Rates of GPUs of one kind, as `machine_rates.py` measured them."""

    def __init__(self, rows: list[dict[str, Any]], nic: float) -> None:
        self.nic = nic
        self.copy, self.update, self.attention, self.attention_backward = (
            next(row["work"] / row["seconds"] for row in rows if row["what"] == what)
            for what in ("copy", "update", "attention", "attention backward")
        )
        self.matmuls = sorted((row["work"], row["work"] / row["seconds"]) for row in rows if row["what"] == "matmul")
        beside = next(row for row in rows if row["what"] == "matmul beside all_gather")
        self.slowdown = max(0.0, beside["seconds"] - beside["work"]) / beside["gathers"]
        self.collectives = [row for row in rows if "processes" in row]

    def matmul(self, operations: float) -> float:
        """Return the seconds of a matmul, at the rate of the measured one of the nearest size."""
        place = bisect.bisect([work for work, _ in self.matmuls], operations)
        nearest = self.matmuls[max(0, place - 1) : place + 1]
        return operations / min(nearest, key=lambda pair: abs(math.log(pair[0] / operations)))[1]

    def seconds(self, work: Work, is_backward: bool) -> float:
        """Return how long one GPU takes for what a trace does."""
        attention = work.attention / (self.attention_backward if is_backward else self.attention)
        return sum(map(self.matmul, work.matmuls)) + attention + work.traffic / self.copy

    def collective(self, what: str, size: float, nodes: int, gpus: int) -> float:
        """Return the seconds of a collective whose full tensor has `size` bytes, of `gpus` in each of `nodes`.

        Inside of a node, the measured time is scaled by the share of the tensor that a GPU sends. Between nodes, it is
        the bytes that come from other nodes over the network cards of one. The slower of the two counts.
        """
        inside = 0.0
        if gpus > 1:
            points = sorted((row["work"], row["seconds"]) for row in self.collectives if row["what"] == what)
            count = self.collectives[0]["processes"]
            inside = _interpolated(points, size) * ((gpus - 1) / gpus) / ((count - 1) / count)
        sent = (2 if what == "all_reduce" else 1) * size * (nodes - 1) / nodes
        return max(inside, sent / (gpus * self.nic) + NODE_HOP_SECONDS * math.ceil(math.log2(nodes)))


def _interpolated(points: list[tuple[int, float]], size: float) -> float:
    """Return the seconds at a size: linear between measured sizes, constant below and in proportion above them."""
    if size <= points[0][0]:
        return points[0][1]
    for (low, first), (high, second) in itertools.pairwise(points):
        if size <= high:
            return first + (second - first) * (size - low) / (high - low)
    return points[-1][1] * size / points[-1][0]


@dataclass(frozen=True)
class Unit:
    """A part of a model that is gathered at once: seconds on one GPU, bytes saved for the backward, of parameters."""

    forward: float
    backward: float
    saved: float
    parameter_bytes: float

    @classmethod
    def of(cls, work: StepWork, rates: Rates) -> Unit:
        """Return what a step costs."""
        forward, backward = rates.seconds(work.forward, False), rates.seconds(work.backward, True)
        return cls(forward, backward, work.saved, 2.0 * work.parameters)

    def __sub__(self, other: Unit) -> Unit:
        return Unit(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Setup:
    """GPUs and how parameters lie on them."""

    strategy: str
    nodes: int
    gpus: int

    @property
    def shards(self) -> int:
        """The number of parts that parameters have."""
        return {"ddp": 1, "hybrid": self.gpus}.get(self.strategy, self.nodes * self.gpus)


class Step:
    """The time line of one step: when computation and communication end."""

    def __init__(self, setup: Setup, rates: Rates) -> None:
        self.setup, self.rates = setup, rates
        self.computed = self.communicated = self.communication = 0.0

    def seconds(self, units: list[Unit], reduces: bool) -> float:
        """Run forward, backward and, where gradients are reduced, the update; return the seconds."""
        is_sharded = self.setup.shards > 1
        self._run(units, [unit.forward for unit in units], gathers=is_sharded, reduces=False)
        units = units[::-1]
        self._run(units, [unit.backward for unit in units], gathers=is_sharded and self._gathers_again, reduces=reduces)
        end = max(self.computed, self.communicated)
        hidden = self.communication - max(0.0, self.communicated - self.computed)
        end += hidden * self.rates.slowdown
        parameters = sum(unit.parameter_bytes for unit in units) / 2 / self.setup.shards
        return end + (parameters / self.rates.update if reduces else 0.0)

    @property
    def _gathers_again(self) -> bool:
        return self.setup.strategy in ("zero3", "hybrid")

    def _run(self, units: list[Unit], seconds: list[float], *, gathers: bool, reduces: bool) -> None:
        """Compute the units in order; the next one is gathered while one computes."""
        gathered = self._communicate("all_gather", units[0], self.computed) if gathers else 0.0
        for index, (unit, duration) in enumerate(zip(units, seconds, strict=True)):
            begin = max(self.computed, gathered)
            if gathers and index + 1 < len(units):
                gathered = self._communicate("all_gather", units[index + 1], begin)
            self.computed = begin + duration
            if reduces:
                self._reduce(unit)

    def _communicate(self, what: str, unit: Unit, ready: float) -> float:
        """Communicate a unit's parameters or gradients, once they are there; return when that ends."""
        nodes = 1 if self.setup.strategy == "hybrid" else self.setup.nodes
        return self._add(ready, self.rates.collective(what, unit.parameter_bytes, nodes, self.setup.gpus))

    def _reduce(self, unit: Unit) -> None:
        nodes, gpus = self.setup.nodes, self.setup.gpus
        if nodes * gpus == 1:
            return
        if self.setup.strategy == "ddp":
            buckets = math.ceil(unit.parameter_bytes / BUCKET_BYTES)
            one = self.rates.collective("all_reduce", unit.parameter_bytes / buckets, nodes, gpus)
            self._add(self.computed, one * buckets)
            return
        self._communicate("reduce_scatter", unit, self.computed)
        if self.setup.strategy == "hybrid":  # shards of a node's GPUs are averaged with those of other nodes
            self._add(self.computed, self.rates.collective("all_reduce", unit.parameter_bytes / gpus, nodes, 1))

    def _add(self, ready: float, duration: float) -> float:
        self.communicated = max(self.communicated, ready) + duration
        self.communication += duration
        return self.communicated


def memory(units: list[Unit], setup: Setup) -> float:
    """Return the bytes of a step: parameters, gradients, two moments, saved values, what is gathered at one time."""
    parameters = sum(unit.parameter_bytes for unit in units)
    largest = 2 * max(unit.parameter_bytes for unit in units)
    gathered = {"ddp": 0.0, "zero2": parameters + largest}.get(setup.strategy, 2 * largest)
    saved = sum(unit.saved for unit in units)
    return 4 * parameters / setup.shards + (gathered if setup.shards > 1 else 0.0) + saved


def recomputing(units: list[Unit], block_input: float) -> list[Unit]:
    """Return the units of which all but the last one keep their input alone and are computed again in the backward."""
    blocks = [replace(unit, backward=unit.backward + unit.forward, saved=block_input) for unit in units[:-1]]
    return [*blocks, units[-1]]


class Prediction:
    """Predicts the steps of one model."""

    def __init__(self, name: str, arguments: argparse.Namespace, rates: Rates) -> None:
        from litgpt import Config

        config = Config.from_name(name)
        self.name, self.rates, self.limit = name, rates, arguments.memory * 2**30
        self.block_input = 2.0 * arguments.batch * arguments.length * config.n_embd
        one, two = (Unit.of(step_work(name, layers, arguments.batch, arguments.length), rates) for layers in (1, 2))
        block = two - one
        self.units = [block] * config.n_layer + [one - block]

    def row(self, setup: Setup, micro_steps: int = 1) -> dict[str, Any]:
        """Predict a step which takes `micro_steps` forwards and backwards."""
        units, recomputes = self.units, memory(self.units, setup) > self.limit
        if recomputes:
            units = recomputing(units, self.block_input)
        bytes_used = memory(units, setup)
        first = Step(setup, self.rates).seconds(units, False) if micro_steps > 1 else 0.0
        seconds = (micro_steps - 1) * first + Step(setup, self.rates).seconds(units, True)
        alone = Step(Setup("ddp", 1, 1), self.rates)
        ideal = alone.seconds(self.units, True) + (micro_steps - 1) * Step(alone.setup, self.rates).seconds(
            self.units, False
        )
        return {
            "model": self.name,
            "strategy": setup.strategy,
            "gpus": setup.nodes * setup.gpus,
            "ms": seconds * 1e3,
            "GiB": bytes_used / 2**30,
            "fits": bytes_used <= self.limit,
            "recomputes": recomputes,
            "efficiency": ideal / seconds,
        }


def setup_of(strategy: str, count: int) -> Setup:
    """Return `count` GPUs in full nodes, or in one."""
    return Setup(strategy, max(1, count // GPUS_OF_A_NODE), min(count, GPUS_OF_A_NODE))


def predict(name: str, arguments: argparse.Namespace, rates: Rates) -> list[dict[str, Any]]:
    """Return the rows of weak and strong scaling of a model."""
    weak = Prediction(name, arguments, rates)
    rows = [{"scaling": "weak", **weak.row(setup_of(strategy, count))} for strategy in STRATEGIES for count in SCALES]
    strong = Prediction(name, argparse.Namespace(**{**vars(arguments), "batch": 1}), rates)
    for strategy in STRATEGIES:
        for count in SCALES:
            micro_steps = max(1, arguments.sequences // count)
            rows.append({"scaling": "strong", **strong.row(setup_of(strategy, count), micro_steps)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=lambda text: text.split(","), default=["Llama-2-7b-hf", "Llama-2-70b-hf"])
    parser.add_argument("--rates", type=Path, default=common.RESULTS / "machine_rates-cuda.json")
    parser.add_argument("--batch", type=int, default=2, help="sequences of a GPU, weak scaling")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--sequences", type=int, default=1024, help="those of all GPUs, strong scaling")
    parser.add_argument("--memory", type=float, default=76, help="GiB of a GPU")
    parser.add_argument("--nic", type=float, default=50e9, help="bytes per second between nodes, for each GPU")
    parser.add_argument("--svg", type=Path, help="draw a chart into this file")
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/scaling_model-cpu.json)")
    arguments = parser.parse_args()
    arguments.device, arguments.threads = "cpu", 1
    rates = Rates(json.loads(arguments.rates.read_text())["rows"], arguments.nic)
    rows = [row for name in arguments.models for row in predict(name, arguments, rates)]
    for row in rows:
        common.report(row)
    common.write(arguments, rows)
    if arguments.svg:
        draw(rows, STRATEGIES, SCALES, arguments.svg)


if __name__ == "__main__":
    main()
