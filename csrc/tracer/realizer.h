#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "ir/trace.h"
#include "tracer/evaluate.h"

namespace thunder::tracer {

/// Runs a trace in the making on its real inputs, as far as it goes, when the program asks for data. Nothing outside
/// sees it: inputs that an operation writes to are copied first, and the CPU generator's state is put back each time.
class Realizer {
 public:
  [[nodiscard]] at::Tensor value(const ir::Trace& trace, std::span<const at::Tensor> inputs, ir::ValueId value);
  /// The one element of a value.
  [[nodiscard]] c10::Scalar read(const ir::Trace& trace, std::span<const at::Tensor> inputs, ir::ValueId value);
  /// A copy of a value that nothing recorded writes to.
  [[nodiscard]] at::Tensor contents(const ir::Trace& trace, std::span<const at::Tensor> inputs, ir::ValueId value);
  /// Metadata of the results of a call on trace tensors that stand for `values`, in order.
  [[nodiscard]] ResultTypes infer(const ir::Trace& trace, std::span<const at::Tensor> inputs,
                                  const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                  std::span<const ir::ValueId> values);

 private:
  void advance(const ir::Trace& trace, std::span<const at::Tensor> inputs);
  void run(const ir::Trace& trace, const ir::BoundSymbol& symbol);
  bool run_by_executor(const ir::Trace& trace, const ir::BoundSymbol& symbol);
  bool run_primitive(const ir::Trace& trace, const ir::BoundSymbol& symbol);
  void copy_written_statistics(const ir::BoundSymbol& symbol);
  [[nodiscard]] c10::Scalar number(const ir::Argument& argument) const;
  void store(const ir::Argument& result, const c10::IValue& value);

  std::vector<c10::IValue> values_;
  std::size_t inputs_known_ = 0;
  std::size_t done_ = 0;                      ///< symbols that have run
  std::unordered_set<std::uint32_t> copied_;  ///< inputs that stand for themselves as copies
  std::optional<at::Tensor> random_;          ///< the generator's state after them
};

}  // namespace thunder::tracer
