#pragma once

#include <Python.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "dispatch/call/size_history.h"
#include "dispatch/capture/dynamic_arguments.h"
#include "dispatch/numbers/number_trace.h"
#include "ir/trace.h"
#include "tracer/recorder.h"
#include "tracer/size_shadows.h"

namespace thunder::dispatch {

/// Numbers from outside that are inputs of a trace, as other calls have other ones: an int is a symbol, a float a
/// number of the trace. So is an int that programs needed as a number where it was a symbol (`0.99**step`).
class NumberInputs {
 public:
  /// `history`: null, if nothing is made of it. `fixed`: numbers that are constants, though they change. `seen` gets
  /// the ints that the program reads.
  NumberInputs(tracer::Recorder& recorder, std::shared_ptr<NumberTrace> numbers, DynamicArguments& dynamic,
               std::set<std::string> fixed, SizeHistory::Shapes& seen)
      : recorder_(recorder), numbers_(std::move(numbers)), dynamic_(dynamic), fixed_(std::move(fixed)), seen_(seen) {}

  /// The tensor that is to be an input for a number that was found at `path`; undefined: the number is a constant.
  /// `shadows` is null where there are no symbols.
  [[nodiscard]] at::Tensor input_for(PyObject* number, const std::string& path, const SizeHistory* history,
                                     const tracer::SizeShadows* shadows);
  /// Whether numbers in a tuple or list that was found at `path`, or in a tuple in it, are inputs; `depth`: how many
  /// sequences it is in.
  [[nodiscard]] bool are_inputs(PyObject* sequence, const std::string& path, const SizeHistory* history,
                                const tracer::SizeShadows* shadows, int depth = 0);
  /// Whether another function of the same code was found at `path` before.
  [[nodiscard]] bool has_other_function(PyObject* function, const std::string& path, const SizeHistory* history);
  /// The object that the program sees for a number for which the tensor `real` stands (new reference), or null with an
  /// exception set.
  PyObject* note(PyObject* real, const at::Tensor& traced, const std::string& path, tracer::SizeShadows* shadows);

  [[nodiscard]] bool is_int(PyObject* real) const { return ints_.contains(real); }
  /// Whether the trace is tied to numbers that are inputs, which are constants in the next attempt: a specialization
  /// for each is what a check would be, too. What the program only compares is checked.
  [[nodiscard]] bool needs_constants(const ir::Trace& trace);
  /// Numbers that are constants in the next attempt; all, if this one `failed` for no other reason.
  [[nodiscard]] std::set<std::string> constants(bool failed) const;
  /// The trace is kept.
  void remember(SizeHistory& history) const;

 private:
  /// Whether a number had another value, told by its `code`, when it was found at `path` before.
  [[nodiscard]] bool has_changed(const std::string& path, std::int64_t code, const SizeHistory& history);

  tracer::Recorder& recorder_;
  std::shared_ptr<NumberTrace> numbers_;
  DynamicArguments& dynamic_;
  std::set<std::string> fixed_;
  bool finds_fixed_ = false;  ///< in this attempt
  SizeHistory::Shapes& seen_;
  SizeHistory::Shapes numbers_seen_;  ///< and functions; each by a code that differs where they do
  std::set<PyObject*> ints_;          ///< tensors whose sizes stand for ints
  std::map<std::string, ir::ValueId> numbers_of_inputs_;
};

}  // namespace thunder::dispatch
