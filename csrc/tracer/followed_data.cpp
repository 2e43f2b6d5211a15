#include "tracer/followed_data.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "autograd/node_pointer.h"
#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/at_other_sizes.h"
#include "tracer/custom_gradient.h"
#include "tracer/operators.h"
#include "tracer/python_function.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/size_node.h"
#include "tracer/size_shadows.h"
#include "tracer/trace_node.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

SizeShadows* shadows_of(const Recorder& recorder) {
  auto* const shadows = static_cast<SizeShadows*>(TraceSession::current().size_reads);
  if (shadows == nullptr || !shadows->is_outside()) return nullptr;
  if (shadows->is_of_program(recorder)) return shadows;
  shadows->pin_all();  // parts of a program have one size
  return nullptr;
}

/// While alive, sizes are read by thunder.
class InsideOf {
 public:
  explicit InsideOf(SizeShadows* shadows) {
    if (shadows != nullptr) scope_.emplace(*shadows);
  }

 private:
  std::optional<SizeShadows::Inside> scope_;
};

}  // namespace

FollowedData::FollowedData(Recorder& recorder) : recorder_(recorder), shadows_(shadows_of(recorder)) {}

Number FollowedData::item(const at::Tensor& tensor) const {
  // The error for several elements names their number.
  if (!has_one_element(tensor)) note_read(tensor);
  const InsideOf inside(shadows_);
  const Number number = recorder_.data.item(tensor);
  if (shadows_ == nullptr) return number;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& find) {
    static_cast<void>(there.data.item(find(tensor)));
    return at::Tensor();
  });
  return number;
}

Number FollowedData::given(const at::Tensor& input, const c10::Scalar& number) const {
  const InsideOf inside(shadows_);
  const Number result = recorder_.data.given(input, number);
  if (shadows_ == nullptr) return result;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& find) {
    static_cast<void>(there.data.given(find(input), number));
    return at::Tensor();
  });
  return result;
}

bool FollowedData::has_one_element(const at::Tensor& tensor) const {
  const InsideOf inside(shadows_);
  return tensor.numel() == 1;
}

void FollowedData::note_read(const at::Tensor& tensor) const {
  const TraceTensorImpl* impl = trace_impl(tensor);
  if (shadows_ != nullptr && impl != nullptr && impl->is_watched()) shadows_->note_read(*impl);
}

at::Tensor FollowedData::contents_of(const at::Tensor& tensor) const {
  note_read(tensor);  // all elements of a tensor are those of one size
  const InsideOf inside(shadows_);
  at::Tensor contents = recorder_.data.contents_of(tensor);
  if (shadows_ == nullptr) return contents;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& find) {
    static_cast<void>(there.data.contents_of(find(tensor)));
    return at::Tensor();
  });
  return contents;
}

std::optional<Number> FollowedData::compute(std::string_view operation, const NumberOperand& left,
                                            const NumberOperand& right) const {
  const std::optional<Number> number = recorder_.data.compute(operation, left, right);
  if (shadows_ == nullptr) return number;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& /*find*/) {
    for (const NumberOperand* operand : {&left, &right}) there.data.require_known(*operand);
    const auto at_sizes = [&](const NumberOperand& operand) -> NumberOperand {
      const auto* size = std::get_if<ir::Dim>(&operand);
      return size == nullptr ? operand : c10::Scalar(ir::evaluate(*size, shadows_->sizes_in(there)));
    };
    static_cast<void>(there.data.compute(operation, at_sizes(left), at_sizes(right)));
    return at::Tensor();
  });
  return number;
}

void FollowedData::observe(const Number& number) const {
  recorder_.data.observe(number);
  if (shadows_ == nullptr) return;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& /*find*/) {
    there.data.require_known(number);
    there.data.observe(number);
    return at::Tensor();
  });
}

at::Tensor FollowedData::number_tensor(ir::ValueId number) const {
  at::Tensor tensor = recorder_.data.number_tensor(number);
  if (shadows_ == nullptr) return tensor;
  shadows_->follow_data(
      [&](Recorder& there, const SizeShadows::FindTensor& /*find*/) { return there.data.number_tensor(number); },
      tensor);
  return tensor;
}

