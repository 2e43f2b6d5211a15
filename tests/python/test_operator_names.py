"""Names of operators stand in `csrc/operators/`, and in the tables named here; elsewhere their number may only fall.

Elsewhere, a name is *called*, where code records or builds a call of that operator, or *asked about*, all else:
a comparison, a list. What is asked about should be a fact of the operator (`csrc/operators/facts.h`).
"""

from __future__ import annotations

import re
from pathlib import Path

CSRC = Path(__file__).resolve().parents[2] / "csrc"
NAME = re.compile(r'"(?:aten|prims)::[a-zA-Z_0-9.]+"')
CALLED = re.compile(r"\b(?:call\(\s*\{?|make\(|write\(|find_operator_?\(|findSchemaOrThrow\()\s*" + NAME.pattern)

# Tables whose rows are operators, each with a function or a rule that is about that operator alone.
TABLES = {
    "dispatch/capture/ints_in_tensors.cpp": "arithmetic of Python's ints, as tensors do it",
    "executors/api/primitives.cpp": "how a primitive of thunder's own runs",
    "executors/cpu/activations.cpp": "what oneDNN calls an activation",
    "executors/cublaslt/epilogues.cpp": "operations that cuBLASLt computes within a matmul",
    "executors/cpu/native_operations.cpp": "how the CPU executor runs an operation",
    "fusion/permutations.cpp": "operations that change the order of dimensions",
    "fusion/row_products.cpp": "a matmul of one row",
    "fusion/rowwise.cpp": "how reductions are computed",
    "fusion/norms.cpp": "how norms are computed",
    "fusion/losses.cpp": "how losses are computed",
    "fusion/row_gathers.cpp": "how rows are gathered",
    "fusion/buffer_regions.cpp": "how results are put together of parts",
    "ir/trace_sizes.h": "the check that finds sizes",
    "passes/algebraic_simplification.cpp": "a rewrite each",
    "passes/contiguous_copies.cpp": "what copies into another order",
    "passes/convolution_biases.cpp": "what a convolution with a bias becomes",
    "passes/counted_dropouts.cpp": "what a dropout becomes",
    "passes/depthwise_gradients.cpp": "what the gradient of a convolution becomes",
    "passes/grouped_keys.cpp": "attention, and a cast of its keys",
    "passes/layout_cleanup.cpp": "a rewrite each",
    "passes/merged_linears.cpp": "casts of weights, and views of what linear layers give",
    "passes/log_softmax_statistics.cpp": "what a saved log-softmax becomes",
    "passes/repeated_heads.cpp": "what repeats keys and values",
    "passes/rotations.cpp": "what rotary embeddings are made of",
    "passes/wide_products.cpp": "a matmul and the cast of its result",
    "passes/random_draws.cpp": "what draws the same numbers from a state",
    "passes/written_gelus.cpp": "the formula of a GELU",
    "tracer/size_notes.cpp": "what follows about sizes from a call of an operation",
    "tracer/views.cpp": "how a value is written through a view",
    "tracer/result_rules.cpp": "sizes of results",
    "tracer/result_rules_elements.cpp": "sizes of results",
    "tracer/result_rules_fourier.cpp": "strides of results",
    "tracer/result_rules_kernels.cpp": "dtypes and strides of results",
    "tracer/result_rules_layers.cpp": "sizes of results",
    "tracer/data_access.cpp": "calls for the positions that a mask shows",
    "tracer/data_rewrites.cpp": "operators whose own code reads data",
    "tracer/data_sizes.cpp": "sizes of results that follow from data",
    "transforms/rules_indexing.cpp": "a rule of a derivative each",
    "transforms/rules_loss.cpp": "a rule of a derivative each",
    "transforms/rules_network.cpp": "a rule of a derivative each",
    "transforms/rules_norm.cpp": "a rule of a derivative each",
    "transforms/rules_reduction.cpp": "a rule of a derivative each",
    "transforms/rules_statistics.cpp": "a rule of a derivative each",
}
MOST_ASKED_ABOUT = 11
MOST_ELSEWHERE = 60


def count_elsewhere(pattern: re.Pattern[str]) -> dict[str, int]:
    counts = {}
    for path in sorted([*CSRC.rglob("*.cpp"), *CSRC.rglob("*.h")]):
        name = path.relative_to(CSRC).as_posix()
        found = len(pattern.findall(path.read_text()))
        if found and not name.startswith("operators/") and name not in TABLES:
            counts[name] = found
    return counts


def test_names_of_operators_do_not_spread() -> None:
    counts = count_elsewhere(NAME)
    total = sum(counts.values())
    assert total <= MOST_ELSEWHERE, f"{total} names of operators outside of csrc/operators: {counts}"


def test_passes_and_tracer_ask_for_facts_not_names() -> None:
    called = count_elsewhere(CALLED)
    counts = {name: count - called.get(name, 0) for name, count in count_elsewhere(NAME).items()}
    counts = {name: count for name, count in counts.items() if count}
    total = sum(counts.values())
    assert total <= MOST_ASKED_ABOUT, f"{total} names of operators that are asked about: {counts}"


def test_tables_exist() -> None:
    assert all(NAME.search((CSRC / name).read_text()) for name in TABLES)
