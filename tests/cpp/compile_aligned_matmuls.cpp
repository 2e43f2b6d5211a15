// Matmuls of matrices with rows of an odd number of elements, padded, compared with PyTorch's.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "check.h"
#include "compile/execution.h"
#include "compile/pass_runner.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/aligned_matmuls.h"
#include "recorded_program.h"
#include "rewritten_program.h"

namespace thunder::compile {
namespace {

using check::count_of;
using check::Tensors;

at::Tensor bfloats(std::vector<std::int64_t> sizes) { return at::randn(sizes).to(at::kBFloat16); }

/// Aligns the matmuls of a function, runs it, and compares; returns the aligned trace.
ir::Trace check_aligned(const Tensors& inputs, const check::TensorFunction& function, std::size_t caller_outputs) {
  const ir::Trace trace = check::recorded(function, inputs);
  ir::Trace aligned = passes::align_matmuls(trace, ir::DeviceType::kCpu, caller_outputs, &find_operator);
  ir::verify(aligned, "test");
  const Tensors results = check::results_of(aligned, inputs);
  const Tensors expected = function(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(results[i].sizes() == expected[i].sizes());
    if (i < caller_outputs) CHECK(results[i].strides() == expected[i].strides());
    CHECK(at::allclose(results[i].to(at::kDouble), expected[i].to(at::kDouble), 2e-2, 0.5));
  }
  return aligned;
}

}  // namespace

TEST(a_result_with_odd_rows_is_the_front_of_longer_ones) {
  const Tensors inputs{bfloats({1024, 1024}), bfloats({1027, 1024})};
  const auto function = [](const Tensors& x) {
    const at::Tensor scores = at::mm(x[0], x[1].t());
    return Tensors{at::_unsafe_view(scores, {4, 256, 1027}).sum(-1)};
  };
  const ir::Trace aligned = check_aligned(inputs, function, 1);
  CHECK(count_of(aligned, "aten::constant_pad_nd") == 1);
  CHECK(count_of(aligned, "thunder::restride") == 0);
}

TEST(a_result_that_the_caller_gets_is_a_copy) {
  const Tensors inputs{bfloats({1024, 1024}), bfloats({1027, 1024}), bfloats({1027})};
  const auto function = [](const Tensors& x) { return Tensors{at::addmm(x[2], x[0], x[1].t())}; };
  const ir::Trace aligned = check_aligned(inputs, function, 1);
  CHECK(count_of(aligned, "aten::constant_pad_nd") == 2);
  CHECK(count_of(aligned, "aten::clone") == 1);
  CHECK(count_of(check_aligned(inputs, function, 0), "aten::clone") == 0);
}

TEST(operations_read_what_the_caller_gets_a_copy_of) {
  const Tensors inputs{bfloats({1024, 1024}), bfloats({1027, 1024})};
  const auto function = [](const Tensors& x) {
    const at::Tensor scores = at::_unsafe_view(at::mm(x[0], x[1].t()), {4, 256, 1027});
    return Tensors{scores, at::exp(scores)};
  };
  const ir::Trace aligned = check_aligned(inputs, function, 2);
  CHECK(count_of(aligned, "aten::clone") == 1);
  const auto exp =
      std::ranges::find(aligned.symbols, "aten::exp",
                        [](const ir::BoundSymbol& symbol) -> const std::string& { return symbol.op->name; });
  const auto read = std::get<ir::ValueId>(exp->arguments[0].content);
  CHECK(aligned.tensor_type(read)->strides == ir::Dims({256 * 1032, 1032, 1}));
}

TEST(a_view_that_only_the_caller_reads_is_copied_with_what_else_reads_the_matrix) {
  const Tensors inputs{bfloats({1024, 1024}), bfloats({1027, 1024})};
  const auto function = [](const Tensors& x) {
    const at::Tensor scores = at::mm(x[0], x[1].t());
    return Tensors{at::_unsafe_view(scores, {4, 256, 1027}), at::sum(scores, {1})};
  };
  const ir::Trace aligned = check_aligned(inputs, function, 2);
  const auto argument_of = [&](const char* name) {
    return std::ranges::find(aligned.symbols, name,
                             [](const ir::BoundSymbol& symbol) -> const std::string& { return symbol.op->name; })
        ->arguments[0];
  };
  CHECK(argument_of("aten::clone") == argument_of("aten::sum"));
}

TEST(results_that_share_memory_lie_as_they_did) {
  const Tensors inputs{bfloats({1024, 1024}), bfloats({1027, 1024})};
  const auto function = [](const Tensors& x) {
    const at::Tensor scores = at::mm(x[0], x[1].t());
    return Tensors{scores, at::_unsafe_view(scores, {4, 256, 1027})};
  };
  CHECK(count_of(check_aligned(inputs, function, 2), "thunder::restride") == 1);
}

TEST(sums_over_an_odd_number_of_products) {
  const Tensors inputs{bfloats({1024, 1027}), bfloats({1027, 1024}), bfloats({1024, 1024})};
  const auto function = [](const Tensors& x) { return Tensors{at::mm(x[0], x[1]), at::mm(x[0].t(), x[2])}; };
  // The first factor is padded once, for both.
  CHECK(count_of(check_aligned(inputs, function, 2), "aten::constant_pad_nd") == 2);
}

TEST(a_view_of_rows_is_padded_where_they_are_computed) {
  const Tensors inputs{bfloats({4, 256, 1027}), bfloats({1027, 1024}), bfloats({1024, 1024})};
  const auto function = [](const Tensors& x) {
    const at::Tensor rows = at::reshape(at::sin(x[0]), {1024, 1027});
    return Tensors{at::mm(rows, x[1]), at::mm(rows.t(), x[2])};
  };
  const ir::Trace aligned = check_aligned(inputs, function, 2);
  const auto sine =
      std::ranges::find(aligned.symbols, "aten::sin",
                        [](const ir::BoundSymbol& symbol) -> const std::string& { return symbol.op->name; });
  const auto pad = std::ranges::find_if(aligned.symbols, [&](const ir::BoundSymbol& symbol) {
    return symbol.op->name == "aten::constant_pad_nd" && symbol.arguments[0] == sine->results[0];
  });
  CHECK(pad != aligned.symbols.end());
}

TEST(both_sides_of_a_result) {
  const Tensors inputs{bfloats({1024, 1027}), bfloats({1024, 1030})};
  static_cast<void>(check_aligned(inputs, [](const Tensors& x) { return Tensors{at::mm(x[0].t(), x[1])}; }, 1));
}

TEST(matmuls_that_stay_as_they_are) {
  const auto is_left = [](const Tensors& inputs) {
    const auto function = [](const Tensors& x) { return Tensors{at::mm(x[0], x[1])}; };
    const ir::Trace trace = check::recorded(function, inputs);
    return ir::print(passes::align_matmuls(trace, ir::DeviceType::kCpu, 1, &find_operator)).find("pad") ==
           std::string::npos;
  };
  CHECK(is_left({bfloats({1024, 1024}), bfloats({1024, 1024})}));
  CHECK(is_left({bfloats({16, 17}), bfloats({17, 16})}));
  CHECK(is_left({at::randn({1024, 1027}), at::randn({1027, 1024})}));
  CHECK(is_left({bfloats({1024, 2054}).slice(1, 0, 2054, 2), bfloats({1027, 1024})}));
}

}  // namespace thunder::compile
