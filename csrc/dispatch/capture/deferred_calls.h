#pragma once

#include <unordered_map>
#include <vector>

#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure_builder.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// Calls of a program that print, warn or log. Each run makes them after its computation, in order, with what was to be
/// shown at the time of the call.
class DeferredCalls {
 public:
  enum class Kind : std::uint8_t { kPrint, kWarn, kWrite, kFlush, kMayWarn };

  DeferredCalls(tracer::Recorder& recorder, interpreter::Tracker& tracker) : recorder_(recorder), tracker_(tracker) {}

  /// Remembers the streams and the state of `warnings` before the program runs, and enters what can be deferred.
  bool begin();
  /// By the convention of `Observer::before_native_call`; 0: not a call that is deferred.
  int intercept(const interpreter::NativeCall& call, PyObject** result);
  /// Guards which warnings are errors: the program warns, or calls what may.
  void record_error_filters();
  void add_substitutes(interpreter::TrackerOptions& options);
  bool add_effects(interpreter::StructureBuilder& builder);

 private:
  struct Call {
    py::Ref callable;
    py::Ref arguments;
    py::Ref keywords;
    py::Ref stream{};  ///< `sys.stdout` at the time of a `print` without `file`
  };

  void enter(const char* module, const char* path, Kind kind);
  /// The stream that `print` writes to for an argument `file` (null: not given).
  [[nodiscard]] static py::Ref stream_of(PyObject* file);
  /// Whether a stream is `sys.stdout` or `sys.stderr` as they were before the program.
  [[nodiscard]] bool is_standard(PyObject* stream) const;
  [[nodiscard]] bool require_program(const char* what) const;
  /// The object that the deferred call gets for `value`: a copy of a tensor, a number of the trace; otherwise its text.
  py::Ref shown(PyObject* value);
  py::Ref text_of(PyObject* value);
  /// Whether `torch.set_printoptions` is as it was before the program.
  [[nodiscard]] bool prints_tensors_alike() const;
  bool defer(py::Ref callable, py::Ref arguments, py::Ref keywords);
  bool defer_constant(py::Ref callable, py::Ref arguments);
  int print(const interpreter::NativeCall& call);
  /// Gives a `print` the stream that it wrote to, where `sys.stdout` is another one when the program ends. False with
  /// an exception set.
  bool fix_stream(Call& call);
  int warn(const interpreter::NativeCall& call);
  int write(const interpreter::NativeCall& call, PyObject** result);
  int ask(const py::Ref& function, PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result);
  /// Whether a logger that is off for the level of such a method says so, which is guarded; -1 with an exception.
  int is_off(const char* method, PyObject* logger, PyObject* const* arguments, std::size_t count);
  void add_rest(const py::Ref& owner, interpreter::TrackerOptions& options);
  int log(const char* method, PyObject* logger, PyObject* const* arguments, std::size_t count, PyObject* names);

  tracer::Recorder& recorder_;
  interpreter::Tracker& tracker_;
  std::unordered_map<const void*, Kind> kinds_;  ///< by the identity of the C code
  std::vector<Call> calls_;
  py::Ref effects_;  ///< the module thunder._effects
  py::Ref stdout_;
  py::Ref stderr_;
  py::Ref warnings_state_;
  py::Ref print_options_;       ///< before the program began
  bool shows_tensors_ = false;  ///< some call prints or logs a tensor
  py::Ref error_filters_;       ///< which warnings were errors before the program began
};

}  // namespace thunder::dispatch
