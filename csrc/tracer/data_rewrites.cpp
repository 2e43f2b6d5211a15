#include "tracer/data_rewrites.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "ir/trace.h"
#include "tracer/call_builder.h"
#include "tracer/data_dependence.h"
#include "tracer/evaluate.h"
#include "tracer/functional_form.h"
#include "tracer/map_tensors.h"
#include "tracer/observed_errors.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

bool is_index(const IValue& index) { return !index.isNone() && index.toTensor().defined(); }

/// The position of the mask that is the only index; -1: there are others.
std::ptrdiff_t only_mask(const IValue& indices) {
  const auto list = indices.toListRef();
  const auto found = std::find_if(list.begin(), list.end(), is_index);
  const bool is_only =
      found != list.end() && is_mask(*found) && std::find_if(found + 1, list.end(), is_index) == list.end();
  return is_only ? found - list.begin() : -1;
}

/// Whether masks have the sizes of what they index: eager has words of its own where they do not.
bool masks_fit(const at::Tensor& self, const IValue& indices) {
  std::size_t dim = 0;
  for (const IValue& index : indices.toListRef()) {
    const auto shape = is_mask(index) ? index.toTensor().sizes() : at::IntArrayRef();
    const std::size_t count = is_mask(index) ? shape.size() : 1;
    if (dim + count > self.sizes().size() || !(shape.empty() || shape.equals(self.sizes().slice(dim, count))))
      return false;
    dim += count;
  }
  return true;
}

/// Indices with positions in the place of masks.
IValue with_positions(Recorder& recorder, const IValue& indices) {
  c10::List<std::optional<at::Tensor>> result;
  for (const IValue& index : indices.toListRef()) {
    if (!is_mask(index)) {
      result.push_back(is_index(index) ? std::make_optional(index.toTensor()) : std::nullopt);
      continue;
    }
    for (at::Tensor& positions : recorder.data.positions_of(index.toTensor())) result.push_back(std::move(positions));
  }
  return result;
}

/// The divisors of mean losses: numbers of targets.
at::Tensor lengths_like(Recorder& recorder, at::IntArrayRef lengths, const at::Tensor& losses) {
  at::Tensor divisors;
  {
    const SuspendRecording suspended;
    divisors = at::tensor(lengths, losses.scalar_type()).clamp_min(1).to(losses.device());
  }
  return recorder.trace_tensor_of(divisors);
}

at::Tensor lengths_like(Recorder& recorder, const at::Tensor& lengths, const at::Tensor& losses) {
  const IValue there = recorder.call_by_name(
      "aten::_to_copy", "", {lengths, static_cast<std::int64_t>(losses.scalar_type()), IValue(), losses.device()})[0];
  return recorder.call_by_name("aten::clamp_min", "", {there, c10::Scalar(1)})[0].toTensor();
}

