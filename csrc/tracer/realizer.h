#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bridge/random.h"
#include "ir/trace.h"
#include "tracer/evaluate.h"

namespace thunder::tracer {

/// Runs a trace in the making on its real inputs, as far as it goes, when the program asks for data. Nothing outside
/// sees it: inputs that an operation writes to are copied first, and the states of random generators are put back each
/// time.
class Realizer {
 public:
  /// Data of these inputs, by position, is not known, nor what is computed from it: a transform replaced them, or will
  /// change what they are used for. With names for messages, which outlive the realizer.
  /// `computed`: values that are known from elsewhere, see `TraceSession`.
  Realizer(const std::map<std::size_t, std::string>& replaced, std::span<const at::Tensor> computed)
      : replaced_(replaced), computed_(computed) {}

  // All throw UserError for a value that is not known.
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
  /// Passes over a symbol that reads what is not known, or draws random numbers behind one that did.
  bool leave_out(const ir::BoundSymbol& symbol);
  [[nodiscard]] const c10::IValue& known(ir::ValueId value) const;
  void run(const ir::Trace& trace, const ir::BoundSymbol& symbol);
  bool run_by_executor(const ir::Trace& trace, const ir::BoundSymbol& symbol);
  bool run_primitive(const ir::Trace& trace, const ir::BoundSymbol& symbol);
  void copy_written(const ir::BoundSymbol& symbol, const c10::FunctionSchema& schema);
  [[nodiscard]] c10::Scalar number(const ir::Argument& argument) const;
  void store(const ir::Argument& result, const c10::IValue& value);
  /// Puts values that are known from elsewhere in the place of what a symbol gave.
  void take_computed(const ir::BoundSymbol& symbol);

  const std::map<std::size_t, std::string>& replaced_;
  std::span<const at::Tensor> computed_;
  std::vector<c10::IValue> values_;
  std::unordered_map<std::uint32_t, const std::string*> unknown_;  ///< values, with the names of the inputs behind
  const std::string* lost_random_ = nullptr;  ///< who would have drawn random numbers before the next one
  std::size_t inputs_known_ = 0;
  std::size_t done_ = 0;                       ///< symbols that have run
  std::unordered_set<std::uint32_t> copied_;   ///< inputs that stand for themselves as copies
  std::optional<bridge::RandomState> random_;  ///< the generators' states after them
};

}  // namespace thunder::tracer
