"""Runs many programs in worker processes, collects failures, and makes them small."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.fuzz import kernels_on_host

_SECONDS_PER_PROGRAM = 90
_SECONDS_TO_SHRINK = 15


@dataclasses.dataclass
class Found:
    """A failure: where it came from, what went wrong, and the smallest program that shows it."""

    seed: int
    check: str
    kind: str
    message: str
    options: str
    program: str
    arguments: str
    known: str = ""
    device: str = "cpu"

    @property
    def command(self) -> str:
        """The command that shows it again."""
        device = "" if self.device == "cpu" else f" --device {self.device}"
        return f"python -m tests.fuzz --programs 1 --seed {self.seed}{device}"

    def __str__(self) -> str:
        message = self.message if len(self.message) < 900 else self.message[:900] + " …"
        return (
            f"seed {self.seed}: {self.check}: {self.kind}: {message}\n  {self.command}\n"
            f"  options: {self.options}\n  arguments: {self.arguments}\n{self.program}"
        )


@dataclasses.dataclass
class Report:
    """The result of a run. `outcomes`: check -> outcome -> count; an outcome is "passed", "skipped" or a kind."""

    first_seed: int
    programs: int = 0
    statements: int = 0
    seconds: float = 0.0
    operators: int = 0
    outcomes: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    failures: list[Found] = dataclasses.field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON can hold it."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.programs} programs, {self.statements} statements, {self.operators} operators, "
            f"from seed {self.first_seed}, in {self.seconds:.0f} s"
        ]
        lines += [f"  {check}: {dict(sorted(counts.items()))}" for check, counts in sorted(self.outcomes.items())]
        return "\n".join(lines)


# --- one program


def check_seed(
    seed: int, only: str | None = None, on_made: Callable[[], None] = lambda: None, device: str = "cpu"
) -> dict[str, Any]:
    """Make and check the program of a seed; return what a Report counts, and the failures.

    `on_made` is called when the program has been made, by running it in eager on the CPU. Its inputs are on the device.
    A result with "lost" is the last one of its process: an error of a GPU stays.
    """
    from tests.fuzz import checks, known
    from tests.fuzz.generator import generate
    from thunder._minify.shrink import Case

    result: dict[str, Any] = {"seed": seed, "outcomes": [], "failures": [], "statements": 0, "operators": []}
    generated = generate(seed)
    if generated is None:
        return result
    on_made()
    result["statements"] = len(generated.program.lines)
    result["operators"] = sorted(
        {name for line in generated.program.lines for name in re.findall(r"\.(\w+)\(", line.text)}
    )
    lies_on = "cpu" if device == kernels_on_host.DEVICE else device
    case = Case(generated.program, tuple(generated.make_inputs(lies_on)))
    for plan in checks.plans_for(seed, generated.settings.requires_grad, generated.settings.randomness, device):
        if only is not None and plan.check != only:
            continue
        try:
            plan.run(case)
            result["outcomes"].append((plan.check, "passed"))
        except checks.Skipped as skipped:
            result["outcomes"].append((plan.check, "skipped"))
            if _is_of_gpu(skipped):
                return result | {"lost": True}
        except checks.Failure as failure:
            if _is_of_gpu(failure):
                found = found_in(Case(case.program, ()), plan, "crash", str(failure))
                result["outcomes"].append((plan.check, "crash"))
                result["failures"].append(dataclasses.replace(found, device=device))
                return result | {"lost": True}
            found = dataclasses.replace(_shrunk(case, plan, failure), device=device)
            found.known = known.reason(found)
            result["outcomes"].append((plan.check, "known" if found.known else failure.kind))
            result["failures"].append(found)
        except Exception as error:
            if _is_of_gpu(error):  # of eager, by the arguments of another size
                result["outcomes"].append((plan.check, "skipped"))
                return result | {"lost": True}
            result["outcomes"].append((plan.check, "mistake in the check"))
            result["failures"].append(found_in(case, plan, "mistake in the check", traceback.format_exc()[-2000:]))
    return result


def _is_of_gpu(error: Exception) -> bool:
    """Whether a kernel has failed (it read beyond its memory, or asserted something): nothing runs after that."""
    return "CUDA error" in str(error) and "out of memory" not in str(error)


def _shrunk(case: Any, plan: Any, failure: Any) -> Found:
    from tests.fuzz import checks
    from thunder._minify.shrink import shrink

    def failure_of(candidate: Any) -> Any:
        try:
            plan.run(candidate)
        except checks.Failure as found:
            return found
        except Exception:
            return None
        return None

    def fails(candidate: Any) -> bool:
        found = failure_of(candidate)
        return found is not None and found.kind == failure.kind

    small = shrink(case, fails, _SECONDS_TO_SHRINK)
    failure = failure_of(small) or failure
    return found_in(small, plan, failure.kind, str(failure))


def found_in(case: Any, plan: Any, kind: str, message: str) -> Found:
    """Describe a failure."""
    names = zip(case.program.parameters, case.arguments, strict=False)
    arguments = "; ".join(f"{name} = {_text(value)}" for name, value in names)
    return Found(plan.seed, plan.check, kind, message, str(plan.options), case.program.text(), arguments)


def _text(value: Any) -> str:
    from thunder._minify.script import expression

    text = expression(value) or f"{value.dtype} {tuple(value.shape)} with strides {value.stride()}"
    return text + ("" if text.endswith("requires_grad_()") or not value.requires_grad else ", requires_grad_()")


def _shrunk_crash(seed: int, check: str, connection: Connection) -> None:
    """In a process of its own, which must not have compiled anything: try each attempt in a fork."""
    from tests.fuzz import checks, oracle
    from tests.fuzz.generator import generate
    from thunder._minify.shrink import Case, cloned, shrink

    _quiet()

    def survives(run: Any) -> bool:
        process = os.fork()
        if process == 0:
            try:
                run()
            finally:
                os._exit(0)
        return not os.WIFSIGNALED(os.waitpid(process, 0)[1])

    if not survives(lambda: generate(seed)):
        connection.send("eager crashes too")
        return
    generated = generate(seed)
    assert generated is not None
    case = Case(generated.program, tuple(generated.make_inputs()))
    plans = checks.plans_for(seed, generated.settings.requires_grad, generated.settings.randomness)
    plan = next((plan for plan in plans if plan.check == check), None)
    if plan is None:
        connection.send(None)
        return

    def eager_survives(candidate: Case) -> bool:
        eager = candidate.program.function()
        return survives(lambda: oracle.observe(eager, list(cloned(candidate.arguments)), plan.seed))

    def fails(candidate: Case) -> bool:
        return eager_survives(candidate) and not survives(lambda: plan.run(candidate))

    if not eager_survives(case):
        connection.send("eager crashes too")
        return
    if not fails(case):
        connection.send(None)
        return
    small = shrink(case, fails, 4 * _SECONDS_TO_SHRINK)
    connection.send(found_in(small, plan, "crash", ""))


# --- many programs


def _quiet() -> None:
    """Let kernels' complaints about odd arguments go nowhere, and use one thread: the workers are the threads."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def _work(connection: Connection, stack: str, device: str) -> None:
    _quiet()
    with open(stack, "w") as file:
        faulthandler.enable(file)
        try:
            _serve(connection, device)
        except Exception:
            file.write(traceback.format_exc()[-1200:])
            raise


