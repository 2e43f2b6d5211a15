"""Runs many scripts in forked processes, where a crash or a hang is a failure too, and makes failing ones small."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

_SECONDS_PER_SCRIPT = 60
_SECONDS_PER_TRIAL = 20
_SECONDS_TO_SHRINK = 30
_SCRIPTS_PER_PROCESS = 100
_FORK = multiprocessing.get_context("fork")


@dataclasses.dataclass
class Found:
    """A failure, and the smallest script that shows it."""

    seed: int
    kind: str
    message: str
    text: str
    known: str = ""
    sizes: bool = False

    def __str__(self) -> str:
        from tests.fuzz.scripts.execute import alone

        command = f"python -m tests.fuzz.scripts --count 1 --seed {self.seed}{' --sizes' * self.sizes}"
        head = f"seed {self.seed}: {self.kind}: {self.message[:1500]}\n  {command}\n"
        return f"{head}--- a file that shows it\n{alone(self.text)}---\n"


@dataclasses.dataclass
class Report:
    """The result of a run. `calls` are those of jitted functions; `outcomes`: kind -> count."""

    first_seed: int
    scripts: int = 0
    seconds: float = 0.0
    calls: int = 0
    fallbacks: int = 0
    misses: int = 0
    compiled: int = 0  # scripts of which something was compiled, and nothing refused
    memoized: int = 0  # scripts with a function under lru_cache, whose first calls run in eager
    memoized_compiled: int = 0
    outcomes: dict[str, int] = dataclasses.field(default_factory=dict)
    failures: list[Found] = dataclasses.field(default_factory=list)
    refusals: dict[str, int] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.scripts} scripts from seed {self.first_seed} in {self.seconds:.0f} s: {self.calls} steps, "
            f"{self.misses} traces, {self.fallbacks} calls in eager, {self.compiled} scripts compiled as a whole\n"
            f"  {dict(sorted(self.outcomes.items()))}"
        )


# --- in a process of its own


def _quiet(log: str) -> None:
    import faulthandler

    import torch

    torch.set_num_threads(1)
    for stream, path in ((1, os.devnull), (2, log)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    faulthandler.enable()


def _serve(connection: Connection, log: str, sizes: bool) -> None:
    from tests.fuzz.scripts.compare import check
    from tests.fuzz.scripts.generator import generate

    _quiet(log)
    while (seed := connection.recv()) is not None:
        text = None
        try:
            text = generate(seed, sizes)
            connection.send(("made", text))
            outcome = check(text) if text else None
            connection.send(("done", outcome))
        except Exception:
            connection.send(("broken", f"{traceback.format_exc()[-3000:]}\n{text}"))


def _try(text: str, connection: Connection, log: str) -> None:
    from tests.fuzz.scripts.compare import check

    _quiet(log)
    connection.send(check(text))


def isolated(text: str, seconds: float = _SECONDS_PER_TRIAL) -> Any:
    """Return the outcome of a script that is run in a process of its own."""
    from tests.fuzz.scripts.compare import Outcome

    ours, theirs = _FORK.Pipe()
    with tempfile.NamedTemporaryFile(prefix="thunder_scripts_") as log:
        process = _FORK.Process(target=_try, args=(text, theirs, log.name), daemon=True)
        process.start()
        theirs.close()
        try:
            if ours.poll(seconds):
                return ours.recv()
            return Outcome("hang", f"nothing after {seconds} s")
        except (EOFError, ConnectionError):
            process.join()
            return Outcome("crash", _crash_message(process.exitcode, log.name))
        finally:
            process.kill()
            process.join()
            ours.close()


def _crash_message(code: int | None, log: str) -> str:
    name = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
    text = pathlib.Path(log).read_text(errors="replace")
    return f"{name}\n{text[max(text.rfind('Fatal Python error'), 0) :][:1500]}"  # the innermost frame comes first


def _eager_survives(text: str, times: int = 5) -> bool:
    """Whether the script neither crashes nor hangs without thunder: what writes behind its memory does so at times."""
    return all(_eager_survives_once(text) for _ in range(times))


def _eager_survives_once(text: str) -> bool:
    process = os.fork()
    if process == 0:
        from tests.fuzz.scripts.execute import execute

        try:
            _quiet(os.devnull)
            signal.alarm(_SECONDS_PER_TRIAL)
            execute(text, compiles=False)
        finally:
            os._exit(0)
    return not os.WIFSIGNALED(os.waitpid(process, 0)[1])


# --- many scripts


class _Worker:
    def __init__(self, sizes: bool) -> None:
        self.sizes = sizes
        self.connection, theirs = _FORK.Pipe()
        handle, self.log = tempfile.mkstemp(prefix="thunder_scripts_")
        os.close(handle)
        self.process = _FORK.Process(target=_serve, args=(theirs, self.log, sizes), daemon=True)
        self.process.start()
        theirs.close()
        self.count = 0
        self.seed = 0
        self.since = 0.0
        self.text: str | None = None

    def give(self, seed: int) -> None:
        self.seed, self.since, self.text = seed, time.monotonic(), None
        self.count += 1
        self.connection.send(seed)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        pathlib.Path(self.log).unlink()


def _import_for_all() -> None:
    """Import what the forked processes would otherwise import one by one, and start no thread."""
    import importlib

    from tests.fuzz.scripts.execute import PREAMBLE

    exec(PREAMBLE, {})
    for name in ("torch._dynamo", "torch.utils.flop_counter", "torch.profiler", "thunder._C"):
        importlib.import_module(name)
    for name in ("compare", "generator", "shrink"):
        importlib.import_module(f"tests.fuzz.scripts.{name}")
    import thunder

    for name in thunder.__all__:
        getattr(thunder, name)


def run(
    count: int,
    seed: int,
    jobs: int,
    *,
    seconds: float | None = None,
    shrinks: bool = True,
    sizes: bool = False,
    on_found: Callable[[Found], None] | None = None,
) -> Report:
    """Check the scripts of `count` seeds from `seed` on; begin no more, and shrink no failure, after `seconds`.

    `sizes`: those of tensors change from call to call.
    """
    _import_for_all()
    report = Report(seed)
    begin = time.monotonic()
    seeds = iter(range(seed, seed + count))
    busy: list[_Worker] = []
    examining: list[_Examiner] = []

    def is_late() -> bool:
        return seconds is not None and time.monotonic() - begin > seconds

    def give(worker: _Worker) -> None:
        following = None if is_late() else next(seeds, None)
        if following is None:
            worker.end()
            return
        if worker.count >= _SCRIPTS_PER_PROCESS:
            worker.end()
            worker = _Worker(sizes)
        worker.give(following)
        busy.append(worker)

    for _ in range(jobs):
        give(_Worker(sizes))
    while busy or examining:
        ready = wait([one.connection for one in (*busy, *examining)], timeout=1.0)
        for examiner in [one for one in examining if one.connection in ready]:
            examining.remove(examiner)
            found = examiner.found()
            _count_failure(report, found)
            if on_found is not None:
                on_found(found)
            give(_Worker(sizes))
        for worker in list(busy):
            outcome = _answer(worker, worker.connection in ready)
            if outcome == "waiting":
                continue
            busy.remove(worker)
            _count(report, worker, outcome)
            if outcome is not None and outcome.is_failure:
                examining.append(_Examiner(worker, outcome, shrinks and not is_late()))
                worker.end()  # whose place the examiner has until it is done
                continue
            if outcome is not None and outcome.kind == "skipped":
                worker.end()
                worker = _Worker(sizes)
            give(worker)
    report.seconds = round(time.monotonic() - begin, 1)
    return report


def _answer(worker: _Worker, is_ready: bool) -> Any:
    from tests.fuzz.scripts.compare import Outcome

    if is_ready:
        try:
            what, value = worker.connection.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            if worker.text is None or not _eager_survives(worker.text):
                return Outcome("skipped", "eager crashes")
            return Outcome("crash", _crash_message(worker.process.exitcode, worker.log))
        if what == "made":
            worker.text = value
            return "waiting"
        return Outcome("broken", value) if what == "broken" else value
    if time.monotonic() - worker.since < _SECONDS_PER_SCRIPT:
        return "waiting"
    if worker.text is None or not _eager_survives(worker.text):
        return Outcome("skipped", "eager hangs")
    return Outcome("hang", f"nothing after {_SECONDS_PER_SCRIPT} s")


def _count(report: Report, worker: _Worker, outcome: Any) -> None:
    report.scripts += 1
    kind = "none" if outcome is None else outcome.kind
    if outcome is not None:
        report.calls += outcome.calls
        report.fallbacks += outcome.fallbacks
        report.misses += outcome.misses
        is_compiled = outcome.misses > 0 and not outcome.fallbacks and kind != "refused"
        is_memoized = "lru_cache" in (worker.text or "")
        report.compiled += is_compiled
        report.memoized += is_memoized
        report.memoized_compiled += is_compiled and is_memoized
        for reason in outcome.refusals:
            report.refusals[reason] = report.refusals.get(reason, 0) + 1
        if outcome.is_failure:
            return  # counted when it has been examined
    report.outcomes[kind] = report.outcomes.get(kind, 0) + 1


def _count_failure(report: Report, found: Found) -> None:
    report.failures.append(found)
    kind = "known" if found.known else found.kind
    report.outcomes[kind] = report.outcomes.get(kind, 0) + 1


class _Examiner:
    """A process that makes a failure small, and finds out whether it is a known one, while others run scripts."""

    def __init__(self, worker: _Worker, outcome: Any, shrinks: bool) -> None:
        self.connection, theirs = _FORK.Pipe()
        self.given = Found(worker.seed, outcome.kind, outcome.message, worker.text or "", "", worker.sizes)
        self.process = _FORK.Process(target=_examine, args=(self.given, shrinks, theirs))  # it has children of its own
        self.process.start()
        theirs.close()

    def found(self) -> Found:
        """Return the failure made small, or as it was where the process died."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            return self.given
        finally:
            self.process.join()
            self.connection.close()