at::Tensor FollowedData::held_number(const at::Tensor& tensor, at::ScalarType dtype) const {
  const InsideOf inside(shadows_);
  at::Tensor held = recorder_.data.held_number(tensor, dtype);
  if (shadows_ == nullptr) return held;
  shadows_->follow_data(
      [&](Recorder& there, const SizeShadows::FindTensor& find) { return there.data.held_number(find(tensor), dtype); },
      held);
  return held;
}

namespace {

void set_history(const at::Tensor& tensor, ir::ValueId value) {
  torch::autograd::set_history(tensor, autograd::make_node<OutsideNode>("FollowedBackward", value, 0));
}

/// Makes a tensor one that requires grad; no gradient is taken there of what the program brought along.
void give_history(const at::Tensor& tensor, ir::ValueId value) {
  trace_impl(tensor)->state()->value = value;
  if (!tensor.requires_grad()) set_history(tensor, value);
}

/// A size at the sizes that the program is traced with; -1: another kind of symbol.
std::int64_t number_at_hand(const c10::SymInt& size) {
  const SizeNode* node = size_node_of(size);
  return node == nullptr ? size.maybe_as_int().value_or(-1) : node->dim().hint;
}

/// Whether a tensor is gradient `i`, of the sizes of the input that it is the gradient of.
bool is_gradient_of(const CustomGradient& gradient, std::size_t i, const at::Tensor& tensor, Recorder& there) {
  if (!tensor.defined()) return gradient.gradients[i] == ir::kNoValue;
  if (there.value_of(tensor) != gradient.gradients[i]) return false;
  const ir::TensorType* input = there.trace().tensor_type(gradient.inputs[i]);
  return input == nullptr || input->sizes == bridge::type_of(tensor).sizes;
}

/// Adds a gradient whose operations are the last ones that were recorded.
std::vector<ir::ValueId> add_adopted(Recorder& there, std::span<const ir::ValueId> values,
                                     const CustomGradient& gradient) {
  auto own = std::make_shared<CustomGradient>(gradient);
  own->symbols = there.builder.cut(there.builder.begin_of_last(gradient.symbols.size()));
  return there.gradients.add({values.begin(), values.end()}, std::move(own));
}

class FollowedGradient final : public GradientFollower {
 public:
  explicit FollowedGradient(SizeShadows& shadows) : shadows_(shadows) {}

  ir::TensorType type_of(const at::Tensor& tensor) override {
    const SizeShadows::Inside inside(shadows_);
    return bridge::type_of(tensor);
  }

  void add_cotangent(const at::Tensor& result, const at::Tensor& cotangent) override {
    const auto add = [&](Recorder& there, const SizeShadows::FindTensor& find) {
      ir::TensorType type = bridge::type_of(find(result));
      type.requires_grad = false;
      return there.tensors.add(ir::make_type(std::move(type)));
    };
    shadows_.follow_data(add, cotangent);
  }

  void finish(std::span<const at::Tensor> results, std::span<const ir::ValueId> values,
              std::span<const at::Tensor> gradients, const CustomGradient& gradient, const AddThere& add) override {
    shadows_.follow_data([&](Recorder& there, const SizeShadows::FindTensor& find) {
      const RecordTop recording(there);
      bool is_alike = true;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const at::Tensor found = gradients[i].defined() ? find(gradients[i]) : at::Tensor();
        is_alike = is_gradient_of(gradient, i, found, there) && is_alike;
      }
      for (std::size_t i = 0; i < results.size(); ++i) {
        is_alike = trace_impl(find(results[i]))->state()->value == values[i] && is_alike;
      }
      THUNDER_CHECK(is_alike, "tracer", "a backward is another one at other sizes");
      const std::vector<ir::ValueId> made = add ? add(there) : add_adopted(there, values, gradient);
      for (std::size_t i = 0; i < results.size(); ++i) give_history(find(results[i]), made[i]);
      return at::Tensor();
    });
  }

