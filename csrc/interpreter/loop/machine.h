#pragma once

#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/code_data.h"
#include "interpreter/loop/observer.h"

namespace thunder::interpreter {

/// The loop's next step after a handler.
enum class Step {
  kNext,     ///< the next instruction
  kError,    ///< an exception is pending: add this frame to its traceback, then unwind
  kUnwind,   ///< an exception that was raised before is pending: unwind
  kCall,     ///< go on in `callee`
  kReturn,   ///< leave the frame with `result`
  kYield,    ///< suspend the frame with `result`
  kPending,  ///< a signal, a pending call or another thread waits
};

/// The registers of the loop. Always inlined into it, so that none of this is memory: its address must never escape.
struct Machine {
  PyThreadState* tstate;
  Frame* frame;
  const Instruction* pc;  ///< the next instruction, behind this one's cache units
  PyObject** sp;          ///< one above the topmost value
  PyObject** locals;
  PyObject* names;
  PyObject* constants;
  CodeData* data;
  PyObject* keyword_names;  ///< names of the next call's keyword arguments (borrowed), or null
  PyObject* result;
  Frame* callee;
  int unwind_offset;  ///< where the unwound exception counts as raised, or -1 for the current instruction
  Observer* observer;

  THUNDER_INLINE void push(PyObject* value) { *sp++ = value; }
  THUNDER_INLINE PyObject* pop() { return *--sp; }
  /// `peek(1)` is the topmost value.
  THUNDER_INLINE PyObject*& peek(int depth) { return sp[-depth]; }
  THUNDER_INLINE PyObject*& top() { return sp[-1]; }
  THUNDER_INLINE void drop(int count) {
    while (count-- > 0) Py_XDECREF(*--sp);
  }
  THUNDER_INLINE PyObject* name(int index) const { return PyTuple_GET_ITEM(names, index); }
  THUNDER_INLINE PyObject* constant(int index) const { return PyTuple_GET_ITEM(constants, index); }
  /// Replaces the topmost value, which is released after the replacement; null means an error.
  THUNDER_INLINE Step replace_top(PyObject* value) {
    PyObject* old = sp[-1];
    if (value == nullptr) {
      --sp;
      Py_DECREF(old);
      return Step::kError;
    }
    sp[-1] = value;
    Py_DECREF(old);
    return Step::kNext;
  }
  /// Pushes a new reference; null means an error.
  THUNDER_INLINE Step push_result(PyObject* value) {
    if (value == nullptr) return Step::kError;
    push(value);
    return Step::kNext;
  }
  THUNDER_INLINE void set_local(int index, PyObject* value) {
    PyObject* old = locals[index];
    locals[index] = value;
    Py_XDECREF(old);
  }
};

#if PY_VERSION_HEX >= 0x030d0000
#define THUNDER_FRAME_INSTRUCTION instr_ptr
#elif PY_VERSION_HEX >= 0x030b0000
#define THUNDER_FRAME_INSTRUCTION prev_instr
#endif

#ifdef THUNDER_FRAME_INSTRUCTION
/// The offset of the instruction that the frame shows to tracebacks.
THUNDER_INLINE std::ptrdiff_t current_offset(const Machine& m) {
  return m.frame->THUNDER_FRAME_INSTRUCTION - _PyCode_CODE(code_of(m.frame));
}
THUNDER_INLINE void set_current_offset(Machine& m, std::ptrdiff_t offset) {
  m.frame->THUNDER_FRAME_INSTRUCTION = _PyCode_CODE(code_of(m.frame)) + offset;
}
#endif

/// A handler: executes one instruction whose caches `m.pc` has already passed.
#define THUNDER_HANDLER(name) \
  template <bool kObserved>   \
  THUNDER_INLINE Step name([[maybe_unused]] Machine& m, [[maybe_unused]] int argument)

/// Does the step of an instruction. The observer may throw, and no exception of C++ may pass through the frames of
/// CPython that lie in between: it becomes one of Python.
#define THUNDER_STEP(handler)                             \
  [&]() __attribute__((always_inline)) {                  \
    if constexpr (kObserved) {                            \
      try {                                               \
        return handler<true>(m, argument);                \
      } catch (...) {                                     \
        current_context->observer->translate_exception(); \
        return Step::kError;                              \
      }                                                   \
    } else {                                              \
      return handler<false>(m, argument);                 \
    }                                                     \
  }()

}  // namespace thunder::interpreter