/// Its own code makes numbers out of the lengths, or a tensor out of numbers.
void call_ctc_loss(Recorder& recorder, std::vector<IValue> arguments, torch::jit::Stack& stack) {
  const auto call_by_name = [&](const char* name, const char* overload, std::vector<IValue> given) {
    return recorder.call_by_name(name, overload, std::move(given));
  };
  const bool has_tensors = arguments[2].isTensor();
  for (const std::size_t position : {2, 3}) {
    if (!has_tensors) continue;
    arguments[position] = call_by_name("aten::reshape", "", {arguments[position], c10::List<std::int64_t>({-1})})[0];
    const bool is_integral = c10::isIntegralType(arguments[position].toTensor().scalar_type(), /*includeBool=*/false);
    TORCH_CHECK(is_integral, position == 2 ? "input_lengths" : "target_lengths", " must be integral");
  }
  const bool is_batched = arguments[0].toTensor().dim() == 3;
  if (!is_batched) arguments[0] = call_by_name("aten::unsqueeze", "", {arguments[0], std::int64_t{1}})[0];
  if (arguments[1].toTensor().scalar_type() != at::kLong) {
    arguments[1] = call_by_name("aten::_to_copy", "", {arguments[1], static_cast<std::int64_t>(at::kLong)})[0];
  }
  const IValue lengths = arguments[3];
  const std::int64_t reduction = arguments[5].toInt();
  const bool drops_infinity = arguments[6].toBool();
  arguments.erase(arguments.begin() + 5);
  IValue losses = call_by_name("aten::_ctc_loss", has_tensors ? "Tensor" : "", std::move(arguments))[0];
  if (drops_infinity) {
    const c10::Scalar infinity = std::numeric_limits<double>::infinity();
    const IValue infinite = call_by_name("aten::eq", "Scalar", {losses, infinity})[0];
    losses = call_by_name("aten::masked_fill", "Scalar", {losses, infinite, c10::Scalar(0)})[0];
  }
  if (reduction == at::Reduction::Mean) {
    const at::Tensor divisors = has_tensors ? lengths_like(recorder, lengths.toTensor(), losses.toTensor())
                                            : lengths_like(recorder, lengths.toIntVector(), losses.toTensor());
    losses = call_by_name("aten::div", "Tensor", {losses, divisors})[0];
  }
  if (reduction == at::Reduction::None && !is_batched) {
    losses = call_by_name("aten::squeeze", "dim", {losses, std::int64_t{0}})[0];
  } else if (reduction != at::Reduction::None) {
    losses = call_by_name(reduction == at::Reduction::Mean ? "aten::mean" : "aten::sum", "", {losses})[0];
  }
  stack.push_back(std::move(losses));
}

}  // namespace

bool writes_by_mask(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  return has_fact(op, Fact::kWritesToIndices) && has_mask(arguments[1]) &&
         masks_fit(arguments[0].toTensor(), arguments[1]);
}

void call_writing_by_mask(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  std::vector<IValue> arguments = torch::jit::pop(stack, op.schema().arguments().size());
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& values = arguments[2].toTensor();
  const std::ptrdiff_t position = only_mask(arguments[1]);
  const bool accumulates = arguments[3].toBool();
  // A number on the CPU is cast, as in eager.
  const bool fits = values.scalar_type() == self.scalar_type() || values.is_cpu();
  if (position >= 0 && !accumulates && values.numel() == 1 && fits) {
    const at::Tensor mask = arguments[1].toListRef()[static_cast<std::size_t>(position)].toTensor();
    std::vector<std::int64_t> shape = mask.sizes().vec();
    shape.resize(self.sizes().size() - static_cast<std::size_t>(position), 1);
    const IValue places = recorder.call_by_name("aten::ne", "Scalar", {mask, c10::Scalar(0)})[0];
    const IValue shown = recorder.call_by_name("aten::reshape", "", {places, std::move(shape)})[0];
    const IValue value = recorder.call_by_name("aten::reshape", "", {values, std::vector<std::int64_t>()})[0];
    stack.push_back(recorder.call_by_name("aten::masked_fill", "Tensor", {self, shown, value})[0]);
    return;
  }
  arguments[1] = with_positions(recorder, arguments[1]);
  recorder.call_functional(op, arguments, Level::kTop);
  stack.push_back(std::move(arguments[0]));
}

bool reads_by_mask(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (op.schema().argumentIndexWithName("indices") != 1 || !shape_follows_data(op, arguments)) return false;
  // Eager has words of its own about bytes as masks, too.
  const auto is_of_bits = [](const IValue& index) {
    return !is_mask(index) || (index.toTensor().dim() > 0 && index.toTensor().scalar_type() == at::kBool);
  };
  return masks_fit(arguments[0].toTensor(), arguments[1]) && std::ranges::all_of(arguments[1].toListRef(), is_of_bits);
}

void call_reading_by_mask(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  std::vector<IValue> arguments = torch::jit::pop(stack, op.schema().arguments().size());
  arguments[1] = with_positions(recorder, arguments[1]);
  recorder.call_functional(op, arguments, Level::kTop);
  stack.push_back(std::move(arguments[0]));
}

