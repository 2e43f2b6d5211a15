#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interpreter/provenance/tracker.h"

namespace thunder::dispatch {

/// Settings of PyTorch and of Python's library that are read and set through functions in C: backends, precision,
/// threads, the context of `decimal`. A setting that the program reads is guarded, unless the program has changed it; a
/// setting that it changes it has to put back.
class TorchSettings {
 public:
  /// Before the program runs.
  explicit TorchSettings(interpreter::Tracker& tracker);
  ~TorchSettings() { restore(); }
  TorchSettings(const TorchSettings&) = delete;
  TorchSettings& operator=(const TorchSettings&) = delete;
  /// By the convention of `Observer::before_native_call`.
  int intercept(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
  /// Puts back what the program has changed, and returns how it is read; nullopt when it left all as it was.
  std::optional<std::string> restore();
  /// The program reads or makes a value of this class in C.
  void note_type(const PyTypeObject* type);
  /// Whether the program calls NumPy, whose errors follow settings.
  [[nodiscard]] bool reads_numpy() const { return reads_numpy_; }
  /// The program sets filters of warnings.
  void note_warnings() { sets_warnings_ = true; }

 private:
  struct Before {
    std::size_t setting;
    py::Ref key;  ///< a tuple of strings
    py::Ref value;
  };
  void record_text(const std::vector<PyObject*>& call, const std::string& name, PyObject* text);
  void record_decimal_context();
  /// Guards how NumPy treats floating-point errors, on which its functions depend.
  void record_numpy_errors();
  /// `sys.exc_info()`: where the program handles no exception, it gives the one that the caller handles.
  int read_handled(PyObject* getter, const std::string& name, PyObject** result);
  /// `isinstance(object, abstract_class)` and the like: whether it is False may change with `register`.
  int ask_abstract_class(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
  std::optional<std::string> restore_modules();
  int read(const interpreter::NativeCall& call, PyObject* getter, const std::string& name, PyObject** result);
  [[nodiscard]] bool is_changed(const Before& before) const;
  /// Whether what a getter gives is what the program has set.
  [[nodiscard]] bool is_own(std::size_t setting, const interpreter::NativeCall& call) const;

  interpreter::Tracker& tracker_;
  std::vector<Before> before_;
  py::Ref handled_;               ///< the exception that the caller handles
  py::Ref modules_;               ///< `thunder._settings.StateOfModules`
  std::vector<std::size_t> set_;  ///< those of the table that the program has set
  bool sets_warnings_ = false;    ///< the program
  bool reads_decimal_ = false;    ///< its results depend on the context of `decimal`
  bool reads_numpy_ = false;      ///< its results depend on `numpy.geterr()`
  bool asks_abstract_ = false;    ///< its results depend on what is registered with abstract classes
};

}  // namespace thunder::dispatch
