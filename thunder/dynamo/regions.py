"""Parts of a graph of TorchDynamo: those that thunder compiles, and those that run in eager, with the reason.

What thunder refuses is known when it traces a part for the first time: a refusal changes nothing, so the same call then
runs two halves of the part, and so on, until what is refused stands alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import checkpoint

from thunder._jit import jit
from thunder.errors import EagerFallbackWarning

__all__ = ["Region", "Report", "prepare"]

_READS_DATA = "fullgraph=True: expected a program that does not depend on the data"


@dataclasses.dataclass(frozen=True)
class Report:
    """Who runs a part of a graph.

    Attributes:
        executor: "thunder", "eager", or "not called" before the first call.
        operations: the operations of the part, as the graph prints them.
        reason: why thunder does not run it; empty where it does.
        line: the line of the program that the first operation comes from; empty where it is not known.
    """

    executor: str
    operations: tuple[str, ...]
    reason: str
    line: str

    def __str__(self) -> str:
        text = f"{self.executor}: {len(self.operations)} operations"
        if self.executor == "eager":
            text += f" ({', '.join(self.operations)}): {self.reason}"
        return text + (f"\n    {self.line}" if self.line and self.executor != "thunder" else "")


class Region:
    """A part of a graph that is called with its inputs and returns its outputs."""

    def __init__(self, module: GraphModule, options: dict[str, Any], *, is_whole: bool = True) -> None:
        _recompile(module)
        self.module = module
        self.options = options
        self.is_whole = is_whole
        self.is_joined = False  # of parts that thunder compiled
        self.reason = ""
        self.parts: list[tuple[Region, list[str], list[str]]] = []
        self.compiled: Any = None
        self._program: Callable[..., Any] | None = None
        self._lock = threading.RLock()

    def __call__(self, *args: Any) -> Any:
        """Run the part; the first call decides how."""
        if self._program is None:
            with self._lock:
                if self._program is None:
                    return self._first_call(args)
        return self._program(*args)

    def reports(self) -> list[Report]:
        """Return who runs what, in the order of the graph."""
        return [leaf.report() for leaf in self.leaves()]

    def report(self) -> Report:
        """Return who runs the part, which is not divided."""
        operations = _operations(self.module)
        if self._program is None:
            executor = "thunder" if self.is_joined else "not called"
        else:
            executor = "eager" if self.compiled is None else "thunder"
        line = _line(operations[0]) if operations else ""
        return Report(executor, tuple(map(_describe, operations)), self.reason, line)

    def compiled_functions(self) -> list[Any]:
        """Return what `thunder.jit` returned, in the order of the graph."""
        return [leaf.compiled for leaf in self.leaves() if leaf.compiled is not None]

    def _first_call(self, args: Sequence[Any]) -> Any:
        operations = _operations(self.module)
        if not operations:
            self._program = self.module
            return self.module(*args)
        if not any(_is_for_eager(node) for node in operations):
            try:
                return self._call_compiled(args)
            except (NotImplementedError, RuntimeError) as error:
                if not _is_refusal(error) or self.options.get("fullgraph"):
                    raise
                if not isinstance(error, NotImplementedError):  # several segments of thunder run it
                    return self._call_segments(args)
                self.reason = str(error)
        if len(operations) == 1:
            self._warn(operations[0])
            self._program = self.module
            return self.module(*args)
        middle = len(operations) // 2
        self._set_parts([operations[:middle], operations[middle:]])
        result = self._run_parts(*args)
        if self.is_whole:
            self._join_parts(operations)
        self._program = self._run_parts
        return result

    def _call_compiled(self, args: Sequence[Any]) -> Any:
        compiled = jit(self.module, **{**self.options, "fullgraph": True})
        result = compiled(*args)

        def call(*arguments: Any) -> Any:
            try:
                return compiled(*arguments)
            except (NotImplementedError, RuntimeError) as error:
                if not _is_refusal(error) or self.options.get("fullgraph"):
                    raise
            return self._call_segments(arguments)

        self.compiled, self._program = compiled, call
        return result

    def _call_segments(self, args: Sequence[Any]) -> Any:
        """Run the part as `thunder.jit` runs any program, also what depends on data, or is refused at a later call."""
        self.compiled = self._program = jit(self.module, **self.options)
        return self.compiled(*args)

    def _warn(self, node: Node) -> None:
        if _is_for_eager(node):
            self.reason = "a setting of PyTorch, for the operations behind it"
            return
        line = _line(node)
        place = f"\n  in {line}" if line else ""
        warnings.warn(
            f"thunder: {_describe(node)} runs in eager: {self.reason}{place}", EagerFallbackWarning, stacklevel=2
        )

    def _set_parts(self, groups: Sequence[Sequence[Node]]) -> None:
        self.parts = []
        for number, group in enumerate(groups):
            later = {node for other in groups[number + 1 :] for node in other} | {_output(self.module)}
            part, inputs, outputs = _extract(self.module, group, later)
            self.parts.append((Region(part, self.options, is_whole=False), inputs, outputs))

    def _join_parts(self, operations: Sequence[Node]) -> None:
        """Make one part of neighbours that thunder compiles, now that it is known which these are."""
        reasons = {
            name: reason for region in self.leaves() if region.compiled is None for name, reason in region.named()
        }
        groups = [list(group) for _, group in itertools.groupby(operations, lambda node: node.name in reasons)]
        if len(groups) == len(self.leaves()):
            return
        self._set_parts(groups)
        for (part, _, _), group in zip(self.parts, groups, strict=True):
            if group[0].name in reasons:
                part.reason = "; ".join(dict.fromkeys(reasons[node.name] for node in group))
                part._program = part.module
            else:
                part.is_joined = True

    def leaves(self) -> list[Region]:
        """Return the parts that are not divided, in the order of the graph."""
        return [leaf for part, _, _ in self.parts for leaf in part.leaves()] if self.parts else [self]

    def named(self) -> list[tuple[str, str]]:
        """Return the operations of the part, by name, with the reason why it runs as it does."""
        return [(node.name, self.reason) for node in _operations(self.module)]

    def _run_parts(self, *args: Any) -> Any:
        placeholders = [node.name for node in self.module.graph.nodes if node.op == "placeholder"]
        values = dict(zip(placeholders, args, strict=True))
        for part, inputs, outputs in self.parts:
            results = part(*(values[name] for name in inputs))
            values.update(zip(outputs, results, strict=True))

        def value_of(node: Node) -> Any:
            return values[node.name] if node.name in values else _attribute(self.module, node)

        return torch.fx.node.map_arg(_output(self.module).args[0], value_of)


def prepare(module: GraphModule) -> GraphModule:
    """Return a graph of TorchDynamo, changed so that thunder understands it.

    Operators that stand for a part of the program become the functions of PyTorch that take such a part.
    """
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.higher_order.tag_activation_checkpoint:
            node.target = checkpoint.checkpoint
        elif node.op == "call_function" and node.target is torch.ops.higher_order.cond:
            node.target = torch.cond
    return module


def _is_refusal(error: Exception) -> bool:
    """Whether thunder did not compile a part; an error of the program itself is raised as it is."""
    return isinstance(error, NotImplementedError) or str(error).startswith(_READS_DATA)


def _recompile(module: GraphModule) -> None:
    """Write the Python of a graph, which TorchDynamo's graphs do when they are first called."""
    for each in module.modules():
        if isinstance(each, GraphModule):
            each.recompile()
            getattr(each, "real_recompile", lambda: None)()


