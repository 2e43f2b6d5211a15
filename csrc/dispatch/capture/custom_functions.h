#pragma once

#include <string>

#include "dispatch/capture/python_backward.h"
#include "dispatch/capture/source_locator.h"
#include "interpreter/provenance/tracker.h"

namespace thunder::dispatch {

/// When thunder's transforms are PyTorch's own (*live*), and what they do with a `torch.autograd.Function`.
///
/// `grad`, `vjp` and `autocast` record the function inside as a trace, which they transform. Where that is not the same
/// as what PyTorch's do (the function writes to a tensor from around it, keeps a tensor, asks for a gradient itself, a
/// Function brings rules along, …), the program is traced again with the transforms live.
class CustomFunctions {
 public:
  /// `failed` is set to the line of a Function that cannot be transformed.
  CustomFunctions(bool live, SourceLocator& locator, ir::SourceLocation& failed);
  ~CustomFunctions();
  CustomFunctions(const CustomFunctions&) = delete;
  CustomFunctions& operator=(const CustomFunctions&) = delete;

  void add_substitutes(interpreter::TrackerOptions& options, PythonBackwards& backwards);
  [[nodiscard]] bool is_live() const { return live_; }
  /// The trace is to be thrown away, and made again with live transforms. `failed`: it ended with an error.
  [[nodiscard]] bool wants_live(bool failed) const { return !live_ && (wants_live_ || (failed && has_parts_)); }

 private:
  friend class RecordedPart;

  int apply(PyObject* const* arguments);
  int mark_dirty(PyObject* const* arguments, std::size_t count);
  int trace_again();
  void refuse(PyObject* type, const std::string& message);

  CustomFunctions* previous_;
  bool live_;
  bool wants_live_ = false;
  bool has_parts_ = false;
  int parts_ = 0;
  int autocast_parts_ = 0;
  SourceLocator& locator_;
  ir::SourceLocation& failed_;
};

/// Whether transforms are to run as PyTorch's on this thread.
[[nodiscard]] bool transforms_are_live();

/// While alive, what this thread records is a part of a program for a transform.
class RecordedPart {
 public:
  explicit RecordedPart(bool for_autocast);
  ~RecordedPart();
  RecordedPart(const RecordedPart&) = delete;
  RecordedPart& operator=(const RecordedPart&) = delete;
  /// The transform cannot do what PyTorch's does.
  void ask_for_live_transforms();

 private:
  CustomFunctions* program_;
  bool for_autocast_;
};

}  // namespace thunder::dispatch
