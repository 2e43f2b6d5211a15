#include "executors/cpu/random_operations.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <optional>
#include <utility>

#include "bridge/bernoulli.h"
#include "bridge/dropout.h"
#include "executors/cpu/bernoulli.h"

namespace thunder::executors::cpu {
namespace {

using Stack = std::vector<c10::IValue>;
constexpr std::size_t kArguments = 3;  // each operator here has three

template <typename... Results>
void replace_arguments(Stack& stack, std::size_t count, Results&&... results) {
  stack.resize(stack.size() - count);
  (stack.emplace_back(std::forward<Results>(results)), ...);
}

/// The result of (tensor, p, generator) is `tensor`, filled.
bool fill(at::Tensor tensor, Stack& stack) {
  const c10::IValue* arguments = stack.data() + stack.size() - kArguments;
  if (!arguments[1].isDouble()) return false;
  if (!fill_bernoulli(tensor, arguments[1].toDouble(), arguments[2].toOptional<at::Generator>())) return false;
  replace_arguments(stack, kArguments, std::move(tensor));
  return true;
}

/// The mask of elements that a dropout (input, p, train) keeps; nullopt where nothing is drawn.
std::optional<at::Tensor> draw_mask(const at::Tensor& input, const c10::IValue& p, const c10::IValue& train) {
  if (!p.isDouble() || !(p.toDouble() > 0 && p.toDouble() < 1) || input.numel() == 0) return std::nullopt;
  if (train.isBool() && !train.toBool()) return std::nullopt;
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  if (!fill_bernoulli(mask, 1 - p.toDouble(), std::nullopt)) return std::nullopt;
  return mask;
}

void fill_or_ask_eager(const at::Tensor& tensor, double p, const at::Generator& generator) {
  if (!fill_bernoulli(tensor, p, generator)) bridge::fill_bernoulli(tensor, p, generator);
}

/// The size, stride, dtype, device and probability that stand first among `arguments`.
struct Drawn {
  std::vector<std::int64_t> size;
  std::vector<std::int64_t> stride;
  at::ScalarType dtype;
  c10::Device device;
  double p;

  explicit Drawn(const c10::IValue* arguments)
      : size(arguments[0].toIntVector()),
        stride(arguments[1].toIntVector()),
        dtype(arguments[2].toScalarType()),
        device(arguments[3].toDevice()),
        p(arguments[4].toDouble()) {}
};

}  // namespace

bool run_bernoulli_in_place(Stack& stack) { return fill(stack[stack.size() - kArguments].toTensor(), stack); }

bool run_bernoulli(Stack& stack) {
  return fill(at::empty_like(stack[stack.size() - kArguments].toTensor(), at::MemoryFormat::Contiguous), stack);
}

bool run_dropout(Stack& stack) {
  const c10::IValue* arguments = stack.data() + stack.size() - kArguments;
  const at::Tensor input = arguments[0].toTensor();
  if (input.is_complex()) return false;  // eager draws in the dtype of the input, and raises
  const auto mask = draw_mask(input, arguments[1], arguments[2]);
  if (!mask) return false;
  at::Tensor result = input.mul(mask->to(input.scalar_type()).div_(1 - arguments[1].toDouble()));
  replace_arguments(stack, kArguments, std::move(result));
  return true;
}

bool run_native_dropout(Stack& stack) {
  const c10::IValue* arguments = stack.data() + stack.size() - kArguments;
  const at::Tensor input = arguments[0].toTensor();
  auto mask = draw_mask(input, arguments[1], arguments[2]);
  if (!mask) return false;
  at::Tensor result = input.mul(*mask).mul_(1 / (1 - arguments[1].toDouble()));
  replace_arguments(stack, kArguments, std::move(result), *std::move(mask));
  return true;
}

bool run_bernoulli_with_state(Stack& stack) {
  constexpr std::size_t kCount = 6;
  const c10::IValue* arguments = stack.data() + stack.size() - kCount;
  const Drawn drawn(arguments);
  auto [result, state] = bridge::bernoulli_with_state(drawn.size, drawn.stride, drawn.dtype, drawn.device, drawn.p,
                                                      arguments[5].toOptional<at::Generator>(), &fill_or_ask_eager);
  replace_arguments(stack, kCount, std::move(result), std::move(state));
  return true;
}

bool run_bernoulli_from_state(Stack& stack) {
  constexpr std::size_t kCount = 6;
  const c10::IValue* arguments = stack.data() + stack.size() - kCount;
  const Drawn drawn(arguments + 1);
  at::Tensor result = bridge::bernoulli_from_state(arguments[0].toTensor(), drawn.size, drawn.stride, drawn.dtype,
                                                   drawn.device, drawn.p, &fill_or_ask_eager);
  replace_arguments(stack, kCount, std::move(result));
  return true;
}

bool run_native_dropout_with_state(Stack& stack) {
  constexpr std::size_t kCount = 2;
  const c10::IValue* arguments = stack.data() + stack.size() - kCount;
  auto [output, mask, state] =
      bridge::native_dropout_with_state(arguments[0].toTensor(), arguments[1].toDouble(), &fill_or_ask_eager);
  replace_arguments(stack, kCount, std::move(output), std::move(mask), std::move(state));
  return true;
}

bool run_native_dropout_mask_from_state(Stack& stack) {
  constexpr std::size_t kCount = 6;
  const c10::IValue* arguments = stack.data() + stack.size() - kCount;
  const Drawn drawn(arguments + 1);
  at::Tensor mask = bridge::native_dropout_mask_from_state(arguments[0].toTensor(), drawn.size, drawn.stride,
                                                           drawn.dtype, drawn.device, drawn.p, &fill_or_ask_eager);
  replace_arguments(stack, kCount, std::move(mask));
  return true;
}

}  // namespace thunder::executors::cpu
