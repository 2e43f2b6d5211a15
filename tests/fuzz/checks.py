"""The checks that a program is put through: each compares what thunder does with what it must be equal to."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

import thunder
from tests.fuzz import kernels_on_host, oracle
from tests.fuzz.sizes import at_other_sizes, choose_rows, with_rows_apart
from thunder._check import load_extension
from thunder._minify.shrink import Case, cloned

Function = Callable[..., Any]

_MOST_DIRECTIONS = 48

_extension = load_extension()
PASSES = (*_extension.pass_names(), "drop_unused_saved_values", "rematerialization")


class Failure(Exception):
    """A check found something wrong.

    Attributes:
        kind: "numbers" (and no error), "metadata", "memory" (results share other memory than in eager), "text" (a
            printed trace), "error" (an exception of thunder's), "internal" (an InternalError), "refused" (a
            NotImplementedError), "crash", "timeout".
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Skipped(Exception):
    """There is nothing to compare with: eager, or torch.func, does not run the program either."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a program is compiled and checked; chosen from its seed.

    Attributes:
        check: name of the check, a key of CHECKS.
        options: of thunder.jit.
        seed: of random numbers.
    """

    check: str
    options: dict[str, Any]
    seed: int

    def run(self, case: Case) -> None:
        """Raise Failure or Skipped unless all is well."""
        CHECKS[self.check](case, self)


@contextlib.contextmanager
def _unless_torch_refuses() -> Iterator[None]:
    """Around what a check itself asks of PyTorch, which knows other dtypes and layouts in each version."""
    try:
        yield
    except RuntimeError as error:
        raise Skipped(f"the check: {error}") from error


# --- comparing two functions


def _outcome_of_torch(function: Function, case: Case, plan: Plan, number: int = 0) -> oracle.Outcome:
    outcome = oracle.observe(function, cloned(case.arguments), plan.seed + number)
    if outcome.error is not None and outcome.step == "backward":
        raise Skipped(f"eager: {outcome.error}")
    return outcome


def _require_same(
    case: Case, plan: Plan, ours: Function, theirs: Callable[[Function], Function], transformed: bool = True
) -> None:
    """Compare `ours` with `theirs(program)`; what is no transform of the program, over several calls and exactly."""

    def run(widen: bool) -> oracle.Outcome:
        program = oracle.widened(case.program) if widen else case.program
        noise = 0.0 if widen else 1e-6
        arguments = [oracle.widened_argument(a, noise) for a in cloned(case.arguments)]
        return oracle.observe(theirs(program.function()), arguments, plan.seed, noise)

    exact = oracle.Exact(lambda: run(True), lambda: run(False))
    eager = theirs(case.program.function())
    for number in range(1 if transformed else _calls(case.arguments)):
        expected = _outcome_of_torch(eager, case, plan, number)
        got = oracle.observe(ours, cloned(case.arguments), plan.seed + number)
        try:
            _compare(case, got, expected, None if _drew(expected, plan.seed + number) else exact, transformed)
        except Failure as failure:
            _require_defined(failure, case, plan, theirs, expected)
            raise


def _calls(arguments: tuple[Any, ...]) -> int:
    """Return how many calls are compared: on a GPU so many that the last ones replay CUDA graphs."""
    return 7 if any(isinstance(each, torch.Tensor) and each.is_cuda for each in arguments) else 2


def _drew(outcome: oracle.Outcome, seed: int) -> bool:
    """Return whether the program drew random numbers, which are others in fp64."""
    torch.manual_seed(seed)
    return outcome.facts.get("random state") != oracle.random_state()


