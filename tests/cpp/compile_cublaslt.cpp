// Programs whose matmuls have epilogues, by cuBLASLt's functions on the processor, compared with PyTorch.
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "cublaslt_on_host.h"
#include "executors/cublaslt/executor.h"
#include "ir/printer.h"
#include "recorded_program.h"

namespace thunder::compile {
namespace {

namespace host = check::cublaslt;
using check::Tensors;
using executors::cublaslt::Epilogue;

const executors::Executor& executor() {
  static const host::Host kHost;
  static executors::cublaslt::Matmuls matmuls(kHost);
  static const executors::cublaslt::Backend kBackend{&matmuls, {ir::DeviceType::kCpu, 0}};
  static const executors::Executor kExecutor = executors::cublaslt::make_executor("cublaslt_on_host", kBackend);
  return kExecutor;
}

at::Tensor bfloats(std::vector<std::int64_t> sizes) { return at::randn(sizes).to(at::kBFloat16); }

/// Compiles a program, compares its results with PyTorch's, and returns how often the library ran.
int runs_of(const Tensors& inputs, const check::TensorFunction& program, const Tensors& given = {}) {
  register_executor(executor());
  Options options;
  options.executors = with_fallback({find_executor("cublaslt_on_host")});
  options.verify = true;
  const auto compiled = compile(check::recorded(program, inputs), options);
  const Tensors& called = given.empty() ? inputs : given;
  const int before = host::log().runs;
  const Tensors results = compiled->run(called);
  const Tensors expected = program(called);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool is_alike = results[i].sizes() == expected[i].sizes() && results[i].strides() == expected[i].strides() &&
                          results[i].scalar_type() == expected[i].scalar_type();
    if (is_alike && at::allclose(results[i].to(at::kDouble), expected[i].to(at::kDouble), 3e-2, 6e-2)) continue;
    check::report_failure(__FILE__, __LINE__, ir::print(compiled->forward_traces().back()));
  }
  return host::log().runs - before;
}

Tensors layer() { return {bfloats({6, 16}), bfloats({16, 8}), bfloats({8})}; }

Tensors gradient(const Tensors& x) {
  const at::Tensor product = at::mm(x[0], x[1]).view({2, 3, 8});
  const at::Tensor result = at::gelu_backward(product, x[2], "tanh");
  return {result, result.sum({0, 1})};
}

}  // namespace

TEST(a_gelu_of_a_matmul) {
  const auto function = [](const Tensors& x) {
    return Tensors{at::gelu(at::addmm(x[2], x[0], x[1]).view({2, 3, 8}), "tanh") * 2};
  };
  CHECK_EQ(runs_of(layer(), function), 1);
  CHECK(host::log().epilogue == Epilogue::kGeluBias);
  const auto without_bias = [](const Tensors& x) { return Tensors{at::gelu(at::mm(x[0], x[1]), "tanh")}; };
  CHECK_EQ(runs_of(layer(), without_bias), 1);
  CHECK(host::log().epilogue == Epilogue::kGelu);
}

TEST(a_gelu_of_a_linear_layer) {
  const auto function = [](const Tensors& x) { return Tensors{at::gelu(at::linear(x[0], x[1], x[2]), "tanh")}; };
  const Tensors inputs{bfloats({2, 3, 16}), bfloats({8, 16}), bfloats({8})};
  CHECK_EQ(runs_of(inputs, function), 1);
  CHECK(host::log().epilogue == Epilogue::kGeluBias);
  const auto without_bias = [](const Tensors& x) {
    const at::Tensor input = at::linear(x[0], x[1]);
    return Tensors{at::gelu(input, "tanh"), input + 1};
  };
  CHECK_EQ(runs_of(inputs, without_bias), 1);
  CHECK(host::log().epilogue == Epilogue::kGeluAuxiliary);
  const Tensors turned{bfloats({3, 2, 16}).transpose(0, 1), bfloats({8, 16}), bfloats({8})};
  CHECK_EQ(runs_of(inputs, function, turned), 0);
}

TEST(what_a_gelu_is_of_is_kept_where_it_is_read) {
  const auto function = [](const Tensors& x) {
    const at::Tensor product = at::addmm(x[2], x[0], x[1]);
    const at::Tensor input = product.view({2, 3, 8});
    return Tensors{at::gelu(input, "tanh"), product * 2, input.sum(0)};
  };
  CHECK_EQ(runs_of(layer(), function), 1);
  CHECK(host::log().epilogue == Epilogue::kGeluAuxiliaryBias);
}

TEST(a_gradient_and_the_sum_of_its_columns) {
  CHECK_EQ(runs_of({bfloats({6, 16}), bfloats({16, 8}), bfloats({2, 3, 8})}, &gradient), 1);
  CHECK(host::log().epilogue == Epilogue::kGeluGradientBias);
  const auto without_sum = [](const Tensors& x) { return Tensors{gradient(x)[0]}; };
  CHECK_EQ(runs_of({bfloats({6, 16}), bfloats({16, 8}), bfloats({2, 3, 8})}, without_sum), 1);
  CHECK(host::log().epilogue == Epilogue::kGeluGradient);
}

TEST(inputs_that_lie_otherwise_run_by_operations) {
  Tensors given = layer();
  given[0] = bfloats({6 * 16 + 1}).slice(0, 1).view({6, 16});
  const auto function = [](const Tensors& x) { return Tensors{at::gelu(at::addmm(x[2], x[0], x[1]), "tanh")}; };
  CHECK_EQ(runs_of(layer(), function, given), 0);
  given = {bfloats({6, 16}), bfloats({16, 8}), bfloats({3, 2, 8}).transpose(0, 1)};
  CHECK_EQ(runs_of({bfloats({6, 16}), bfloats({16, 8}), bfloats({2, 3, 8})}, &gradient, given), 0);
}

TEST(matmuls_that_stay_as_they_are) {
  const auto exact = [](const Tensors& x) { return Tensors{at::gelu(at::addmm(x[2], x[0], x[1]))}; };
  CHECK_EQ(runs_of(layer(), exact), 0);
  const auto scaled = [](const Tensors& x) { return Tensors{at::gelu(at::addmm(x[2], x[0], x[1], 1, 2), "tanh")}; };
  CHECK_EQ(runs_of(layer(), scaled), 0);
  const auto matrix = [](const Tensors& x) { return Tensors{at::gelu(at::addmm(x[2], x[0], x[1]), "tanh")}; };
  CHECK_EQ(runs_of({bfloats({6, 16}), bfloats({16, 8}), bfloats({6, 8})}, matrix), 0);
  CHECK_EQ(runs_of({bfloats({6, 16}), bfloats({16, 7}), bfloats({7})}, matrix), 0);
  const auto split = [](const Tensors& x) { return Tensors{at::gelu(at::mm(x[0], x[1]).view({12, 4}), "tanh")}; };
  CHECK_EQ(runs_of(layer(), split), 0);
  const auto read_twice = [](const Tensors& x) {
    const at::Tensor product = at::mm(x[0], x[1]);
    return Tensors{at::gelu_backward(product, x[2], "tanh"), product};
  };
  CHECK_EQ(runs_of({bfloats({6, 16}), bfloats({16, 8}), bfloats({6, 8})}, read_twice), 0);
  const auto wide = [](const Tensors& x) {
    return Tensors{at::gelu(at::addmm(x[2], x[0], x[1]).to(at::kFloat), "tanh")};
  };
  CHECK_EQ(runs_of(layer(), wide), 0);
}

}  // namespace thunder::compile
