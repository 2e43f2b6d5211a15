# ruff: noqa: C400, C416, E741, F632, PIE800, PIE804, RUF100
"""Small programs, one for each part of the language; each returns a value that can be compared."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

PROGRAMS: list[Callable[[], Any]] = []


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS.append(function)
    return function


@program
def arithmetic() -> Any:
    big = 2**70
    values = [7 // 2, -7 % 3, 7 / 2, 2**10, 1 << 40, 5 & 3, 5 | 8, 5 ^ 1, ~5, -big, +3, not 0, big * big - 1]
    value = 3
    value += 4
    value -= 1
    value *= 5
    value //= 2
    value **= 2
    value %= 100
    value <<= 3
    value >>= 1
    value |= 1
    value &= 0xFF
    value ^= 2
    return values, value, 1.5 + 2, 1.5 - 2.5, 1.5 * 2.0, 3 @ Matrix(), True + True


class Matrix:
    def __rmatmul__(self, other: int) -> tuple[str, int]:
        return ("matmul", other)


@program
def comparisons() -> Any:
    return [1 < 2, 1 <= 1 < 3, 2 == 2.0, "a" != "b", 3 > 2 >= 2, 1 in [1], 2 not in {1}, None is None, [] is not None]


@program
def branches_and_loops() -> Any:
    total = 0
    for index in range(20):
        if index % 3 == 0:
            continue
        elif index == 17:
            break
        total += index
    else:
        total = -1
    while True:
        total -= 7
        if total < 0:
            break
    return total, (1 if total else 2), total and 5, total or 6, not total


@program
def strings() -> Any:
    name, value = "x", 3.14159
    text = ""
    for index in range(5):
        text += str(index)
    return f"{name!r:>6} {value:.2f} {value!s} {name!a} {'nested ' + f'{name}'}", "%s=%d" % (name, 3), text  # noqa: UP031


@program
def containers() -> Any:
    a, *rest, b = range(6)
    first, (second, third) = 1, (2, 3)
    merged = {**{"a": 1}, "b": 2, **{"c": 3}}
    joined = [*rest, *"xy", *(1, 2)]
    cut = joined[1:-1:2], joined[::-1]
    joined[0:2] = "pqr"
    del joined[1], merged["a"]
    return a, rest, b, first, second, third, merged, joined, cut, {*rest, 9}, (*rest,)


@program
def comprehensions() -> Any:
    outer = 3
    return (
        [x * outer for x in range(5) if x % 2],
        {x: [y for y in range(x)] for x in range(3)},
        {x % 3 for x in range(10)},
        list((x, y) for x in range(2) for y in "ab"),
        [lambda: outer][0](),
        [y := 1, y**2],
    )


@program
def closures() -> Any:
    def counter(start: int = 0) -> Any:
        count = start

        def step(by: int = 1) -> int:
            nonlocal count
            count += by
            return count

        return step

    step = counter(5)
    return step(), step(3), [f() for f in [lambda i=i: i for i in range(3)]]


GLOBAL = 1


@program
def globals_and_deletion() -> Any:
    global GLOBAL, NEW_GLOBAL
    GLOBAL += 1
    NEW_GLOBAL = 5
    seen = GLOBAL, NEW_GLOBAL
    GLOBAL = 1
    del NEW_GLOBAL
    local = 1
    del local
    messages = []
    for attempt in (lambda: NEW_GLOBAL, lambda: undefined_name):  # noqa: F821
        try:
            attempt()
        except NameError as error:
            messages.append(str(error))
    try:
        local  # noqa: B018, F821
    except UnboundLocalError as error:
        messages.append(str(error))
    return seen, messages


@program
def calls() -> Any:
    def everything(a: int, /, b: int, *args: int, c: int = 3, d: int, **kwargs: int) -> Any:
        return a, b, args, c, d, kwargs

    options = {"d": 4, "z": 5}
    errors = []
    for call in (
        lambda: everything(1, b=2),
        lambda: everything(1, 2, d=1, **{"d": 2}),
        lambda: everything(*1),  # type: ignore[misc]
        lambda: everything(**1),  # type: ignore[arg-type]
        lambda: (lambda: 0)(1),  # type: ignore[call-arg]
        lambda: options(),  # type: ignore[operator]
    ):
        try:
            call()
        except TypeError as error:
            errors.append(str(error))
    return (
        everything(1, 2, d=0),
        everything(1, 2, 3, 4, c=5, **options),
        everything(*(1, 2, 3), d=1),
        everything(1, **options, b=7),
        errors,
    )


@program
def classes() -> Any:
    log = []

    class Meta(type):
        def __new__(meta, name, bases, namespace, **options):  # type: ignore[no-untyped-def]  # noqa: N804
            log.append(("meta", name, options))
            return super().__new__(meta, name, bases, namespace)

        def __call__(cls, *args):  # type: ignore[no-untyped-def]
            log.append(("call", cls.__name__))
            return super().__call__(*args)

    class Base(metaclass=Meta, flag=1):
        attribute: int = 5
        __slots__ = ("value",)

        def __init__(self, value: int) -> None:
            self.value = value

        def __init_subclass__(cls, **options: Any) -> None:
            log.append(("subclass", cls.__name__))

        @property
        def double(self) -> int:
            return self.value * 2

        @double.setter
        def double(self, value: int) -> None:
            self.value = value // 2

        @classmethod
        def make(cls) -> Any:
            return cls(7)

        @staticmethod
        def plain(x: int) -> int:
            return x + 1

        def __getitem__(self, key: Any) -> Any:
            return key

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Base) and self.value == other.value

        def __hash__(self) -> int:
            return self.value

        def __call__(self, x: int) -> int:
            return self.value + x

    class Derived(Base):
        def __getattr__(self, name: str) -> str:
            if name.startswith("_"):
                raise AttributeError(name)
            return "missing " + name

        def method(self) -> Any:
            return super().make().value, __class__.__name__  # type: ignore[name-defined]  # noqa: F821

    item = Derived.make()
    item.double = 20
    del item.value
    item.value = 3
    results = item.double, item.plain(1), item[1:2, ...], item(4), item.other, item.method(), item == Derived(3)
    return results, log, Base.__annotations__, {item: 1}[Derived(3)], hasattr(item, "_x")


@program
def dataclass_and_functools() -> Any:
    @dataclasses.dataclass(order=True)
    class Point:
        x: int
        y: int = 2
        z: list[int] = dataclasses.field(default_factory=list)

    @functools.lru_cache
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @functools.singledispatch
    def kind(value: object) -> str:
        return "object"

    @kind.register
    def _(value: int) -> str:
        return "int"

    add = functools.partial(operator.add, 5)
    total = functools.reduce(lambda a, b: a * b, range(1, 6))
    return repr(Point(1)), Point(1) < Point(2), fibonacci(40), kind(3), kind(""), add(1), total


@program
def callbacks_from_c() -> Any:
    class Index:
        def __index__(self) -> int:
            return 2

        def __lt__(self, other: object) -> bool:
            return True

        def __bool__(self) -> bool:
            return False

    class Default(dict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> str:
            return key * 2

    return (
        sorted([3, 1, 2], key=lambda v: -v),
        [10, 20, 30][Index()],
        list(map(lambda a, b: a + b, [1, 2], [3, 4])),
        max("abc", key=lambda c: -ord(c)),
        Default()["k"],
        bool(Index()),
        len(sorted([Index(), Index()])),
        list(itertools.accumulate([1, 2, 3], lambda a, b: a * b)),
        list(filter(None, [0, 1, 2])),
    )


@program
def exceptions() -> Any:
    log: list[Any] = []

    def run(error: Any) -> Any:
        try:
            try:
                if error:
                    raise error
            except KeyError as caught:
                log.append(("caught", repr(caught)))
                raise ValueError("new") from caught
            else:
                log.append("else")
            finally:
                log.append("finally")
        except ValueError as caught:
            log.append((repr(caught), repr(caught.__cause__), repr(caught.__context__), caught.__suppress_context__))
            return "value error"
        return "done"

    results = [run(None), run(KeyError("k")), run(ValueError)]
    try:
        raise
    except RuntimeError as error:
        log.append(str(error))
    for wrong in (1, int):
        try:
            raise wrong  # type: ignore[misc]
        except TypeError as error:
            log.append(str(error))
    try:
        assert not results, "message"
    except AssertionError as error:
        log.append(str(error))
    return results, log, sys.exc_info()


@program
def finally_and_return() -> Any:
    def inner(kind: int) -> Any:
        for index in range(3):
            try:
                if kind == 0:
                    return index
                if kind == 1:
                    continue
                break
            finally:
                if kind == 2:
                    return "finally"  # noqa: B012
        return "end"

    return inner(0), inner(1), inner(2), inner(3)


@program
def with_statements() -> Any:
    log: list[Any] = []

    @contextlib.contextmanager
    def manager(name: str, swallow: bool = False) -> Iterator[str]:
        log.append("enter " + name)
        try:
            yield name
        except KeyError:
            log.append("except " + name)
            if not swallow:
                raise
        finally:
            log.append("exit " + name)

    with manager("a", swallow=True) as a, manager("b") as b:
        log.append(a + b)
        raise KeyError
    try:
        with 1:  # type: ignore[attr-defined]
            pass
    except (TypeError, AttributeError) as error:
        log.append(str(error))
    return log


@program
def generators() -> Any:
    log: list[Any] = []

    def inner() -> Any:
        try:
            received = yield 1
            log.append(received)
            yield 2
        except ValueError as error:
            log.append(repr(error))
            yield 3
        finally:
            log.append("closed")
        return "result"

    def outer() -> Any:
        result = yield from inner()
        log.append(result)
        yield from [10, 11]

    generator = outer()
    values = [next(generator), generator.send("sent"), generator.throw(ValueError("thrown")), *generator]
    abandoned = outer()
    next(abandoned)
    abandoned.close()

    def stop() -> Iterator[int]:
        raise StopIteration
        yield

    try:
        list(stop())
    except RuntimeError as error:
        log.append((str(error), repr(error.__cause__)))
    return values, log, list(x for x in range(3))


@program
def coroutines() -> Any:
    log: list[Any] = []

    class Manager:
        async def __aenter__(self) -> int:
            await asyncio.sleep(0)
            return 5

        async def __aexit__(self, kind: Any, *rest: Any) -> bool:
            log.append(kind)
            return True

    async def ticks(count: int) -> Any:
        try:
            for index in range(count):
                await asyncio.sleep(0)
                sent = yield index
                log.append(sent)
        finally:
            log.append("done")

    async def main() -> Any:
        async with Manager() as value:
            raise KeyError
        collected = [x async for x in ticks(3) if x]
        async for item in ticks(2):
            log.append(item)
            if item:
                break
        generator = ticks(2)
        await generator.asend(None)
        await generator.aclose()
        gathered = await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))
        try:
            await 1  # type: ignore[misc]
        except TypeError as error:
            log.append(str(error))
        return value, collected, gathered

    return asyncio.run(main()), log


@program
def pattern_matching() -> Any:
    @dataclasses.dataclass
    class Point:
        x: int
        y: int

    def describe(subject: Any) -> Any:
        match subject:
            case 0 | 1:
                return "small"
            case int(value) if value > 10:
                return "big", value
            case str() as text:
                return "text", text
            case [first, *rest]:
                return "list", first, rest
            case {"key": value, **others}:
                return "mapping", value, others
            case Point(0, y=y):
                return "on axis", y
            case Point(x, y):
                return "point", x, y
            case None:
                return "none"
            case _:
                return "other"

    subjects = [0, 11, 5, "s", [1, 2, 3], (4,), {"key": 1, "z": 2}, {}, Point(0, 2), Point(1, 2), None]
    return [describe(subject) for subject in subjects]


@program
def imports() -> Any:
    import os.path as path
    from collections import OrderedDict, deque

    namespace: dict[str, Any] = {}
    exec("from math import *", namespace)
    messages = []
    try:
        from os import does_not_exist  # type: ignore[attr-defined]  # noqa: F401
    except ImportError as error:
        messages.append(str(error).split(" (")[0])
    return path.join("a", "b"), OrderedDict(a=1), deque([1]), namespace["pi"], messages


@program
def execution_of_source() -> Any:
    namespace: dict[str, Any] = {}
    exec("x: int = 1\ndel x\ny = 3\nfor y in range(4): pass\nresult = y, __annotations__", namespace)
    return namespace["result"], eval("[i for i in range(3)]"), sorted(locals())


@program
def introspection() -> Any:
    def inner(argument: int) -> Any:
        frame = sys._getframe()
        caller = frame.f_back
        assert caller is not None
        return sorted(frame.f_locals), frame.f_code.co_name, caller.f_code.co_name, frame.f_lineno - caller.f_lineno

    return inner(1), sorted(vars()), inner.__qualname__