def _examine(found: Found, shrinks: bool, connection: Connection) -> None:
    connection.send(_small(found, shrinks))


def _shrink_here(text: str, wanted: str, connection: Connection) -> None:
    from tests.fuzz.scripts.compare import check
    from tests.fuzz.scripts.shrink import shrink

    _quiet(os.devnull)

    def fails(candidate: str) -> bool:
        trial = check(candidate)
        if signature(trial.kind, trial.message) != wanted:
            return False
        connection.send(candidate)
        return True

    shrink(text, fails, _SECONDS_TO_SHRINK)


def _shrunk_in_one_process(text: str, wanted: str) -> str:
    """Return the smallest script found until a trial crashes or hangs: ten times as fast as a process for each."""
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_shrink_here, args=(text, wanted, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        while ours.poll(_SECONDS_PER_TRIAL):
            text = ours.recv()
    except (EOFError, ConnectionError):
        pass
    process.kill()
    process.join()
    return text


def _small(found: Found, shrinks: bool) -> Found:
    from tests.fuzz.scripts import known
    from tests.fuzz.scripts.shrink import shrink

    kind, message, text = found.kind, found.message, found.text
    if shrinks and kind not in ("broken", "hang"):
        wanted = signature(kind, message)

        def fails(candidate: str) -> bool:
            if kind == "crash" and not _eager_survives(candidate):
                return False
            trial = isolated(candidate)
            return signature(trial.kind, trial.message) == wanted

        if fails(text):
            small = text if kind == "crash" else _shrunk_in_one_process(text, wanted)
            text = small if fails(small) else text
            text = shrink(text, fails, _SECONDS_TO_SHRINK if kind == "crash" else _SECONDS_TO_SHRINK / 4)
            outcome = isolated(text)
            kind, message = outcome.kind, outcome.message
        else:
            message += "\n(alone, the script passes: something before it in its process matters)"

    def explains(why: str) -> bool:
        rest = known.without_cause(why, text)
        return not rest or not isolated(rest).is_failure

    why = next(filter(explains, known.reasons(kind, message, text)), "")
    return dataclasses.replace(found, kind=kind, message=message, text=text, known=why)


def signature(kind: str, message: str) -> str:
    """Return what must stay the same when a script shrinks."""
    if not kind.startswith(("raises", "internal", "script")):
        return kind
    return f"{kind} {re.sub(r'[0-9]+', '', message.partition(': ')[2])[:60]}"


def write_json(report: Report, path: str) -> None:
    """Write the report."""
    import torch

    facts = {"python": sys.version.split()[0], "torch": torch.__version__, "cpus": os.cpu_count()}
    with open(path, "w") as file:
        json.dump({**facts, **dataclasses.asdict(report)}, file, indent=1, default=str)
