"""A thread that looks whether another process compiles alone, while this one waits for it in a collective.

It looks once a second, at the store of the process group, and only while there are parallel modules: calls do nothing
for it. A process that compiles a program waits for the others (`agreement.py`), and begins no collective meanwhile. So
one that has begun more of them since the last program that all compiled is not going to compile this one: the processes
have parted. What it has begun stays as it is while it waits, which tells it from one that is late.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thunder.distributed.agreement import Agreement

__all__ = ["watch"]

_SECONDS = 1.0
_LOOKS = 3  # in which nothing has changed

_logger = logging.getLogger("thunder.distributed")


def watch(agreement: Agreement) -> None:
    """Watch the next programs of a module, as long as it lives."""
    _watcher.add(agreement)


class _Watcher:
    def __init__(self) -> None:
        self._agreements: weakref.WeakSet[Agreement] = weakref.WeakSet()
        self._seen: weakref.WeakKeyDictionary[Agreement, tuple[int, int]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, agreement: Agreement) -> None:
        with self._lock:
            self._agreements.add(agreement)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="thunder.distributed", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """End the thread before the interpreter does, so that it is not in the middle of a call then."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._look_at_all()
            with self._lock:
                if not self._agreements:
                    self._thread = None
                    return

    def _look_at_all(self) -> None:
        with self._lock:
            agreements = list(self._agreements)
        for agreement in agreements:
            try:
                self._look(agreement)
            except (RuntimeError, KeyError, ValueError):
                # The process group or its store has ended. The next program of the module is watched again.
                with self._lock:
                    self._agreements.discard(agreement)

    def _look(self, agreement: Agreement) -> None:
        waiting, own = agreement.waiting(), agreement.collectives_begun()
        if waiting is None or own is None or waiting[1] is None or own <= waiting[1]:
            self._seen.pop(agreement, None)
            return
        before, looks = self._seen.get(agreement, (own, 0))
        looks = looks + 1 if own == before else 1
        self._seen[agreement] = own, looks
        if looks == _LOOKS and (verdict := agreement.end_waiting(waiting)):
            _logger.error("thunder.distributed: %s", verdict)


_watcher = _Watcher()
atexit.register(_watcher.end)
