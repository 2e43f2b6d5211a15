// Matmuls with epilogues, by cuBLASLt's functions on the processor, compared with PyTorch's operations.
#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"
#include "cublaslt_on_host.h"
#include "executors/cublaslt/matmuls.h"

namespace thunder::executors::cublaslt {
namespace {

namespace host = check::cublaslt;

Matmuls& matmuls() {
  static const host::Host kHost;
  static Matmuls matmuls(kHost);
  return matmuls;
}

at::Tensor bfloats(std::vector<std::int64_t> sizes, at::ScalarType dtype = at::kBFloat16) {
  return at::randn(sizes).to(dtype);
}

bool is_close(const at::Tensor& got, const at::Tensor& expected) {
  return at::allclose(got.to(at::kDouble), expected.to(at::kDouble), 1e-2, 1e-2);
}

/// Operands of 4 × 16 and 16 × 8, in each of the orders of memory.
std::vector<std::pair<at::Tensor, at::Tensor>> operands(at::ScalarType dtype) {
  const at::Tensor left = bfloats({4, 16}, dtype);
  const at::Tensor right = bfloats({16, 8}, dtype);
  const auto by_columns = [&](const at::Tensor& matrix) {
    at::Tensor wide = at::zeros({matrix.size(1), 16}, matrix.options());
    wide.slice(1, 0, matrix.size(0)).copy_(matrix.t());
    return wide.slice(1, 0, matrix.size(0)).t();
  };
  const auto padded = [&](const at::Tensor& matrix) {
    at::Tensor wide = at::zeros({matrix.size(0), matrix.size(1) + 8}, matrix.options());
    wide.slice(1, 0, matrix.size(1)).copy_(matrix);
    return wide.slice(1, 0, matrix.size(1));
  };
  return {{left, right},
          {by_columns(left), right},
          {left, by_columns(right)},
          {by_columns(left), by_columns(right)},
          {padded(left), padded(right)}};
}

}  // namespace

TEST(products_of_operands_in_every_order) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto& [left, right] : operands(dtype)) {
      Tensors tensors{.left = left, .right = right, .result = at::empty({4, 8}, left.options())};
      CHECK(matmuls().run(Epilogue::kNone, tensors));
      CHECK(is_close(tensors.result, at::mm(left.to(at::kDouble), right.to(at::kDouble))));
    }
  }
}

TEST(gelus_and_what_they_are_of) {
  for (const auto& [left, right] : operands(at::kBFloat16)) {
    Tensors tensors{.left = left, .right = right, .result = at::empty({4, 8}, left.options()), .bias = bfloats({8})};
    tensors.auxiliary = at::empty({4, 8}, left.options());
    CHECK(matmuls().run(Epilogue::kGeluAuxiliaryBias, tensors));
    const at::Tensor input = at::addmm(tensors.bias.to(at::kDouble), left.to(at::kDouble), right.to(at::kDouble));
    CHECK(is_close(tensors.auxiliary, input));
    CHECK(is_close(tensors.result, at::gelu(input, "tanh")));
    tensors.auxiliary = at::Tensor();
    tensors.result.zero_();
    CHECK(matmuls().run(Epilogue::kGeluBias, tensors));
    CHECK(is_close(tensors.result, at::gelu(input, "tanh")));
  }
}

TEST(gradients_and_their_sums) {
  for (const auto& [left, right] : operands(at::kBFloat16)) {
    Tensors tensors{.left = left, .right = right, .result = at::empty({4, 8}, left.options())};
    tensors.auxiliary = bfloats({4, 8});
    tensors.bias = at::empty({8}, left.options());
    CHECK(matmuls().run(Epilogue::kGeluGradientBias, tensors));
    const at::Tensor product = at::mm(left.to(at::kDouble), right.to(at::kDouble));
    const at::Tensor expected = at::gelu_backward(product, tensors.auxiliary.to(at::kDouble), "tanh");
    CHECK(is_close(tensors.result, expected));
    CHECK(at::allclose(tensors.bias.to(at::kDouble), expected.sum(0), 2e-2, 5e-2));
  }
}

