#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ir/condition.h"
#include "ir/generalization.h"
#include "ir/trace.h"
#include "tracer/recording_host.h"

namespace thunder::tracer {

/// An argument of an operation with numbers in the place of sizes.
[[nodiscard]] c10::IValue with_numbers(const c10::IValue& value, std::optional<ir::SymbolValues> symbols);
/// The sizes in an argument, also those that are numbers.
[[nodiscard]] ir::Dims sizes_in(const c10::IValue& value);

/// A call of an operation, for all sizes.
struct SizedCall {
  const c10::OperatorHandle& op;
  std::span<const c10::IValue> arguments;
  /// By tensor among the arguments, in order; nullopt: one that is no tensor of the program.
  std::vector<std::optional<ir::TensorType>> types;
  ir::Dims results;  ///< sizes of the results
  ir::Dims strides;  ///< those of tensors among the arguments that are symbols
};

/// Looks for sizes at which an operation does something else than at those that a program is recorded at: where a size
/// is what another one is, or one less, or one more, `reshape` gives a view and not a copy, `cross` finds another
/// dimension, `diagonal` is shorter. Each operation is recorded there, apart from the program.
class SizeProbes {
 public:
  /// Traces are of the family of `blank`, and in lines of `host`.
  SizeProbes(ir::Trace blank, RecordingHost& host) : blank_(std::move(blank)), host_(host) {}

  /// Sizes that the program may be called with, besides those of `fit`.
  using Admits = std::function<bool(ir::SymbolValues symbols)>;
  /// The conditions under which the call does what its trace for all sizes says.
  [[nodiscard]] std::vector<ir::Condition> look_at(const SizedCall& call, ir::SizeFit& fit, const Admits& admits,
                                                   const ir::AreAlike& are_alike);

 private:
  [[nodiscard]] std::optional<ir::Trace> record(const SizedCall& call, ir::SymbolValues symbols) const;
  /// The call at each sample; empty: it is another one at other sizes.
  [[nodiscard]] std::vector<ir::Trace> record_samples(const SizedCall& call, const ir::SizeFit& fit) const;
  /// Whether it is a call that was looked at before.
  [[nodiscard]] bool is_known(const SizedCall& call);

  ir::Trace blank_;
  RecordingHost& host_;
  std::set<std::string> known_;
};

/// The size that a program gave an operation in the place of a tensor: PyTorch's bindings make a tensor with a number
/// of their own and keep the size beside it. Needs Python, which sets it.
extern std::optional<ir::Dim> (*wrapped_size_of)(const at::Tensor& tensor);

}  // namespace thunder::tracer
