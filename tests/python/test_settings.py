"""Settings of PyTorch and Python that programs read are followed, and those that they leave changed are eager's."""

from __future__ import annotations

import decimal
import gc
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import thunder

C = torch._C


def set_root_handlers(count: int) -> None:
    logging.getLogger("thunder").propagate = False
    logging.getLogger("thunder").handlers[:] = [logging.NullHandler()] * count


NAMES = {
    "torch": torch,
    "C": C,
    "decimal": decimal,
    "gc": gc,
    "logging": logging,
    "np": np,
    "os": os,
    "set_root_handlers": set_root_handlers,
    "signal": signal,
    "socket": socket,
    "sys": sys,
    "threading": threading,
    "warnings": warnings,
    "EVENT": threading.Event(),
    "ONE": decimal.Decimal(1),
}
# How it is read, set to something else, and put back.
SETTINGS = [
    ("torch.get_num_threads()", "torch.set_num_threads({})", 1, 2),
    ("torch.backends.mkldnn.enabled", "C._set_mkldnn_enabled({})", True, False),
    ("torch.backends.cudnn.benchmark", "C._set_cudnn_benchmark({})", False, True),
    ("torch.backends.cudnn.allow_tf32", "C._set_cudnn_allow_tf32({})", True, False),
    ("torch.backends.cuda.matmul.allow_tf32", "C._set_cublas_allow_tf32({})", False, True),
    ("torch.backends.fp32_precision", "C._set_fp32_precision_setter('generic', 'all', {})", "none", "ieee"),
    (
        "torch.backends.mkldnn.matmul.fp32_precision",
        "C._set_fp32_precision_setter('mkldnn', 'matmul', {})",
        "none",
        "bf16",
    ),
    (
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        "C._set_cublas_allow_fp16_reduced_precision_reduction({})",
        True,
        False,
    ),
    ("torch.backends.cuda.flash_sdp_enabled()", "torch.backends.cuda.enable_flash_sdp({})", True, False),
    ("C._get_overrideable_sdp_enabled()", "C._set_sdp_use_overrideable({})", True, False),
    ("C._get_sdp_priority_order()", "C._set_sdp_priority_order({})", [1, 2, 0, 3, 4], [0, 1, 2, 3, 4]),
    ("torch.get_float32_matmul_precision()", "torch.set_float32_matmul_precision({})", "highest", "high"),
    ("C._get_nnpack_enabled()", "C._set_nnpack_enabled({})", True, False),
    ("torch.is_warn_always_enabled()", "torch.set_warn_always({})", False, True),
    (
        "torch.is_deterministic_algorithms_warn_only_enabled()",
        "torch.use_deterministic_algorithms(False, warn_only={})",
        False,
        True,
    ),
    ("C._get_mkldnn_deterministic()", "C._set_mkldnn_deterministic({})", False, True),
    ("torch.get_autocast_dtype('cpu')", "torch.set_autocast_dtype('cpu', torch.{})", "bfloat16", "float16"),
    ("C._is_multithreading_enabled()", "C._set_multithreading_enabled({})", True, False),
    ("C._is_view_replay_enabled()", "C._set_view_replay_enabled({})", False, True),
    ("C._is_fwd_grad_enabled()", "C._set_fwd_grad_enabled({})", True, False),
    ("C._get_autograd_fallback_mode()", "C._set_autograd_fallback_mode({})", "warn", "nothing"),
    ("C._get_thread_name()", "C._set_thread_name({})", "first", "second"),
    ("torch.is_anomaly_enabled()", "torch.autograd.set_detect_anomaly({})", False, True),
    ("C._check_sparse_tensor_invariants()", "C._set_check_sparse_tensor_invariants({})", False, True),
    ("torch.get_default_dtype()", "torch.set_default_dtype(torch.{})", "float32", "float64"),
    ("torch.are_deterministic_algorithms_enabled()", "torch.use_deterministic_algorithms({})", False, True),
    ("gc.isenabled()", "(gc.enable if {} else gc.disable)()", True, False),
    ("sys.getrecursionlimit()", "sys.setrecursionlimit({})", sys.getrecursionlimit(), 3000),
    ("sys.getswitchinterval()", "sys.setswitchinterval({})", 0.005, 0.015625),
    ("socket.getdefaulttimeout()", "socket.setdefaulttimeout({})", None, 1.0),
    ("logging.getLogger('thunder.a').level", "logging.getLogger('thunder.a').setLevel({})", 10, 40),
    ("logging.getLogger('thunder.a').isEnabledFor(20)", "logging.getLogger('thunder.a').setLevel({})", 10, 40),
    ("logging.getLogger('thunder.a').hasHandlers()", "set_root_handlers({})", 0, 1),
    ("logging.getLevelName(level=10)", "logging.addLevelName(10, {})", "DEBUG", "D"),
    ("threading.current_thread().name", "setattr(threading.current_thread(), 'name', {})", "MainThread", "second"),
    ("EVENT.is_set()", "(EVENT.set if {} else EVENT.clear)()", False, True),
    ("np.geterr()['divide']", "np.seterr(divide={})", "warn", "raise"),
    ("np.getbufsize()", "np.setbufsize({})", 8192, 16),
    ("np.get_printoptions()['precision']", "np.set_printoptions(precision={})", 8, 3),
    ("decimal.getcontext().prec", "setattr(decimal.getcontext(), 'prec', {})", 28, 5),
    ("decimal.Decimal(1) / 3", "setattr(decimal.getcontext(), 'prec', {})", 28, 5),
    ("ONE / 3", "decimal.setcontext(decimal.Context(prec={}))", 28, 5),
    ("warnings.filters[0][0]", "warnings.simplefilter({})", "ignore", "always"),
    ("torch.is_autocast_enabled('xla')", "torch.set_autocast_enabled('xla', {})", False, True),
    ("torch.get_autocast_dtype('xla')", "torch.set_autocast_dtype('xla', torch.{})", "bfloat16", "float16"),
    ("os.environ.get('THUNDER_A')", "os.environ.__setitem__('THUNDER_A', {})", "first", "second"),
    ("signal.getsignal(signal.SIGUSR1)", "signal.signal(signal.SIGUSR1, {})", 0, 1),
]