TEST(what_the_library_cannot_read_is_left) {
  const auto runs = [](const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias = {}) {
    const Tensors tensors{left, right, at::empty({left.size(0), right.size(1)}, left.options()), bias, {}};
    return matmuls().run(bias.defined() ? Epilogue::kBias : Epilogue::kNone, tensors);
  };
  CHECK(runs(bfloats({4, 16}), bfloats({16, 8})));
  CHECK(!runs(bfloats({4, 15}), bfloats({15, 8})));
  CHECK(!runs(bfloats({4, 16}), bfloats({16, 7})));
  CHECK(!runs(bfloats({4 * 16 + 1}).slice(0, 1).view({4, 16}), bfloats({16, 8})));
  CHECK(!runs(bfloats({4, 16}), bfloats({16, 8}), bfloats({9}).slice(0, 1)));
  CHECK(!runs(bfloats({4, 32}).slice(1, 0, 32, 2), bfloats({16, 8})));
  CHECK(!runs(bfloats({16}).expand({4, 16}), bfloats({16, 8})));
  CHECK(!runs(bfloats({0, 16}), bfloats({16, 8})));
  CHECK(runs(bfloats({1, 16}), bfloats({16, 8})));
}

TEST(an_algorithm_is_looked_for_once) {
  const at::Tensor left = bfloats({3, 24});
  const at::Tensor right = bfloats({24, 8});
  const int searches = host::log().searches;
  for (int i = 0; i < 3; ++i)
    CHECK(matmuls().run(Epilogue::kNone, {left, right, at::empty({3, 8}, left.options()), {}, {}}));
  CHECK_EQ(host::log().searches, searches + 1);
}

TEST(problems_without_an_algorithm_are_left) {
  host::log().has_algorithm = false;
  const at::Tensor left = bfloats({5, 24});
  const int runs = host::log().runs;
  for (int i = 0; i < 2; ++i)
    CHECK(!matmuls().run(Epilogue::kNone, {left, bfloats({24, 8}), at::empty({5, 8}, left.options()), {}, {}}));
  host::log().has_algorithm = true;
  CHECK_EQ(host::log().runs, runs);
}

TEST(settings_of_the_user) {
  const at::Tensor left = bfloats({6, 24});
  const auto run = [&](const at::Tensor& operand) {
    return matmuls().run(
        Epilogue::kNone,
        {operand, bfloats({24, 8}, operand.scalar_type()), at::empty({6, 8}, operand.options()), {}, {}});
  };
  at::Context& context = at::globalContext();
  context.setAllowBF16ReductionCuBLAS(false);
  CHECK(run(left));
  CHECK_EQ(host::log().reductions, std::uint64_t{kInComputeType});
  context.setAllowBF16ReductionCuBLAS(true);
  CHECK(run(left));
  CHECK_EQ(host::log().reductions, std::uint64_t{kAnyReduction});
  context.setAllowFP16AccumulationCuBLAS(true);
  CHECK(run(left) && !run(left.to(at::kHalf)));
  context.setAllowFP16AccumulationCuBLAS(false);
  context.setDeterministicAlgorithms(true, false);
  CHECK(!run(left));
  context.setDeterministicAlgorithms(false, false);
}

TEST(workspace_is_as_large_as_pytorchs) {
  const auto workspace_for = [](std::int64_t rows) {
    const at::Tensor left = bfloats({rows, 24});
    CHECK(matmuls().run(Epilogue::kNone, {left, bfloats({24, 8}), at::empty({rows, 8}, left.options()), {}, {}}));
    return host::log().most_workspace;
  };
  CHECK_EQ(workspace_for(11), std::uint64_t{32} << 20U);
  setenv("CUBLASLT_WORKSPACE_SIZE", "64", 1);
  CHECK_EQ(workspace_for(12), std::uint64_t{64} << 10U);
  unsetenv("CUBLASLT_WORKSPACE_SIZE");
}

TEST(descriptions_are_given_back) {
  const int alive = host::log().alive;
  {
    const host::Host device;
    Matmuls short_lived(device);
    const at::Tensor left = bfloats({4, 16});
    CHECK(short_lived.run(Epilogue::kNone, {left, bfloats({16, 8}), at::empty({4, 8}, left.options()), {}, {}}));
    CHECK(host::log().alive > alive);
  }
  CHECK_EQ(host::log().alive, alive);
}

}  // namespace thunder::executors::cublaslt