def _serve(connection: Connection, device: str) -> None:
    while (seed := connection.recv()) is not None:
        connection.send(check_seed(seed, on_made=lambda: connection.send(None), device=device))


class _Worker:
    def __init__(self, device: str) -> None:
        self.device = device
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        handle, self.stack = tempfile.mkstemp(prefix="thunder_fuzz_")
        os.close(handle)
        self.process = context.Process(target=_work, args=(theirs, self.stack, device), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self.since = 0.0
        self.is_made = False

    def give(self, seed: int) -> None:
        self.seed, self.since, self.is_made = seed, time.monotonic(), False
        self.connection.send(seed)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        pathlib.Path(self.stack).unlink()


def run(
    programs: int,
    seed: int,
    workers: int,
    seconds: float | None = None,
    progress: bool = False,
    device: str = "cpu",
) -> Report:
    """Check the programs of `programs` seeds from `seed` on; stop handing out more after `seconds`."""
    report = Report(seed)
    begin = time.monotonic()
    operators: set[str] = set()
    seeds = iter(range(seed, seed + programs))
    crew = [_Worker(device) for _ in range(workers)]
    busy: list[_Worker] = []

    def give(worker: _Worker) -> None:
        late = seconds is not None and time.monotonic() - begin > seconds
        following = None if late else next(seeds, None)
        if following is None:
            worker.end()
            return
        worker.give(following)
        busy.append(worker)

    for worker in crew:
        give(worker)
    while busy:
        ready = wait([worker.connection for worker in busy], timeout=1.0)
        for worker in list(busy):
            result = None
            if worker.connection in ready:
                try:
                    result = worker.connection.recv()
                except (EOFError, ConnectionError):
                    result = _crashed(worker)
            elif time.monotonic() - worker.since > _SECONDS_PER_PROGRAM:
                result = _timed_out(worker)
            if result is None:
                worker.is_made |= worker.connection in ready
                continue
            busy.remove(worker)
            _count(report, result, operators)
            if progress:
                _print_progress(report, result)
            if result.get("lost"):
                worker.end()
                worker = _Worker(device)
            give(worker)
    report.operators = len(operators)
    report.seconds = round(time.monotonic() - begin, 1)
    return report


def _count(report: Report, result: dict[str, Any], operators: set[str]) -> None:
    report.programs += 1
    report.statements += result["statements"]
    operators.update(result["operators"])
    for check, outcome in result["outcomes"]:
        counts = report.outcomes.setdefault(check, {})
        counts[outcome] = counts.get(outcome, 0) + 1
    report.failures += result["failures"]


def _print_progress(report: Report, result: dict[str, Any]) -> None:
    for found in result["failures"]:
        if not found.known:
            print(f"{found}\n", flush=True)
    if report.programs % 500 == 0:
        print(f"… {report.programs} programs, {sum(not found.known for found in report.failures)} failures", flush=True)


def _lost(worker: _Worker, kind: str, failures: list[Found]) -> dict[str, Any]:
    outcomes = [(found.check, "known" if found.known else kind) for found in failures]
    return {"statements": 0, "operators": [], "outcomes": outcomes, "failures": failures, "lost": True}


def _timed_out(worker: _Worker) -> dict[str, Any]:
    if not worker.is_made:  # eager takes that long
        return {**_lost(worker, "timeout", []), "outcomes": [("any", "skipped")]}
    message = f"nothing after {_SECONDS_PER_PROGRAM} s"
    return _lost(worker, "timeout", [Found(worker.seed or 0, "any", "timeout", message, "", "", "")])


def _crashed(worker: _Worker) -> dict[str, Any]:
    """Find out which check crashes, and the smallest program that does."""
    from tests.fuzz import checks, known

    worker.process.join()
    message = f"exit code {worker.process.exitcode}\n{pathlib.Path(worker.stack).read_text()[:1500]}"
    found = Found(worker.seed or 0, "any", "crash", message, "", "", "", device=worker.device)
    if worker.device != "cpu":  # attempts are forks, and a fork has no GPU
        if not worker.is_made:  # eager crashes
            return {**_lost(worker, "crash", []), "outcomes": [("any", "skipped")]}
        return _lost(worker, "crash", [found])
    context = multiprocessing.get_context("spawn")
    for check in checks.CHECKS:
        ours, theirs = context.Pipe()
        process = context.Process(target=_shrunk_crash, args=(worker.seed, check, theirs))
        process.start()
        theirs.close()
        try:
            candidate = ours.recv()
        except EOFError:
            continue
        finally:
            process.join()
        if candidate == "eager crashes too":
            return {**_lost(worker, "crash", []), "outcomes": [(check, "skipped")]}
        if candidate is not None:
            found = dataclasses.replace(candidate, message=message)
            break
    found.known = known.reason(found)
    return _lost(worker, "crash", [found])


def write_json(report: Report, path: str) -> None:
    """Write the report."""
    import torch

    facts = {"python": sys.version.split()[0], "torch": torch.__version__, "cpus": os.cpu_count()}
    with open(path, "w") as file:
        json.dump({**facts, **report.as_dict()}, file, indent=1, default=str)