def run(statement: str, value: Any) -> None:
    exec(statement.format(value if "torch.{}" in statement else repr(value)), NAMES)


def define(body: str) -> Any:
    scope = dict(NAMES)
    exec(f"def function(x):\n{body}", scope)
    return scope["function"]


@pytest.fixture
def setting(request):
    _, statement, value, _ = request.param
    run(statement, value)
    yield request.param
    run(statement, value)


each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda row: row[0], indirect=True)


@each_setting
@pytest.mark.filterwarnings("ignore")
def test_settings_that_are_read_are_followed(setting):
    read, statement, value, other = setting
    function = define(f"    return {read}, x + 1")
    compiled = thunder.jit(function)
    for each in (value, value, other, value):
        run(statement, each)
        assert repr(compiled(torch.ones(2))[0]) == repr(function(torch.ones(2))[0])


@each_setting
@pytest.mark.filterwarnings("ignore")
def test_settings_that_are_left_changed_are_left_so_each_time(setting):
    read, statement, value, other = setting
    expression = statement.format(other if "torch.{}" in statement else repr(other))
    compiled = thunder.jit(define(f"    {expression}\n    return x + 1"))
    run(statement, other)
    expected = repr(eval(read, NAMES))
    for _ in range(3):
        run(statement, value)
        compiled(torch.ones(2))
        assert repr(eval(read, NAMES)) == expected


