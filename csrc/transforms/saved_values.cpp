#include "transforms/saved_values.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <exception>
#include <map>
#include <stdexcept>
#include <vector>

#include "autograd/saved_tensors.h"
#include "bridge/convert.h"
#include "tracer/aside_of_layers.h"
#include "tracer/operators.h"
#include "tracer/recording_scopes.h"
#include "tracer/symbol_call.h"

namespace thunder::transforms {
namespace {

using TensorsByValue = std::map<std::uint32_t, at::Tensor>;

std::vector<std::int64_t> numbers_of(const ir::Dims& dims) {
  std::vector<std::int64_t> numbers;
  for (const ir::Dim& dim : dims) numbers.push_back(dim.hint);
  return numbers;
}

at::Tensor without_data(const ir::TensorType& type) {
  const at::ScalarType dtype = bridge::to_torch(type.dtype);
  at::Tensor tensor =
      at::empty_strided(numbers_of(type.sizes), numbers_of(type.strides), at::TensorOptions(at::kMeta).dtype(dtype));
  return tensor.requires_grad_(type.requires_grad && torch::autograd::isDifferentiableType(dtype));
}

/// The operator by which the program has called the operation: the one that writes to the first argument, if it takes
/// what the recorded one takes.
const c10::OperatorHandle& called_operator(const tracer::TraceNode& node) {
  const c10::OperatorHandle& recorded = tracer::handle_of(*node.symbol().op);
  if (!node.writer()) return recorded;
  const auto& parameters = node.writer()->schema().arguments();
  const bool is_alike =
      std::ranges::equal(parameters, recorded.schema().arguments(), {}, &c10::Argument::name, &c10::Argument::name);
  return is_alike ? *node.writer() : recorded;
}

/// The results of a call, flattened, undefined where they are no tensors.
std::vector<at::Tensor> flat_results(const torch::jit::Stack& stack) {
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    if (value.isTensorList()) {
      for (const at::Tensor& each : value.toTensorVector()) results.push_back(each);
    } else {
      results.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    }
  }
  return results;
}

/// Calls the operation on tensors without data, which are entered in `tensors` by value.
std::vector<at::Tensor> call_without_data(const tracer::TraceNode& node, const ir::Trace& trace,
                                          TensorsByValue& tensors) {
  const auto writer = tracer::make_writer(*trace.context(), [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    if (type == nullptr) throw std::invalid_argument("a value that is no tensor");
    at::Tensor& tensor = tensors[index_of(id)];
    if (!tensor.defined()) tensor = without_data(*type);
    return c10::IValue(tensor);
  });
  const c10::OperatorHandle& op = called_operator(node);
  torch::jit::Stack stack = tracer::arguments_of(node.symbol(), op, writer);
  if (op.schema().is_mutable()) stack.at(0) = stack[0].toTensor().clone();  // leaves cannot be written to
  op.callBoxed(stack);
  std::vector<at::Tensor> results = flat_results(stack);
  for (std::size_t i = 0; i < std::min(results.size(), node.results().size()); ++i) {
    const ir::ValueId id = node.results()[i];
    if (id != ir::kNoValue && results[i].defined()) tensors.try_emplace(index_of(id), results[i]);
  }
  return results;
}

}  // namespace

bool saves_written(const tracer::TraceNode& node, const ir::Trace& trace) {
  if (!node.symbol().op->name.starts_with("aten::") || node.symbol().op->handle == nullptr) return false;
  const tracer::SuspendRecording unrecorded;
  const tracer::WithoutSavingHooks unhooked;
  const tracer::AsideOfLayers aside;
  const c10::impl::ExcludeDispatchKeyGuard unseen(
      c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  const c10::InferenceMode normal(false);
  const c10::AutoGradMode with_gradients(true);
  try {
    TensorsByValue tensors;
    const std::vector<at::Tensor> results = call_without_data(node, trace, tensors);
    for (const auto& [value, tensor] : tensors) {
      if (node.is_written(ir::ValueId(value))) tensor.unsafeGetTensorImpl()->bump_version();
    }
    return autograd::is_saved_overwritten(results);
  } catch (const std::exception&) {
    return false;  // an operator whose results follow from data: what its backward reads is known of the trace alone
  }
}

}  // namespace thunder::transforms