bool is_made_of_positions(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  static constexpr std::string_view kNames[] = {"aten::nonzero_numpy", "aten::repeat_interleave", "aten::where"};
  const bool is_one = std::ranges::find(kNames, op.operator_name().name) != std::end(kNames);
  return is_one && is_composite(op) && shape_follows_data(op, arguments);
}

bool call_reading_lengths(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  struct Row {
    std::string_view name;
    void (*call)(Recorder& recorder, std::vector<IValue> arguments, torch::jit::Stack& stack);
  };
  static constexpr Row kRows[] = {{"aten::_pack_padded_sequence", &pack_sequences},
                                  {"aten::_pad_packed_sequence", &pad_sequences},
                                  {"aten::ctc_loss", &call_ctc_loss}};
  const auto* row = std::ranges::find(kRows, op.operator_name().name, &Row::name);
  if (row == std::end(kRows)) return false;
  row->call(recorder, torch::jit::pop(stack, op.schema().arguments().size()), stack);
  return true;
}

void call_reading_number(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  std::vector<IValue> arguments = torch::jit::pop(stack, count);
  const at::Tensor tensor = arguments[0].toTensor();
  const bool is_truth = op.schema().returns()[0].type()->kind() == c10::TypeKind::BoolType;
  if (count == 1) {
    stack.emplace_back(is_truth ? c10::Scalar(recorder.data.read_truth(tensor)) : recorder.data.read_number(tensor));
    return;
  }
  // Whether two tensors are the same, exactly or within what further arguments say.
  const CallBuilder calls(recorder);
  const bool is_exact = count == 2;
  if (is_exact && !tensor.sizes().equals(arguments[1].toTensor().sizes())) {
    stack.emplace_back(false);
    return;
  }
  const at::Tensor same = is_exact ? calls.eq(tensor, arguments[1].toTensor()) : calls.isclose(std::move(arguments));
  stack.emplace_back(recorder.data.read_number(calls.all(same)).toBool());
}

namespace {

/// (info, name, *, is_matrix): raises for the numbers of matrices that are not zero.
void check_errors(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  std::vector<IValue> arguments = torch::jit::pop(stack, op.schema().arguments().size());
  const CallBuilder calls(recorder);
  const at::Tensor info = arguments[0].toTensor();
  const at::Tensor fails = calls.call({"aten::any", "", {calls.call({"aten::ne", "Scalar", {info, 0}})}});
  if (!recorder.data.read_truth(fails)) return;
  arguments[0] = recorder.data.with_contents(info);
  const SuspendRecording suspended;
  op.callBoxed(arguments);
}

}  // namespace

bool call_observing_errors(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!ObservedErrors::are_observed() || recorder.host.recorded() != Recorded::kProgram) return false;
  if (op.operator_name().name == "aten::_linalg_check_errors") {
    check_errors(recorder, op, stack);
    return true;
  }
  if (!is_composite(op) || !operators::has_fact(*operator_for(op), operators::Fact::kRaisesForData)) return false;
  recorder.call_parts(op, stack);
  return true;
}

void call_giving_numbers(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  if (tensors_of(std::span(stack).last(count)).empty()) {
    const SuspendRecording suspended;
    return op.callBoxed(stack);
  }
  const auto form = op.schema().is_mutable() ? std::nullopt : functional_form(op);
  if (!form) refuse(op, "expected results that are tensors, got a number that may follow from data");
  recorder.call_functional(*form, stack, Level::kTop);
  const auto& returns = op.schema().returns();
  const auto results = std::span(stack).last(returns.size());
  for (std::size_t i = 0; i < returns.size(); ++i) {
    if (returns[i].type()->isSubtypeOf(*c10::NumberType::get()) ||
        returns[i].type()->kind() == c10::TypeKind::BoolType) {
      results[i] = recorder.data.read_number(results[i].toTensor());
    }
  }
}

}  // namespace thunder::tracer
