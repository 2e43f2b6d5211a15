// Packed sequences: their kernels read lengths, and write others to fresh memory.
#include <ATen/ops/_pack_padded_sequence.h>
#include <ATen/ops/_pad_packed_sequence.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "tracer/data_rewrites.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// The contents of `tensor`; the trace holds for these only.
at::Tensor known_lengths(Recorder& recorder, const at::Tensor& tensor) {
  return is_trace_tensor(tensor) ? recorder.data.contents_of(tensor) : tensor;
}

/// Zeros in the place of the sequences, for kernels that check lengths and compute others.
at::Tensor zeros_like_sequences(const at::Tensor& tensor) { return at::zeros({1}).expand(tensor.sizes()); }

using VisitRun = std::function<void(std::int64_t begin, std::int64_t end, std::int64_t size)>;

/// Calls `visit` for runs of steps with as many sequences each.
void for_each_run(const at::Tensor& batch_sizes, const VisitRun& visit) {
  const auto* sizes = batch_sizes.const_data_ptr<std::int64_t>();
  for (std::int64_t begin = 0, end = 0; begin < batch_sizes.numel(); begin = end) {
    while (end < batch_sizes.numel() && sizes[end] == sizes[begin]) ++end;
    visit(begin, end, sizes[begin]);
  }
}

}  // namespace

/// (input, lengths, batch_first)
void pack_sequences(Recorder& recorder, std::vector<IValue> arguments, torch::jit::Stack& stack) {
  const at::Tensor& input = arguments[0].toTensor();
  const bool batch_first = arguments[2].toBool();
  const at::Tensor lengths = known_lengths(recorder, arguments[1].toTensor());
  at::Tensor batch_sizes;
  {
    const SuspendRecording suspended;
    batch_sizes = std::get<1>(at::_pack_padded_sequence(zeros_like_sequences(input), lengths, batch_first));
  }
  const at::Tensor steps = batch_first ? input.transpose(0, 1) : input;
  std::vector<at::Tensor> parts;
  for_each_run(batch_sizes, [&](std::int64_t begin, std::int64_t end, std::int64_t size) {
    const at::Tensor part = steps.slice(0, begin, end).slice(1, 0, size);
    std::vector<std::int64_t> shape = part.sizes().slice(1).vec();
    shape[0] *= part.size(0);
    parts.push_back(part.reshape(shape));
  });
  stack.emplace_back(at::cat(parts));
  stack.emplace_back(recorder.trace_tensor_of(batch_sizes));
}

namespace {

/// `part`, of steps by sequences, with more of both behind.
at::Tensor padded(const at::Tensor& part, std::int64_t steps, std::int64_t sequences, const c10::Scalar& value) {
  if (steps + sequences == 0) return part;
  std::vector<std::int64_t> amounts(2 * static_cast<std::size_t>(part.dim()));
  amounts[amounts.size() - 1] = steps;
  amounts[amounts.size() - 3] = sequences;
  return at::constant_pad_nd(part, amounts, value);
}

}  // namespace

/// (data, batch_sizes, batch_first, padding_value, total_length)
void pad_sequences(Recorder& recorder, std::vector<IValue> arguments, torch::jit::Stack& stack) {
  const at::Tensor& data = arguments[0].toTensor();
  const c10::Scalar value = arguments[3].toScalar();
  const at::Tensor batch_sizes = known_lengths(recorder, arguments[1].toTensor());
  at::Tensor zeros, lengths;
  {
    const SuspendRecording suspended;
    std::tie(zeros, lengths) = at::_pad_packed_sequence(zeros_like_sequences(data), batch_sizes, /*batch_first=*/false,
                                                        value, arguments[4].toInt());
  }
  std::vector<at::Tensor> parts;
  std::int64_t row = 0;
  for_each_run(batch_sizes, [&](std::int64_t begin, std::int64_t end, std::int64_t size) {
    std::vector<std::int64_t> shape{end - begin, size};
    for (const std::int64_t each : data.sizes().slice(1)) shape.push_back(each);
    const std::int64_t next = row + (end - begin) * size;
    parts.push_back(padded(data.slice(0, row, next).reshape(shape), 0, lengths.numel() - size, value));
    row = next;
  });
  const at::Tensor result = padded(at::cat(parts), zeros.size(0) - batch_sizes.numel(), 0, value);
  stack.emplace_back(arguments[2].toBool() ? result.transpose(0, 1) : result);
  stack.emplace_back(recorder.trace_tensor_of(lengths));
}

}  // namespace thunder::tracer
