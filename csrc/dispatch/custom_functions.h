#pragma once

#include <string>

#include "dispatch/source_locator.h"
#include "interpreter/tracker.h"

namespace thunder::dispatch {

/// The `torch.autograd.Function`s of a program, below thunder's transforms.
///
/// A transform records the function inside, and replays the trace: a Function's forward is in it, and its backward
/// where gradients are on, but not what it brings along for forward mode (`jvp`) and for batches (`vmap`). Where that
/// is asked for, the program is traced again with the transforms *live*: they are PyTorch's own then, which run on the
/// tensors of the program and call the Function's methods.
class CustomFunctions {
 public:
  /// `failed` is set to the line of a Function that cannot be transformed.
  CustomFunctions(bool live, SourceLocator& locator, ir::SourceLocation& failed);
  ~CustomFunctions();
  CustomFunctions(const CustomFunctions&) = delete;
  CustomFunctions& operator=(const CustomFunctions&) = delete;

  void add_substitutes(interpreter::TrackerOptions& options);
  /// The trace is to be thrown away, and made again with live transforms.
  [[nodiscard]] bool wants_live() const { return wants_live_; }

 private:
  int apply(PyObject* const* arguments, std::size_t count);
  void refuse(PyObject* type, const std::string& message);

  bool was_live_;
  bool wants_live_ = false;
  SourceLocator& locator_;
  ir::SourceLocation& failed_;
};

/// Whether `vmap`, `jvp` and `autocast` are to run as PyTorch's on this thread.
[[nodiscard]] bool transforms_are_live();

/// While alive, what this thread records is a part of a program for a transform that replays it.
class ReplayedPart {
 public:
  explicit ReplayedPart(std::string transform);
  ~ReplayedPart();
  ReplayedPart(const ReplayedPart&) = delete;
  ReplayedPart& operator=(const ReplayedPart&) = delete;
};

}  // namespace thunder::dispatch