 private:
  SizeShadows& shadows_;
};

}  // namespace

std::unique_ptr<GradientFollower> follow_gradient(const Recording& program) {
  auto* const shadows = static_cast<SizeShadows*>(TraceSession::current().size_reads);
  if (shadows == nullptr) return nullptr;
  // Within an operation nothing of what the backward does is followed, and parts of a program have one size.
  if (shadows->is_outside() && shadows->is_of_program(static_cast<const Recorder&>(program))) {
    return std::make_unique<FollowedGradient>(*shadows);
  }
  shadows->pin_all();
  return nullptr;
}

std::function<bool(const at::Tensor&, c10::SymIntArrayRef)> sizes_at_hand(const Recording& program) {
  SizeShadows* const shadows = shadows_of(static_cast<const Recorder&>(program));
  if (shadows == nullptr) return {};
  return [shadows](const at::Tensor& tensor, c10::SymIntArrayRef sizes) {
    const SizeShadows::Inside inside(*shadows);
    return std::ranges::equal(tensor.sizes(), sizes, {}, {}, number_at_hand);
  };
}

std::function<std::shared_ptr<void>()> all_strides_at_hand(const Recording& program) {
  SizeShadows* const shadows = shadows_of(static_cast<const Recorder&>(program));
  if (shadows == nullptr) return {};
  return [shadows] { return std::make_shared<SizeShadows::AllStrides>(*shadows); };
}

std::vector<at::Tensor> derive_at_all_sizes(TraceNode& node, std::vector<at::Tensor> cotangents) {
  SizeShadows* const shadows = shadows_of(static_cast<const Recorder&>(node.recorder()));
  if (shadows != nullptr) return shadows->derive(node, std::move(cotangents));
  return node.recorder().host.derive(node, std::move(cotangents));
}

at::Tensor add_python_function_at_all_sizes(Recorder& program, std::span<const at::Tensor> results,
                                            std::span<const at::Tensor> inputs, std::span<const at::Tensor> saved,
                                            const std::shared_ptr<const PythonFunction>& function) {
  SizeShadows* const shadows = shadows_of(program);
  const InsideOf inside(shadows);
  std::vector<ir::ValueId> values;
  for (const at::Tensor& result : results) values.push_back(trace_impl(result)->state()->value);
  at::Tensor made = program.gradients.add_python_function(results, inputs, saved, function);
  if (shadows == nullptr) return made;
  const auto add = [&](Recorder& there, const SizeShadows::FindTensor& find) {
    const RecordTop recording(there);
    const auto found = [&](std::span<const at::Tensor> tensors) {
      std::vector<at::Tensor> others;
      for (const at::Tensor& tensor : tensors) others.push_back(tensor.defined() ? find(tensor) : at::Tensor());
      return others;
    };
    const std::vector<at::Tensor> others = found(results);
    for (std::size_t i = 0; i < others.size(); ++i) {
      const bool is_alike = trace_impl(others[i])->state()->value == values[i];
      THUNDER_CHECK(is_alike, "tracer", "an autograd function gives others at other sizes");
      if (results[i].requires_grad()) give_history(others[i], values[i]);
    }
    at::Tensor other = there.gradients.add_python_function(others, found(inputs), found(saved), function);
    for (const at::Tensor& each : others) {
      if (each.requires_grad()) set_history(each, trace_impl(each)->state()->value);
    }
    return other;
  };
  shadows->follow_data(add, made);
  return made;
}

void follow_data_attribute(const at::Tensor& tensor, const at::Tensor& data) {
  auto* const shadows = static_cast<SizeShadows*>(TraceSession::current().size_reads);
  if (shadows == nullptr || !shadows->is_outside()) return;
  const auto take = [&](Recorder& there, const SizeShadows::FindTensor& find) {
    const RecordTop recording(there);
    return find(tensor).variable_data();
  };
  shadows->follow_data(take, data);
}

}  // namespace thunder::tracer
