"""Random programs that read and write nested objects from outside, for test_random_writes.py."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch


class Thing:
    """A user object."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    """A user object with slots."""

    __slots__ = ("other", "value")


class Table(dict):  # type: ignore[type-arg]
    """A dict with a method and attributes of its own."""

    def put(self, key: Any, value: Any) -> None:
        self[key] = value


def make_world() -> Thing:
    """Return what a program reads and writes, always the same."""
    world = Thing(number=3, tensor=torch.arange(3.0))
    world.table = {"a": 1, "b": torch.ones(2)}
    world.ordered = OrderedDict(a=1, b=2, c=3)
    world.default = defaultdict(list, a=[1])
    world.counter = Counter("aab")
    world.subclass = Table(a=1)
    world.items = [1, torch.ones(2), [2, 3]]
    world.numbers = [5, 1, 4]
    world.members = {1, 2, 3}
    world.queue = deque([1, torch.zeros(2), 3])
    world.window = deque([1, 2], maxlen=3)
    world.thing = Thing(a=1, b=[1, 2])
    world.slotted = Slotted()
    world.slotted.value = 7
    world.shared = world.items
    return world


DICTS = ("w.table", "w.ordered", "w.default", "w.subclass", "w.thing.__dict__", "vars(w.thing)", "GLOBAL['table']")
LISTS = ("w.items", "w.shared", "w.default['a']", "GLOBAL['list']")
QUEUES = ("w.queue", "w.window")
KEYS = ("'a'", "'b'", "'c'", "'d'")

VALUES = (
    *("{i}", "x + {i}", "x * w.number", "[x, {i}]", "{{'k': x, 'i': {i}}}", "({i}, x * 2)", "w.items", "w.tensor"),
    *(
        "Thing(v=x + {i})",
        "len(w.items)",
        "w.thing",
        "None",
        "deque([x, {i}])",
        "defaultdict(list, z=[{i}])",
        "{{{i}, 1}}",
    ),
    *("slice({i}, None)", "bytearray(b'ab')", "partial(max, {i})"),
)

STATEMENTS = {
    DICTS: (
        *("{c}[{k}] = {v}", "{c}.pop({k}, None)", "out.append({c}.setdefault({k}, {v}))", "{c}.update({{{k}: {v}}})"),
        *(
            "{c}.update({{{k}: {v}}}, z={v})",
            "if {k} in {c}: del {c}[{k}]",
            "if {c}: {c}.popitem()",
            "out.append(len({c}))",
        ),
        *(
            "out.append({c}.get({k}))",
            "out.append(list({c}))",
            "for key, value in {c}.items(): out.append((key, value))",
        ),
        *(
            "out.append(dict({c}))",
            "out.append({k} in {c})",
            "operator.setitem({c}, {k}, {v})",
            "{c}.__setitem__({k}, {v})",
        ),
    ),
    LISTS: (
        *(
            "{c}.append({v})",
            "{c}.extend([{v}, {v}])",
            "if {c}: {c}[0] = {v}",
            "if {c}: {c}[-1] = {v}",
            "if {c}: del {c}[0]",
        ),
        *(
            "if {c}: out.append({c}.pop())",
            "{c}.insert(0, {v})",
            "{c}.reverse()",
            "{c}[1:2] = [{v}]",
            "out.append(list({c}))",
        ),
        *(
            "for item in {c}: out.append(item)",
            "if {c}: out.append({c}[0])",
            "out.append(len({c}))",
            "{c}.__iadd__([{v}])",
        ),
    ),
    ("w.numbers",): (
        *("{c}.sort()", "heapq.heappush({c}, {i})", "bisect.insort({c}, {i})", "{c} += [{i}, 2]", "{c} *= 1"),
        *("out.append(sum({c}))", "out.append(sorted({c}, key=lambda n: -n))", "out.append({i} in {c})"),
    ),
    ("w.members",): (
        *(
            "{c}.add({i})",
            "{c}.discard({i})",
            "if {i} in {c}: {c}.remove({i})",
            "out.append({i} in {c})",
            "{c} |= {{{i}}}",
        ),
        *("out.append(sorted({c}))", "{c}.update([{i}, 9])", "{c} -= {{1}}", "out.append(len({c}))"),
    ),
    QUEUES: (
        *(
            "{c}.append({v})",
            "{c}.appendleft({v})",
            "if {c}: out.append({c}.pop())",
            "if {c}: out.append({c}.popleft())",
        ),
        *(
            "{c}.extend([{v}, {i}])",
            "{c}.rotate(1)",
            "if {c}: {c}[0] = {v}",
            "out.append(list({c}))",
            "out.append(len({c}))",
        ),
        *("for item in {c}: out.append(item)", "if {c}: out.append({c}[0])", "{c} += [{i}]"),
    ),
    ("w.thing", "w"): (
        *(
            "{c}.extra = {v}",
            "setattr({c}, {k}, {v})",
            "if hasattr({c}, {k}): delattr({c}, {k})",
            "out.append({c}.number if {c} is w else 0)",
        ),
        *("out.append(getattr({c}, {k}, None))", "w.number += 1", "out.append(copy.copy(w.thing).__dict__)"),
    ),
    ("w.slotted",): (
        *("{c}.value = {v}", "{c}.other = {v}", "if hasattr({c}, 'other'): del {c}.other", "out.append({c}.value)"),
        "out.append(getattr({c}, 'other', None))",
    ),
    ("COUNT",): ("{c} += 1", "out.append({c})", "{c} = {i}"),
    ("cell",): ("{c} = {v}", "out.append({c})"),
    ("w.default",): ("{c}[{k}].append({v})", "out.append({c}[{k}])"),
    ("w.counter",): ("{c}.update('abz')", "{c}['a'] += 1", "out.append({c}.most_common(1))", "out.append({c}['q'])"),
    ("w.subclass",): ("{c}.put({k}, {v})", "{c}.attribute = {v}"),
    ("w.ordered",): (
        "if {k} in {c}: {c}.move_to_end({k})",
        "if {c}: {c}.popitem(last=False)",
        "out.append(list(reversed({c})))",
    ),
}


def statement(source: random.Random) -> str:
    containers = source.choice(list(STATEMENTS))

    def value() -> str:
        return source.choice(VALUES).format(i=source.randrange(6))

    text = source.choice(STATEMENTS[containers])
    for _ in range(text.count("{v}")):
        text = text.replace("{v}", value().replace("{", "{{").replace("}", "}}"), 1)
    return text.format(c=source.choice(containers), k=source.choice(KEYS), i=source.randrange(6))


def make_source(seed: int) -> str:
    """Return the text of a module whose `make()` gives a function of a world and a tensor."""
    source = random.Random(seed)
    lines = []
    for _ in range(source.randrange(2, 9)):
        line = statement(source)
        kind = source.random()
        if kind < 0.1:
            lines += ["if w.number % 2:", f"    {line}", "else:", f"    {statement(source)}"]
        elif kind < 0.15 and not line.startswith("for"):
            lines += ["for i in range(2):", f"    {line}"]
        else:
            lines.append(line)
    body = "\n".join(f"        {line}" for line in lines)
    return f"""
