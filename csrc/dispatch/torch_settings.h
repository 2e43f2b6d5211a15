#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interpreter/tracker.h"

namespace thunder::dispatch {

/// Settings of PyTorch that Python reads and sets through functions in C: backends, precision, threads. What the
/// program reads of them is guarded, unless it has changed it itself; what it changes it has to put back.
class TorchSettings {
 public:
  /// Before the program runs.
  explicit TorchSettings(interpreter::Tracker& tracker);
  ~TorchSettings() { restore(); }
  TorchSettings(const TorchSettings&) = delete;
  TorchSettings& operator=(const TorchSettings&) = delete;
  /// By the convention of `Observer::before_native_call`.
  int intercept(const interpreter::NativeCall& call, PyObject** result);
  /// Puts back what the program has changed, and returns how it is read; nullopt when it left all as it was.
  std::optional<std::string> restore();

 private:
  struct Before {
    std::size_t setting;
    py::Ref value;
  };
  int read(const interpreter::NativeCall& call, PyObject* getter, const std::string& name, PyObject** result);
  [[nodiscard]] bool is_changed(const Before& before) const;
  /// Whether what a getter gives is what the program has set.
  [[nodiscard]] bool is_own(std::size_t setting, const interpreter::NativeCall& call) const;

  interpreter::Tracker& tracker_;
  std::vector<Before> before_;
  bool has_set_ = false;  ///< the program
};

}  // namespace thunder::dispatch
