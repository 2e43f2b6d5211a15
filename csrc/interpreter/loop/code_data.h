#pragma once

#include "interpreter/python/cpython_compat.h"

#include <memory>
#include <vector>

namespace thunder::interpreter {

/// One row of a code object's exception table, in code units.
struct ExceptionRegion {
  int start;
  int end;
  int handler;
  int depth;
  bool push_last_instruction;
};

/// The interpreter's data for a code object: a private copy of its bytecode, whose inline cache units are ours to use,
/// at the same offsets as CPython's. Lives as long as the code object.
class CodeData {
 public:
  /// Null with an exception set when there is no memory.
  static CodeData* of(PyCodeObject* code) {
    void* data = get_code_slot(code, slot_);
    return data != nullptr ? static_cast<CodeData*>(data) : create(code);
  }
  /// Reserves the place in code objects; 0 or -1 with an exception.
  static int prepare();

  [[nodiscard]] const Instruction* instructions() const { return instructions_.get(); }
  /// The innermost region around `offset`, or null.
  [[nodiscard]] const ExceptionRegion* find_region(int offset) const;
  /// Whether a call may run in the caller's evaluation loop with its positional arguments copied into the new frame.
  [[nodiscard]] bool is_simple_function() const { return simple_function_; }

 private:
  static CodeData* create(PyCodeObject* code);
  void read_exception_table(PyCodeObject* code);

  static inline Py_ssize_t slot_ = -1;
  std::unique_ptr<Instruction[]> instructions_;
  std::vector<ExceptionRegion> regions_;
  bool simple_function_ = false;
};

}  // namespace thunder::interpreter