def _require_defined(
    failure: Failure, case: Case, plan: Plan, theirs: Callable[[Function], Function], expected: oracle.Outcome
) -> None:
    """Skip where eager reads memory that it is writing to: `x *= x[0]`, and derivatives of `x.real.mul_(x)`."""
    if failure.kind != "numbers":
        return
    program = case.program.function()

    def of_copies(*arguments: Any) -> Any:
        copies = [argument.clone() if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        results = program(*copies)
        return (*results, *copies) if plan.check == "call" else results

    pure = oracle.observe(theirs(torch.func.functionalize(of_copies)), cloned(case.arguments), plan.seed).tensors
    count = len(case.program.results)
    names = {f"input {i}": f"result {count + i}" for i in range(len(case.arguments))} if plan.check == "call" else {}
    for name, value in expected.tensors.items():
        again = pure.get(names.get(name, name))
        if again is None or name.startswith("gradient"):
            continue
        try:
            with _unless_torch_refuses():
                oracle.require_close(name, again, value, None)
        except oracle.Difference as difference:
            raise Skipped("eager reads what it writes to") from difference


def _compare(
    case: Case, got: oracle.Outcome, expected: oracle.Outcome, exact: oracle.Exact | None, numbers_only: bool
) -> None:
    if expected.error is not None:
        # Programs run in eager; what it refuses with gradients or in a transform, a trace may well be able to do.
        raise Skipped(f"eager: {expected.error}")
    if got.error is not None:
        raise raised(got.error)
    try:
        with _unless_torch_refuses():
            oracle.require_same(got, expected, exact, numbers_only, oracle.rounding_of(case.program, case.arguments))
    except oracle.Difference as difference:
        raise Failure(difference.kind, str(difference)) from None


def raised(error: Exception) -> Failure:
    """Return the failure that an exception of thunder's is."""
    kind = "error"
    if isinstance(error, thunder.InternalError):
        kind = "internal"
    elif isinstance(error, NotImplementedError):
        kind = "refused"
    return Failure(kind, f"{type(error).__name__}: {error}")


# --- programs as functions of what can be differentiated


def _differentiable(arguments: tuple[Any, ...]) -> list[int]:
    return [i for i, a in enumerate(arguments) if isinstance(a, torch.Tensor) and a.is_floating_point()]


def _of_differentiable(program: Function, arguments: tuple[Any, ...]) -> tuple[Function, tuple[torch.Tensor, ...]]:
    """Return `program` as a function of its real floating-point inputs to its real floating-point results."""
    positions = _differentiable(arguments)
    if not positions:
        raise Skipped("no input can be differentiated")

    def function(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        everything = list(arguments)
        for position, value in zip(positions, inputs, strict=True):
            everything[position] = value
        results = program(*everything)
        return tuple(result for result in results if result.is_floating_point())

    return function, tuple(arguments[position] for position in positions)


def _weighted_sum(results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for result in results:
        total = total + (result.double() * oracle.weights_like(result).double()).sum()
    return total


def _transformed(transform: Callable[[Any, Function, tuple[torch.Tensor, ...]], Any]) -> Callable[[Case, Plan], None]:
    """Return the check that a transform of thunder's gives what torch.func's gives.

    `transform(module, function, inputs)` applies it, with the transforms of `module`.
    """

    def check(case: Case, plan: Plan) -> None:
        def with_module(module: Any, program: Function) -> Function:
            def apply(*arguments: Any) -> Any:
                function, inputs = _of_differentiable(program, arguments)
                return _flat(transform(module, function, inputs))

            return apply

        ours = with_module(thunder, case.program.function())
        if plan.options:
            ours = thunder.jit(with_module(torch.func, case.program.function()), **plan.options)
        _require_same(case, plan, ours, lambda program: with_module(torch.func, program))

    return check


def _flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [leaf for item in value for leaf in _flat(item)]


def _grad(module: Any, function: Function, inputs: tuple[torch.Tensor, ...]) -> Any:
    return module.grad(lambda *args: _weighted_sum(function(*args)), tuple(range(len(inputs))))(*inputs)


def _vjp(module: Any, function: Function, inputs: tuple[torch.Tensor, ...]) -> Any:
    results, pull_back = module.vjp(function, *inputs)
    return results, pull_back(tuple(map(oracle.weights_like, results)))


def _jvp(module: Any, function: Function, inputs: tuple[torch.Tensor, ...]) -> Any:
    return module.jvp(function, inputs, tuple(map(oracle.weights_like, inputs)))


def _jvp_of_grad(module: Any, function: Function, inputs: tuple[torch.Tensor, ...]) -> Any:
    def gradient(*args: torch.Tensor) -> Any:
        return _grad(module, function, args)

    return module.jvp(gradient, inputs, tuple(map(oracle.weights_like, inputs)))


def _grad_of_grad(module: Any, function: Function, inputs: tuple[torch.Tensor, ...]) -> Any:
    return _grad(module, lambda *args: _grad(module, function, args), inputs)


def _hessian(module: Any, function: Function, inputs: tuple[torch.Tensor, ...]) -> Any:
    if sum(each.numel() for each in inputs) > _MOST_DIRECTIONS:
        raise Skipped("too many second derivatives")
    return module.hessian(lambda *args: _weighted_sum(function(*args)), tuple(range(len(inputs))))(*inputs)


# --- the checks


def check_call(case: Case, plan: Plan) -> None:
    """Compiled = eager, forward and backward, at the first call and at a later one."""
    compiled = thunder.jit(case.program.function(), **plan.options)
    _require_same(case, plan, compiled, lambda program: program, transformed=False)


def check_sizes(case: Case, plan: Plan) -> None:
    """Compiled = eager while sizes change from call to call."""
    source = random.Random(plan.seed)
    compiled = thunder.jit(case.program.function(), dynamic=source.choice((None, None, True)), **plan.options)
    arguments = case.arguments
    rows = choose_rows(source)
    for _ in range(6):
        with _unless_torch_refuses():
            arguments = with_rows_apart(arguments, rows)
        at_these = Case(case.program, arguments)
        with contextlib.suppress(Skipped):
            _require_same(at_these, plan, compiled, lambda program: program)
        with _unless_torch_refuses():
            arguments = at_other_sizes(case.arguments, source)


def check_traces(case: Case, plan: Plan) -> None:
    """Each stage's printed text, executed, gives what the first stage's gives; traced again, the text is the same."""
    texts = []
    for _ in range(2):
        compiled = thunder.jit(case.program.function(), **plan.options)
        outcome = oracle.observe(compiled, cloned(case.arguments), plan.seed)
        if outcome.error is not None:
            raise Skipped(f"thunder: {outcome.error}")
        _require_compiled(compiled)
        texts.append([*map(str, thunder.last_traces(compiled)), *map(str, thunder.last_backward_traces(compiled))])
    if texts[0] != texts[1]:
        raise Failure("text", "traced twice, the printed traces differ")
    stages = thunder.last_traces(compiled)
    run = _runner_of(compiled, case, plan)
    expected = run(stages[0])
    for stage in stages[1:]:
        _require_same_outputs(stage, run(stage), expected)


def check_orders(case: Case, plan: Plan) -> None:
    """Passes in a random order, some of them twice, give a trace that computes the same after each."""
    compiled = thunder.jit(case.program.function(), passes=[], rematerialize=False)
    outcome = oracle.observe(compiled, cloned(case.arguments), plan.seed)
    if outcome.error is not None:
        raise Skipped(f"thunder: {outcome.error}")
    _require_compiled(compiled)
    trace = thunder.last_traces(compiled)[-1]
    run = _runner_of(compiled, case, plan)
    expected = run(trace)
    source = random.Random(plan.seed)
    for name in source.choices(_extension.pass_names(), k=source.randrange(1, 9)):
        try:
            trace = thunder.Trace(_extension.run_pass(trace._native, name))
        except Exception as error:
            raise Failure("internal", f"{name}: {type(error).__name__}: {error}") from error
        _require_same_outputs(trace, run(trace), expected)


def _require_compiled(compiled: Any) -> None:
    if not thunder.last_traces(compiled):
        raise Skipped("thunder: the call ran in eager")


def _runner_of(compiled: Any, case: Case, plan: Plan) -> Callable[[Any], tuple[list[Any], list[Any]]]:
    """Return what executes the printed text of a trace on fresh inputs, and gives its results and these inputs."""
    if any("prims.check_" in str(stage) for stage in thunder.last_traces(compiled)):
        raise Skipped("data was read: the trace is in segments, whose inputs are not those of the prologue")
    prologue = thunder.last_prologue_traces(compiled)[-1].python_callable()

    def run(trace: Any) -> tuple[list[Any], list[Any]]:
        try:
            inputs = [value for value in prologue(cloned(case.arguments), {}) if isinstance(value, torch.Tensor)]
            torch.manual_seed(plan.seed)
            return list(trace.python_callable()(*inputs)), inputs
        except Exception as error:
            raise Failure("text", f"{trace.name} does not run: {type(error).__name__}: {error}") from error

    return run


def _require_same_outputs(trace: Any, got: tuple[list[Any], list[Any]], expected: tuple[list[Any], list[Any]]) -> None:
    """Compare results and written inputs. A forward trace returns what it saves behind the results."""
    for what, values, others in zip(("result", "input"), expected, got, strict=True):
        for i, (value, other) in enumerate(zip(values, others, strict=False)):
            if not isinstance(value, torch.Tensor):
                continue
            try:
                oracle.require_close(f"{what} {i}", other.detach(), value.detach(), None)
            except oracle.Difference as difference:
                raise Failure("text", f"{'; '.join(trace._native.history)}: {difference}") from None


def check_vmap(case: Case, plan: Plan) -> None:
    """Vmap = a loop over the examples."""
    if "as_strided" in case.program.text():
        raise Skipped("positions in memory are not those of an example")
    source = random.Random(plan.seed)
    arguments, dims = [], []
    for argument in case.arguments:
        # Two examples that differ, along a dimension of the batch's own.
        dim = source.choice((0, 0, -1, None)) if isinstance(argument, torch.Tensor) else None
        if dim is not None:
            with _unless_torch_refuses():
                argument = torch.stack([argument.detach(), argument.detach().flip(list(range(argument.dim())))], dim)
        arguments.append(argument)
        dims.append(dim)
    if all(dim is None for dim in dims):
        raise Skipped("no batched argument")
    batched = Case(case.program, tuple(arguments))

    def loop(program: Function) -> Function:
        def apply(*arguments: Any) -> Any:
            examples = []
            for i in range(2):
                # A write to what all examples share would be seen by the next one.
                picked = [a if d is None else a.select(d, i) for a, d in zip(cloned(arguments), dims, strict=True)]
                examples.append(program(*picked))
            return [torch.stack(results) for results in zip(*examples, strict=True)]

        return apply

    def mapped(module: Any, program: Function) -> Function:
        return lambda *arguments: list(module.vmap(program, tuple(dims))(*arguments))

    program = case.program.function()
    expected = oracle.observe(loop(program), cloned(batched.arguments), plan.seed)
    # Writes to the inputs are not compared: the loop's writes go to copies.
    expected.tensors = {name: value for name, value in expected.tensors.items() if name.startswith("result")}
    theirs = oracle.observe(mapped(torch.func, program), cloned(batched.arguments), plan.seed)
    try:
        _compare(case, theirs, expected, None, numbers_only=True)
    except Failure as failure:
        raise Skipped("torch.func's batching rules do not give what the loop does") from failure
    got = oracle.observe(mapped(thunder, program), cloned(batched.arguments), plan.seed)
    try:
        _compare(case, got, expected, None, numbers_only=True)
    except Failure as failure:
        _require_defined(failure, batched, plan, loop, expected)
        raise


def check_directions(case: Case, plan: Plan) -> None:
    """In fp64, along one direction: vjp = jvp = finite differences, where torch.func agrees with the latter."""
    with _unless_torch_refuses():
        arguments = tuple(oracle.widened_argument(a) for a in cloned(case.arguments))
    program = oracle.widened(case.program).function()

    def derivatives(module: Any) -> tuple[float, float]:
        function, inputs = _of_differentiable(program, cloned(arguments))
        directions = tuple(map(oracle.weights_like, inputs))
        _, tangents = module.jvp(function, inputs, directions)
        forward = _weighted_sum(tangents)
        function, inputs = _of_differentiable(program, cloned(arguments))
        results, pull_back = module.vjp(function, *inputs)
        gradients = pull_back(tuple(map(oracle.weights_like, results)))
        reverse = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
        return float(forward), float(reverse)

    try:
        theirs = derivatives(torch.func)
        difference = _central_difference(program, arguments)
    except Exception as error:
        raise Skipped(f"torch.func: {error}") from error
    if not all(_is_near(value, difference) for value in theirs):
        raise Skipped("not smooth here")
    try:
        ours = derivatives(thunder)
    except Exception as error:
        raise raised(error) from error
    if not all(_is_near(value, difference) for value in ours):
        raise Failure("numbers", f"expected the derivative {difference}, got {ours[0]} by jvp and {ours[1]} by vjp")


def _central_difference(program: Function, arguments: tuple[Any, ...]) -> float:
    step = 1e-5
    values = []
    for sign in (1, -1):
        function, inputs = _of_differentiable(program, cloned(arguments))
        moved = tuple(value.detach() + sign * step * oracle.weights_like(value) for value in inputs)
        values.append(float(_weighted_sum(function(*moved))))
    return (values[0] - values[1]) / (2 * step)


def _is_near(value: float, expected: float) -> bool:
    return abs(value - expected) <= 1e-4 * (1 + abs(expected))


CHECKS: dict[str, Callable[[Case, Plan], None]] = {
    "call": check_call,
    "sizes": check_sizes,
    "traces": check_traces,
    "orders": check_orders,
    "vmap": check_vmap,
    "directions": check_directions,
    "grad": _transformed(_grad),
    "vjp": _transformed(_vjp),
    "jvp": _transformed(_jvp),
    "jvp of grad": _transformed(_jvp_of_grad),
    "grad of grad": _transformed(_grad_of_grad),
    "hessian": _transformed(_hessian),
}


_OF_TRANSFORMS = ("vmap", "vmap", "directions", "grad", "vjp", "jvp", "jvp of grad", "grad of grad")


def plans_for(seed: int, requires_grad: bool, is_random: bool, device: str = "cpu") -> list[Plan]:
    """Return what is done to the program of a seed."""
    source = random.Random(seed * 7919 + 1)
    options: dict[str, Any] = {}
    if source.random() < 0.5:
        options["passes"] = source.sample(PASSES, source.randrange(len(PASSES) + 1))
    if source.random() < 0.3:
        options["rematerialize"] = False
    if device == kernels_on_host.DEVICE:
        options["executors"] = [kernels_on_host.EXECUTOR]
    checks = ["call"]
    if source.random() < 0.4:
        checks.append(source.choice(("traces", "orders")))
    if not is_random and not requires_grad:
        checks.append(source.choice(_OF_TRANSFORMS))
    if source.random() < 0.3:
        checks.append("sizes")
    if not is_random and not requires_grad and source.random() < 0.2:
        checks.append("hessian")
    if device == "cpu":
        return [Plan(check, options, seed) for check in checks]
    # Otherwise the first calls would not wait for their kernels. Without options, transforms are thunder's.
    compiled_first = options | {"compile": "eager"}
    if device == "cuda" and source.random() < 0.5:
        compiled_first["cuda_graphs"] = True
    of_transforms = (*_OF_TRANSFORMS, "hessian")
    return [Plan(check, compiled_first if options or check not in of_transforms else {}, seed) for check in checks]
