#include "tracer/tensor_table.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "bridge/constant.h"
#include "bridge/convert.h"
#include "bridge/number.h"
#include "tracer/array_memory.h"
#include "tracer/evaluate.h"
#include "tracer/operators.h"
#include "tracer/recording.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {

at::Tensor TensorTable::make(ir::ValueId value) {
  auto state = std::make_shared<TraceState>();
  state->recorder = &recording_;
  state->value = value;
  const ir::Type& type = *recording_.builder.trace().value(value).type;
  const auto* kind = std::get_if<ir::ScalarKind>(&type);
  if (kind == nullptr) return make_trace_tensor(std::get<ir::TensorType>(type), std::move(state));
  ir::TensorType tensor_type;
  tensor_type.dtype = bridge::from_torch(bridge::dtype_of(*kind));
  at::Tensor tensor = make_trace_tensor(tensor_type, std::move(state));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Tensor TensorTable::add_with_gradient(ir::ValueId value) {
  at::Tensor tensor = make(value);
  const ir::TensorType* type = recording_.builder.trace().tensor_type(value);
  if (type != nullptr && type->requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

at::Tensor TensorTable::add(ir::TypePtr type, std::string name) {
  return add_with_gradient(recording_.builder.trace().add_value(std::move(type), std::move(name)));
}

at::Tensor TensorTable::add_input(ir::TypePtr type, std::string name) {
  at::Tensor tensor = add_with_gradient(recording_.builder.trace().add_input(std::move(type), std::move(name)));
  inputs_.push_back(tensor);
  real_inputs_.emplace_back();
  return tensor;
}

at::Tensor TensorTable::add_input(const at::Tensor& real, ir::TypePtr type, std::string name) {
  std::optional<c10::InferenceMode> as_made;  // which decides whether a tensor is an inference tensor
  if (real.is_inference() != c10::InferenceMode::is_enabled()) as_made.emplace(real.is_inference());
  at::Tensor tensor = add_input(std::move(type), std::move(name));
  real_inputs_.back() = real;
  has_inference_inputs_ |= real.is_inference();
  inputs_by_real_.emplace(real.unsafeGetTensorImpl(), tensor);
  return tensor;
}

at::Tensor TensorTable::add_constant(const at::Tensor& real) {
  ir::BoundSymbol symbol;
  symbol.op = tensor_constant_operator();
  symbol.arguments.emplace_back(bridge::add_tensor(*recording_.builder.trace().context(), as_constant(real)));
  at::Tensor tensor = add(ir::make_type(bridge::type_of(real)));
  symbol.results.emplace_back(trace_impl(tensor)->state()->value);
  recording_.builder.add(std::move(symbol));
  constants_by_real_.emplace(real.unsafeGetTensorImpl(), Constant{real, tensor});
  return tensor;
}

std::optional<at::Tensor> TensorTable::find_input(const at::Tensor& real) const {
  const auto found = inputs_by_real_.find(real.unsafeGetTensorImpl());
  return found == inputs_by_real_.end() ? std::nullopt : std::make_optional(found->second);
}

std::optional<at::Tensor> TensorTable::find_constant(const at::Tensor& real) const {
  const auto found = constants_by_real_.find(real.unsafeGetTensorImpl());
  return found == constants_by_real_.end() ? std::nullopt : std::make_optional(found->second.tensor);
}

bool TensorTable::is_input(const at::Tensor& trace_tensor) const {
  const auto& state = trace_impl(trace_tensor)->state();
  return std::ranges::any_of(inputs_, [&](const at::Tensor& input) { return trace_impl(input)->state() == state; });
}

at::Tensor TensorTable::real_behind(const at::Tensor& trace_tensor) const {
  const auto& state = trace_impl(trace_tensor)->state();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (trace_impl(inputs_[i])->state() == state) return real_inputs_[i];
  }
  return {};
}

at::Tensor TensorTable::real_constant(const at::Tensor& trace_tensor) const {
  for (const auto& [impl, constant] : constants_by_real_) {
    if (constant.tensor.is_same(trace_tensor)) return constant.real;
  }
  return {};
}

void TensorTable::note_offset_asked(const at::Tensor& trace_tensor) {
  const c10::StorageImpl* memory = trace_tensor.storage().unsafeGetStorageImpl();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].storage().unsafeGetStorageImpl() != memory) continue;
    if (real_inputs_[i].defined()) {
      asked_for_offset_.insert(real_inputs_[i].unsafeGetTensorImpl());
    } else {
      recording_.host.note_offset_asked(i);
    }
  }
}

bool TensorTable::lies_in_constant(const at::Tensor& trace_tensor) const {
  return std::ranges::any_of(constants_by_real_,
                             [&](const auto& constant) { return share_memory(constant.second.tensor, trace_tensor); });
}

}  // namespace thunder::tracer
