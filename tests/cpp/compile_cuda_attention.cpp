// Attention of few queries as a CUDA kernel, which runs on the processor, compared with PyTorch's.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "executors/cuda_kernels/attention_source.h"
#include "ir/printer.h"
#include "kernels_on_host.h"
#include "recorded_program.h"

namespace thunder::compile {
namespace {

using check::recorded;
using check::Tensors;

struct Sizes {
  std::int64_t batch = 1;
  std::int64_t heads = 4;
  std::int64_t groups = 2;
  std::int64_t queries = 1;
  std::int64_t keys = 37;
  std::int64_t columns = 64;
};

Tensors tensors(const Sizes& of, at::ScalarType dtype) {
  const auto make = [&](std::int64_t heads, std::int64_t places) {
    return at::randn({of.batch, heads, places, of.columns}).to(dtype);
  };
  return {make(of.heads, of.queries), make(of.groups, of.keys), make(of.groups, of.keys)};
}

/// By the operator that is recorded for a GPU: PyTorch's own is recorded as its parts on the CPU.
Tensors attention(const Tensors& x, std::optional<double> scale) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("thunder::grouped_attention", "");
  const auto mask = x.size() > 3 ? c10::IValue(x[3]) : c10::IValue();
  const auto factor = scale ? c10::IValue(*scale) : c10::IValue();
  const std::vector<std::int64_t> strides = at::empty(x[0].sizes()).strides().vec();
  torch::jit::Stack stack{x[0], x[1], x[2], mask, false, factor, strides};
  op.callBoxed(&stack);
  return {stack.at(0).toTensor()};
}

/// The result of the kernels on the host, which is compared with attention in double. `launches`: that it takes.
at::Tensor check_attention(const Tensors& inputs, int launches = 1, std::optional<double> scale = std::nullopt,
                           bool has_block = true) {
  register_executor(check::kKernelsOnHost);
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  options.verify = true;
  const auto program = [&](const Tensors& x) { return attention(x, scale); };
  const auto compiled = compile(recorded(program, inputs), options);
  const int before = check::launches_on_host();
  const at::Tensor result = compiled->run(inputs).at(0);
  CHECK_EQ(check::launches_on_host() - before, launches);
  const std::string final = ir::print(compiled->forward_traces().back());
  if ((final.find("kind=\"attention\"") != std::string::npos) != has_block)
    check::report_failure(__FILE__, __LINE__, final);
  Tensors wide = inputs;
  for (at::Tensor& tensor : wide) tensor = tensor.scalar_type() == at::kBool ? tensor : tensor.to(at::kDouble);
  const at::Tensor exact = attention(wide, scale).at(0);
  const double tolerance = inputs[0].scalar_type() == at::kFloat ? 1e-5 : 1e-2;
  CHECK(at::allclose(result.to(at::kDouble), exact, tolerance, tolerance, /*equal_nan=*/true));
  CHECK(result.strides() == program(inputs).at(0).strides());
  return result;
}

}  // namespace

TEST(attention_of_one_query_of_every_dtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    check_attention(tensors({}, dtype));
    check_attention(tensors({.batch = 3, .heads = 3, .groups = 3, .keys = 1}, dtype), 1, 0.3);
    check_attention(tensors({.heads = 8, .groups = 1, .keys = 300, .columns = 128}, dtype));
  }
}

TEST(attention_of_columns_that_are_no_power_of_two) {
  for (const std::int64_t columns : {8, 24, 80, 256}) check_attention(tensors({.columns = columns}, at::kBFloat16));
}

TEST(attention_of_several_queries_of_a_group) {
  check_attention(tensors({.batch = 2, .heads = 4, .groups = 2, .queries = 3, .keys = 50}, at::kFloat));
  Tensors inputs = tensors({.batch = 2, .heads = 4, .groups = 2, .queries = 3, .keys = 50}, at::kFloat);
  inputs.push_back(at::randn({2, 4, 3, 50}));
  check_attention(inputs);
  inputs[3] = at::rand({3, 50}) < 0.5;
  check_attention(inputs);
}

