"""Sources of kernels, as `thunder.last_kernels` shows them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder.kernels import Kernel, KernelLaunch, KernelOperation, Kernels


def make_kernel(count: int = 1, registers: int | None = 40) -> Kernel:
    return Kernel(
        trace="forward",
        executor="cuda",
        operations=(
            KernelOperation("aten.mul.Tensor", __file__, 3),
            KernelOperation("aten.silu.default", __file__, 3),
            KernelOperation("aten.add.Tensor", None, 0),
        ),
        launches=(KernelLaunch("fused_mul_silu_add", 12, 256, registers),),
        text='extern "C" __global__ void fused_mul_silu_add(const Parameters p) { a < b; }\n',
        beginning="typedef int Index;\n",
        is_compiled=registers is not None,
        count=count,
    )


def test_a_kernel_prints_with_its_operations_lines_and_launches() -> None:
    line = "from __future__ import annotations"
    assert str(make_kernel(count=16)) == (
        "// forward: fused_mul_silu_add, 16 times\n"
        "// fused_mul_silu_add: 12 x 256 threads, 40 registers\n"
        f"// {__file__}:3: {line}\n"
        "//   aten.mul.Tensor\n"
        "//   aten.silu.default\n"
        "//   aten.add.Tensor\n"
        'extern "C" __global__ void fused_mul_silu_add(const Parameters p) { a < b; }\n'
    )


def test_a_kernel_that_is_not_compiled_says_so() -> None:
    text = str(make_kernel(registers=None))
    assert "not compiled yet" in text
    assert "registers" not in text


def test_source_is_all_that_is_compiled() -> None:
    assert make_kernel().source.startswith("typedef int Index;\nextern")


def test_kernels_show_as_a_page_with_everything_escaped() -> None:
    page = Kernels([make_kernel(), make_kernel()])._repr_html_()
    assert page.count("<details>") == 2
    assert "a &lt; b" in page


def test_a_program_on_the_cpu_has_no_kernels_with_a_source() -> None:
    f = thunder.jit(lambda x: torch.sin(x) * 2 + 1)
    f(torch.randn(64, 64))
    kernels = thunder.last_kernels(f)
    assert kernels == []
    assert "thunder.fusions" in str(kernels)
    assert "thunder.fusions" in kernels._repr_html_()


def test_nothing_was_compiled_before_the_first_call() -> None:
    assert thunder.last_kernels(thunder.jit(torch.sin)) == []


@pytest.mark.gpu
def test_kernels_of_a_gpu_have_sources_lines_and_registers() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = F.silu(F.linear(x, w)) * 2 + x
        return x

    f = thunder.jit(program, compile="eager")
    with torch.no_grad():
        f(torch.randn(1, 256, device="cuda"), torch.randn(256, 256, device="cuda"))
    (kernel,) = thunder.last_kernels(f)
    assert kernel.count == 3
    assert kernel.is_compiled
    assert kernel.operations[0].name == "aten.linear.default"
    assert all(operation.file == __file__ for operation in kernel.operations)
    assert kernel.launches[0].registers
    assert kernel.launches[0].thread_blocks > 0
    assert "F.silu(F.linear(x, w))" in str(kernel)
    assert "__global__" in kernel.text
    assert "struct Bfloat16" in kernel.beginning


@pytest.mark.gpu
def test_kernels_of_backwards_and_batches_are_listed() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).cuda()
    f = thunder.jit(model, compile="eager")
    f(torch.randn(32, 64, device="cuda")).sum().backward()
    assert {kernel.trace for kernel in thunder.last_kernels(f)} >= {"backward"}