def test_contexts_of_decimal_and_warnings_inside_stay_compiled():
    def function(x):
        with decimal.localcontext() as context, warnings.catch_warnings():
            context.prec = 5
            warnings.simplefilter("ignore")
            warnings.warn("nobody sees it", stacklevel=1)
            return x * float(NAMES["ONE"] / 4)

    compiled = thunder.jit(function, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 0.25))
    assert thunder.cache_misses(compiled) == 1


def test_settings_that_are_put_back_stay_compiled():
    def function(q):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            inside = torch.backends.cuda.flash_sdp_enabled()
            return torch.nn.functional.scaled_dot_product_attention(q, q, q), inside

    compiled = thunder.jit(function, fullgraph=True)
    q = torch.randn(1, 1, 4, 8)
    for _ in range(3):
        assert compiled(q)[1] is False
        assert torch.backends.cuda.flash_sdp_enabled()
    assert thunder.cache_misses(compiled) == 1


# Setters that a trace follows: what they set is guarded at each call, or put back after the trace.
FOLLOWED = {
    "_set_default_dtype",
    "_set_default_tensor_type",
    "_set_deterministic_algorithms",
    "_set_grad_enabled",
    "_set_tensor_metadata",
    "_set_torch_function_state",
    "set_autocast_cache_enabled",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
}


def setters() -> list[str]:
    names = [name for name in dir(C) if name.startswith(("_set_", "set_"))]
    return [name for name in names if type(getattr(C, name)).__name__ == "builtin_function_or_method"]


def test_setters_that_are_not_known_are_refused():
    followed = set()
    for name in setters():
        program = define(f"    torch._C.{name}()\n    return x + 1")
        try:
            thunder.jit(program, fullgraph=True)(torch.ones(2))
        except Exception as error:
            if "cannot be repeated" not in str(error):
                followed.add(name)
    getters = {name for name in dir(C) if name.startswith(("_get_", "get_", "_is_", "_check_"))}
    for name in followed - FOLLOWED:
        stem = name.removeprefix("_").removeprefix("set_").removeprefix("sdp_use_").removesuffix("_setter")
        assert any(stem in getter for getter in getters), name


@pytest.mark.parametrize("text", ["torch.set_flush_denormal(True)", "torch.set_num_interop_threads(2)"])
def test_what_cannot_be_read_is_not_set_inside(text):
    with pytest.raises(NotImplementedError, match="cannot be repeated"):
        thunder.jit(define(f"    {text}\n    return x"), fullgraph=True)(torch.ones(2))


CHANGED_INSIDE = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
}


@pytest.mark.parametrize("name", CHANGED_INSIDE)
@pytest.mark.filterwarnings("ignore")
def test_settings_that_hold_for_a_part_of_a_function_hold_for_that_part(name):
    begin, end = CHANGED_INSIDE[name]

    def function(x):
        begin()
        try:
            inside = torch.zeros(2), torch.ones(2, dtype=torch.int64) / 3, torch.empty(2).isnan()
        finally:
            end()
        return *inside, torch.zeros(2), x + 1

    compiled = thunder.jit(function)
    for _ in range(2):
        got, expected = compiled(torch.ones(2)), function(torch.ones(2))
        assert [tensor.dtype for tensor in got] == [tensor.dtype for tensor in expected]
        assert all(map(torch.equal, got, expected))


def test_errors_of_numpy_that_are_set_around_a_call_are_followed():
    zeros = np.zeros(2)
    for function in (
        lambda x: x + torch.from_numpy(np.log(np.array([1.0, 0.0]))),
        lambda x: x + torch.from_numpy(1 / zeros),
        lambda x: x + torch.from_numpy(zeros / zeros),
    ):
        compiled = thunder.jit(function)
        with np.errstate(all="ignore"):
            expected = compiled(torch.ones(2))
        with np.errstate(all="raise"), pytest.raises(FloatingPointError):
            compiled(torch.ones(2))
        with np.errstate(all="ignore"):
            assert torch.equal(compiled(torch.ones(2)).nan_to_num(7.0), expected.nan_to_num(7.0))
