"""Memory of large CPU tensors that compiled programs make (csrc/runtime/memory_pool.h)."""

import copy
import io
import multiprocessing

import torch

import thunder

MEBIBYTE = 1 << 20


def chain(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin() * x.cos()


def pool_bytes(compiled: object) -> dict[str, int]:
    return thunder.compile_stats(compiled)["pool_bytes"]


def test_results_of_earlier_calls_keep_their_memory() -> None:
    compiled = thunder.jit(chain)
    inputs = [torch.full((MEBIBYTE,), float(i)) for i in range(6)]
    results = [compiled(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, chain(x))


def test_memory_of_a_result_that_died_is_taken_again() -> None:
    compiled = thunder.jit(chain)
    x = torch.ones(MEBIBYTE)
    compiled(x)
    before = pool_bytes(compiled)["peak"]
    addresses = {compiled(x).data_ptr() for _ in range(8)}
    assert len(addresses) < 8
    assert pool_bytes(compiled)["peak"] == before


def test_training_steps_hold_no_more_than_the_first_ones_needed() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512))
    compiled = thunder.jit(model)
    x = torch.randn(1024, 512)

    def step() -> None:
        compiled(x).square().mean().backward()
        model.zero_grad()

    for _ in range(3):
        step()
    peak = pool_bytes(compiled)["peak"]
    for _ in range(5):
        step()
    stats = pool_bytes(compiled)
    assert stats["peak"] == peak
    assert stats["live"] + stats["cached"] <= peak


def test_results_are_saved_copied_and_written() -> None:
    result = thunder.jit(chain)(torch.ones(MEBIBYTE))
    expected = chain(torch.ones(MEBIBYTE))
    file = io.BytesIO()
    torch.save(result, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file), expected)
    torch.testing.assert_close(copy.deepcopy(result), expected)
    torch.testing.assert_close(torch.from_numpy(result.numpy()), expected)
    result.share_memory_()
    torch.testing.assert_close(result, expected)
    resized = thunder.jit(chain)(torch.ones(MEBIBYTE)).resize_(2 * MEBIBYTE)
    torch.testing.assert_close(resized[:MEBIBYTE], expected)


def run_in_worker(queue: "multiprocessing.Queue[bool]") -> None:
    x = torch.linspace(0, 1, MEBIBYTE)
    queue.put(torch.allclose(thunder.jit(chain)(x), chain(x)))


def test_forked_workers_have_a_pool_of_their_own() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    compiled = thunder.jit(chain)
    held = compiled(torch.ones(MEBIBYTE))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=run_in_worker, args=(queue,))
    worker.start()
    assert queue.get(timeout=60)
    worker.join(timeout=60)
    torch.set_num_threads(threads)
    torch.testing.assert_close(held, chain(torch.ones(MEBIBYTE)))