def _operations(module: GraphModule) -> list[Node]:
    return [node for node in module.graph.nodes if node.op.startswith("call_")]


def _output(module: GraphModule) -> Node:
    return next(node for node in reversed(module.graph.nodes) if node.op == "output")


def _attribute(module: GraphModule, node: Node) -> Any:
    value: Any = module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


_SETTINGS = ("_enter_autocast", "_exit_autocast", "_set_grad_enabled", "_saved_tensors_hooks_disable")


def _is_for_eager(node: Node) -> bool:
    """Whether an operation leaves a setting changed at the end of a part; a pair inside of one does not."""
    if _name(node) not in _SETTINGS:
        return False
    names = [_name(each) for each in node.graph.nodes if _name(each) in _SETTINGS]
    return len(names) % 2 == 1 or names[0] == "_exit_autocast"


def _name(node: Node) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _extract(module: GraphModule, nodes: Sequence[Node], later: set[Node]) -> tuple[GraphModule, list[str], list[str]]:
    """Return some operations as a graph of their own, and the names of the values that it takes and returns."""
    graph, copies = Graph(), {}
    inside = set(nodes)
    inputs: list[str] = []
    for source in dict.fromkeys(source for node in nodes for source in node.all_input_nodes):
        if source in inside:
            continue
        if source.op == "get_attr":
            copies[source] = graph.node_copy(source)
        else:
            copies[source] = graph.placeholder(source.name)
            inputs.append(source.name)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    given = [node for node in nodes if any(user in later for user in node.users)]
    graph.output(tuple(copies[node] for node in given))
    return GraphModule(module, graph), inputs, [node.name for node in given]


def _describe(node: Node) -> str:
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _line(node: Node) -> str:
    """Return the innermost line of the program that an operation comes from."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    places = [i for i, line in enumerate(lines) if line.startswith("File ")]
    return "  ".join(lines[places[-1] : places[-1] + 2]) if places else ""