TEST(attention_over_many_keys_is_shared_by_thread_blocks) {
  for (const bool has_mask : {false, true}) {
    Tensors inputs = tensors({.heads = 2, .groups = 1, .keys = 1500}, at::kBFloat16);
    if (has_mask) inputs.push_back(at::rand({1, 1, 1, 1500}) < 0.1);
    check_attention(inputs, 2);
  }
}

TEST(attention_with_masks_of_every_shape) {
  const Sizes sizes{.batch = 2};
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
           {1, 37}, {1, 1, 1, 37}, {2, 1, 1, 37}, {2, 4, 1, 37}, {1, 4, 1, 1}, {4, 1, 37}}) {
    Tensors inputs = tensors(sizes, at::kBFloat16);
    inputs.push_back(at::randn(shape).to(at::kBFloat16));
    check_attention(inputs);
    inputs[3] = inputs[3] > -0.5;
    check_attention(inputs);
  }
}

TEST(a_query_without_keys_gives_zeros) {
  Tensors inputs = tensors({.batch = 2}, at::kFloat);
  inputs.push_back(at::ones({2, 1, 1, 37}, at::kBool));
  inputs[3][1].fill_(false);
  const at::Tensor result = check_attention(inputs);
  CHECK(result[1].eq(0).all().item<bool>());
  inputs[3] = at::where(inputs[3], at::scalar_tensor(0.0F), at::scalar_tensor(-INFINITY));
  CHECK(check_attention(inputs)[1].eq(0).all().item<bool>());
}

TEST(keys_that_take_no_part_are_not_read) {
  Tensors inputs = tensors({}, at::kFloat);
  inputs.push_back(at::arange(37).lt(5).view({1, 1, 1, 37}));
  const at::Tensor expected = check_attention(inputs);
  inputs[1].slice(2, 5).fill_(NAN);
  inputs[2].slice(2, 5).fill_(NAN);
  register_executor(check::kKernelsOnHost);
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  const auto program = [](const Tensors& x) { return attention(x, std::nullopt); };
  CHECK(compile(recorded(program, inputs), options)->run(inputs).at(0).equal(expected));
}

TEST(scores_that_are_not_finite_give_what_pytorch_gives) {
  for (const float number : {NAN, INFINITY, -INFINITY, 1e30F}) {
    Tensors inputs = tensors({}, at::kFloat);
    inputs[1][0][0][3].fill_(number);
    check_attention(inputs);
  }
  Tensors inputs = tensors({}, at::kBFloat16);
  inputs.push_back(at::full({1, 1, 1, 37}, -3.3895e38, at::kBFloat16));  // the least finite number, everywhere
  check_attention(inputs);
}

TEST(keys_and_values_in_other_orders_of_memory) {
  Tensors inputs = tensors({.batch = 2}, at::kBFloat16);
  for (at::Tensor& tensor : inputs) tensor = tensor.transpose(1, 2).contiguous().transpose(1, 2);
  check_attention(inputs);
  inputs[1] = at::randn({2, 2, 50, 64}).to(at::kBFloat16).slice(2, 13);
  check_attention(inputs);
}

TEST(what_has_no_vectors_is_run_by_pytorch) {
  Tensors inputs = tensors({}, at::kFloat);
  inputs[1] = inputs[1].transpose(2, 3).contiguous().transpose(2, 3);
  check_attention(inputs, 0);
  check_attention(tensors({.columns = 12}, at::kHalf), 0, std::nullopt, /*has_block=*/false);
  check_attention(tensors({.queries = 9}, at::kFloat), 0, std::nullopt, /*has_block=*/false);
}

TEST(one_text_is_for_all_numbers_of_keys) {
  using executors::cuda::AttentionShape;
  AttentionShape shape{.groups = 8, .heads_of_group = 4, .keys = 256, .columns = 64};
  shape.query_strides = shape.result_strides = {2048, 64, 64, 1};
  shape.key_strides = shape.value_strides = {256 * 512, 256 * 64, 64, 1};
  const auto text = [&] { return executors::cuda::emit_attention(shape, {}).value().text; };
  const std::string first = text();
  shape.keys = 300;
  CHECK(first == text());
  shape.keys = 4096;
  CHECK(first != text());
  CHECK_EQ(executors::cuda::emit_attention(shape, {}).value().launches.at(0).grid, 8 * 16);
}

}  // namespace thunder::compile
