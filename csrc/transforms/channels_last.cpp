#include "transforms/channels_last.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "tracer/operators.h"
#include "transforms/replay.h"

namespace thunder::transforms {
namespace {

/// Below so many elements in all its images, a program is bound by its calls.
constexpr std::int64_t kSmall = 1 << 16;

bool is_one_of(const ir::BoundSymbol& symbol, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, symbol.op->name) != names.end();
}

const ir::TensorType* image_of(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  if (!is_one_of(symbol, {"aten::conv2d", "aten::convolution", "aten::_convolution"})) return nullptr;
  const auto* id = symbol.arguments[0].get<ir::ValueId>();
  const ir::TensorType* type = id == nullptr ? nullptr : trace.tensor_type(*id);
  if (type == nullptr || type->sizes.size() != 4 || type->device.type != ir::DeviceType::kCpu) return nullptr;
  return ir::is_floating_point(type->dtype) ? type : nullptr;
}

std::vector<std::int64_t> numbers(const ir::Dims& dims) {
  std::vector<std::int64_t> result;
  for (const ir::Dim& dim : dims) result.push_back(dim.hint);
  return result;
}

/// Whether the trace can be recorded again, and how many elements convolutions find in another layout.
bool is_candidate(const ir::Trace& trace) {
  std::int64_t elements = 0;
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    const bool is_plain = symbol.op->style == ir::CallStyle::kTorchOperator ||
                          symbol.op == tracer::tensor_constant_operator();
    if (!is_plain) return false;
    const ir::TensorType* image = image_of(trace, symbol);
    if (image == nullptr) continue;
    const std::vector<std::int64_t> sizes = numbers(image->sizes);
    if (c10::is_channels_last_strides_2d(sizes, numbers(image->strides))) continue;
    elements += sizes[0] * sizes[1] * sizes[2] * sizes[3];
  }
  return elements >= kSmall;
}

/// What a replay calls operations with.
class ChannelsLast {
 public:
  explicit ChannelsLast(const ir::Trace& trace) : trace_(trace) {}

  void adapt(const ir::BoundSymbol& symbol, torch::jit::Stack& stack) {
    if (image_of(trace_, symbol) != nullptr) {
      ++convolutions_;
      const at::Tensor image = stack[0].toTensor();
      const at::Tensor copy = image.contiguous(at::MemoryFormat::ChannelsLast);
      copies_ += copy.is_same(image) ? 0 : 1;
      stack[0] = copy;
    } else if (symbol.op->random || is_one_of(symbol, {"aten::as_strided", "aten::as_strided_scatter"})) {
      for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
        const auto* id = symbol.arguments[i].get<ir::ValueId>();
        if (id != nullptr && stack[i].isTensor()) stack[i] = as_recorded(stack[i].toTensor(), *id);
      }
    }
  }

  /// The tensor with the strides that its value has in the trace.
  [[nodiscard]] at::Tensor as_recorded(const at::Tensor& tensor, ir::ValueId id) const {
    const ir::TensorType* type = trace_.tensor_type(id);
    if (type == nullptr || tensor.strides().equals(numbers(type->strides))) return tensor;
    static const auto kRestride = c10::Dispatcher::singleton()
                                      .findSchemaOrThrow("thunder::restride", "")
                                      .typed<at::Tensor(const at::Tensor&, at::IntArrayRef)>();
    return kRestride.call(tensor, numbers(type->strides));
  }

  [[nodiscard]] bool pays() const { return convolutions_ >= 2 * copies_; }

 private:
  const ir::Trace& trace_;
  std::size_t convolutions_ = 0;
  std::size_t copies_ = 0;
};

}  // namespace

std::optional<ir::Trace> channels_last(const ir::Trace& trace) {
  if (!is_candidate(trace)) return std::nullopt;
  RecordedInputs described;
  for (const ir::ValueId input : trace.inputs) described.types.push_back(trace.value(input).type);
  ChannelsLast layout(trace);
  ir::Trace result = record(trace, kChannelsLast, described, [&](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> outputs = replay(trace, inputs, GradMode::kAsRecorded, [&](const auto& symbol, auto& stack) {
      layout.adapt(symbol, stack);
    });
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].defined()) outputs[i] = layout.as_recorded(outputs[i], *trace.outputs[i].get<ir::ValueId>());
    }
    return outputs;
  });
  if (!layout.pays()) return std::nullopt;
  return result;
}

}  // namespace thunder::transforms
