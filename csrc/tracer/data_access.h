#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ir/trace.h"
#include "tracer/data_sizes.h"
#include "tracer/evaluate.h"
#include "tracer/numbers.h"
#include "tracer/realizer.h"

namespace thunder::tracer {

class Recording;
class TensorTable;

/// The data that the program reads while it is traced, found by running the trace so far on its real inputs; and the
/// checks that tie the trace to what was found.
class DataAccess {
 public:
  DataAccess(Recording& recording, TensorTable& tensors) : recording_(recording), tensors_(tensors) {}

  /// Refuse programs that read the data of tensors, instead of specializing on what they read.
  bool full_graph = false;
  /// Names of inputs, by position, that transforms replaced or added others beside: what the trace so far computes
  /// from them is not what the transformed one will.
  std::map<std::size_t, std::string> replaced_inputs;

  /// The data of a trace tensor.
  [[nodiscard]] at::Tensor data_of(const at::Tensor& trace_tensor);
  /// A real copy of a tensor of which the program looks at all elements. What follows holds for these contents only.
  [[nodiscard]] at::Tensor contents_of(const at::Tensor& trace_tensor);
  /// An integer tensor's contents in its place; any other argument as it is.
  [[nodiscard]] c10::IValue with_contents(const c10::IValue& argument);

  /// The one element of a trace tensor; what the trace does with it holds for any number.
  [[nodiscard]] Number item(const at::Tensor& trace_tensor);
  /// A number of Python that `input` stands for, a double or an int64 on the CPU.
  [[nodiscard]] Number given(const at::Tensor& input, const c10::Scalar& number);
  /// See `bridge::compute_number`.
  [[nodiscard]] std::optional<Number> compute(std::string_view operation, const NumberOperand& left,
                                              const NumberOperand& right);
  /// The program looks at a number: what follows holds for this one only.
  void observe(const Number& number);
  /// Throws where a number is none of this trace: it is another recorder's, which recorded something else.
  void require_known(const NumberOperand& operand) const;
  /// The one element of a tensor that the program looks at.
  [[nodiscard]] c10::Scalar read_number(const at::Tensor& tensor);
  /// Whether the one element of a tensor is true to Python, which the program looks at.
  [[nodiscard]] bool read_truth(const at::Tensor& tensor);
  /// A trace tensor that stands for a number among the arguments of operations.
  [[nodiscard]] at::Tensor number_tensor(ir::ValueId number);
  /// The number that a tensor stands for, as one that a dtype can hold, of which the trace makes sure (`prims.number`);
  /// any other tensor as it is. Undefined: it cannot hold it, and eager raises.
  [[nodiscard]] at::Tensor held_number(const at::Tensor& tensor, at::ScalarType dtype);
  /// As `held_number`, for a number that is not negative.
  [[nodiscard]] at::Tensor natural_number(const at::Tensor& tensor);
  /// The positions of what a mask shows, one tensor for each of its dimensions. The same mask gives the same ones.
  [[nodiscard]] std::vector<at::Tensor> positions_of(const at::Tensor& mask);
  /// For parts of the program, where it is a constant: a number that the program looks at.
  [[nodiscard]] at::Tensor constant_of(ir::ValueId number);

  /// Records a check of another trace (`prims.check_number`, `prims.check_shape`) again, of `trace_tensor`.
  void repeat_check(const ir::BoundSymbol& check, const at::Tensor& trace_tensor);
  /// Records `prims.item` or `prims.number` of another trace again; numbers are what `number_tensor` gives.
  [[nodiscard]] at::Tensor repeat_number(const ir::BoundSymbol& symbol,
                                         const std::function<at::Tensor(ir::ValueId)>& trace_tensor_of);
  /// Records checks that results have the shapes that they have here.
  void check_shapes(std::span<const c10::IValue> results);
  [[nodiscard]] ResultTypes infer_by_running(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  /// Operations that `infer_by_running` was asked about, in order.
  [[nodiscard]] const std::vector<DataSized>& data_sized() const { return data_sized_; }
  /// Tells in the place of a run, for the recorder of a program at other sizes, which has no data.
  std::function<ResultTypes(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments)> infer_elsewhere;
  /// Data that `item` and `contents_of` read, in order, and functions that tell them in the place of a run.
  [[nodiscard]] const std::vector<c10::Scalar>& numbers_read() const { return numbers_read_; }
  [[nodiscard]] const std::vector<at::Tensor>& contents_read() const { return contents_read_; }
  std::function<c10::Scalar()> read_elsewhere;
  std::function<at::Tensor()> look_elsewhere;

 private:
  struct KnownNumber {
    c10::Scalar value;
    at::Tensor tensor;                   ///< stands for it; made when it is needed
    at::ScalarType among = at::kDouble;  ///< a dtype of which it is an element
  };

  /// Runs the trace as it is now; has the data of all inputs.
  Realizer& realizer();
  void require_data() const;
  Number add_number(const ir::Operator* op, ir::ArgumentList arguments, const c10::Scalar& value);
  [[nodiscard]] at::Tensor checked_number(const at::Tensor& tensor, std::string_view check);
  void add_check(const ir::Operator* op, ir::ValueId value, ir::Argument expected);

  Recording& recording_;
  TensorTable& tensors_;
  std::unique_ptr<Realizer> realizer_;
  std::vector<DataSized> data_sized_;
  std::vector<c10::Scalar> numbers_read_;
  std::vector<at::Tensor> contents_read_;
  std::size_t edits_ = 0;  ///< the trace's edits when the realizer began: it counts symbols
  std::unordered_map<std::uint32_t, KnownNumber> numbers_;                ///< by value
  std::unordered_map<std::uint32_t, std::vector<at::Tensor>> positions_;  ///< by mask
};

}  // namespace thunder::tracer