import bisect, copy, heapq, operator
from collections import defaultdict, deque
from functools import partial
COUNT = 1
def make():
    cell = 1
    def function(w, x):
        global COUNT
        nonlocal cell
        out = []
{body}
        return out
    return function
"""


def load(text: str, world: Thing) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function of `text` and its globals."""
    namespace: dict[str, Any] = {"GLOBAL": {"table": {"a": world.items}, "list": [world.tensor]}, "Thing": Thing}
    exec(text, namespace)
    return namespace["make"](), namespace


def describe(value: Any, seen: dict[int, int] | None = None) -> Any:
    """Return a picture of `value` that is equal for equal values with the same sharing."""
    seen = {} if seen is None else seen
    if isinstance(value, torch.Tensor):
        return "tensor", value.tolist()
    if value is None or isinstance(value, int | float | str | bytes | slice):
        return repr(value)
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    name = type(value).__name__

    def all_of(items: Any) -> list[Any]:
        return [describe(item, seen) for item in items]

    if isinstance(value, dict):
        return (
            name,
            all_of(item for pair in value.items() for item in pair),
            all_of(vars(value).values()) if hasattr(value, "__dict__") else [],
        )
    if isinstance(value, set):
        return name, sorted(map(repr, value))
    if isinstance(value, list | tuple | deque):
        return name, getattr(value, "maxlen", None), all_of(value)
    if isinstance(value, Thing):
        return name, all_of(item for pair in vars(value).items() for item in pair)
    if isinstance(value, Slotted):
        return name, all_of(getattr(value, slot, "empty") for slot in Slotted.__slots__)
    return repr(value)
