#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/trace.h"

namespace thunder::tracer {

class Recording;

/// The trace tensors of a recorder, and the real tensors that some of them stand for: inputs and constants.
class TensorTable {
 public:
  explicit TensorTable(Recording& recording) : recording_(recording) {}

  /// A trace tensor without a history that stands for a value of the trace. For a number it is one that stands for a
  /// number among the arguments of operations.
  [[nodiscard]] at::Tensor make(ir::ValueId value);
  /// The tensor of a new value, which no symbol makes yet.
  at::Tensor add(ir::TypePtr type, std::string name = {});
  /// The tensor of the next input.
  at::Tensor add_input(ir::TypePtr type, std::string name);
  /// The tensor of the next input, of this type, which stands for `real`. `real` is kept alive.
  at::Tensor add_input(const at::Tensor& real, ir::TypePtr type, std::string name);
  at::Tensor add_constant(const at::Tensor& real);

  [[nodiscard]] const std::vector<at::Tensor>& inputs() const { return inputs_; }
  /// The real tensors behind the inputs, in order; undefined for those added by type whose data nobody gave yet.
  [[nodiscard]] const std::vector<at::Tensor>& real_inputs() const { return real_inputs_; }
  void set_real_input(std::size_t position, at::Tensor data) { real_inputs_[position] = std::move(data); }
  [[nodiscard]] bool has_inference_inputs() const { return has_inference_inputs_; }

  [[nodiscard]] std::optional<at::Tensor> find_input(const at::Tensor& real) const;
  [[nodiscard]] std::optional<at::Tensor> find_constant(const at::Tensor& real) const;
  [[nodiscard]] bool is_input(const at::Tensor& trace_tensor) const;
  /// The real tensor behind an input; undefined for every other trace tensor.
  [[nodiscard]] at::Tensor real_behind(const at::Tensor& trace_tensor) const;
  /// The real tensor behind a constant; undefined for every other trace tensor.
  [[nodiscard]] at::Tensor real_constant(const at::Tensor& trace_tensor) const;
  /// Notes that the trace depends on whether an input is a view.
  void note_view_asked(const at::Tensor& real) { asked_for_view_.insert(real.unsafeGetTensorImpl()); }
  [[nodiscard]] bool is_view_asked(const at::Tensor& real) const {
    return asked_for_view_.contains(real.unsafeGetTensorImpl());
  }
  /// Notes that the trace depends on where in their memory the inputs begin that a trace tensor shows a part of.
  void note_offset_asked(const at::Tensor& trace_tensor);
  [[nodiscard]] bool is_offset_asked(const at::Tensor& real) const {
    return asked_for_offset_.contains(real.unsafeGetTensorImpl());
  }
  /// Whether it is a constant, or shares memory with one.
  [[nodiscard]] bool lies_in_constant(const at::Tensor& trace_tensor) const;

 private:
  struct Constant {
    at::Tensor real;
    at::Tensor tensor;
  };

  at::Tensor add_with_gradient(ir::ValueId value);

  Recording& recording_;
  bool has_inference_inputs_ = false;
  std::vector<at::Tensor> real_inputs_;
  std::vector<at::Tensor> inputs_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> inputs_by_real_;
  std::unordered_set<const c10::TensorImpl*> asked_for_view_;
  std::unordered_set<const c10::TensorImpl*> asked_for_offset_;
  std::unordered_map<const c10::TensorImpl*, Constant> constants_by_real_;
};

}  // namespace thunder::tracer
