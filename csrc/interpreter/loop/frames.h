#pragma once

#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/code_data.h"

namespace thunder::interpreter {

/// Adds the current frame to the pending exception's traceback.
void add_traceback(Frame* frame);

#if PY_VERSION_HEX >= 0x030b0000

/// A new frame for a call of `function` (stolen) on this thread's data stack, its locals unset; null, and nothing
/// happened, when the current chunk of the stack has no room. So a frame made here never begins a chunk.
THUNDER_INLINE Frame* push_frame(PyThreadState* tstate, PyFunctionObject* function, PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030c0000
  const int size = code->co_framesize;
#else
  const std::size_t size = static_cast<std::size_t>(code->co_nlocalsplus + code->co_stacksize) + FRAME_SPECIALS_SIZE;
#endif
  if (!_PyThreadState_HasStackSpace(tstate, size)) return nullptr;
  auto* frame = reinterpret_cast<Frame*>(tstate->datastack_top);
  tstate->datastack_top += size;
#if PY_VERSION_HEX >= 0x030c0000
  _PyFrame_Initialize(frame, function, nullptr, code, code->co_nlocalsplus);
#else
  _PyFrame_InitializeSpecials(frame, function, nullptr, code->co_nlocalsplus);
#endif
  return frame;
}

/// Drops what `frame` owns; a frame object that others hold takes it over. The frame is already unlinked.
void clear_frame(Frame* frame);

/// Ends a frame of `push_frame`.
THUNDER_INLINE void pop_frame(PyThreadState* tstate, Frame* frame) {
#if PY_VERSION_HEX >= 0x030d0000
  _PyEval_FrameClearAndPop(tstate, frame);
#else
  clear_frame(frame);
  tstate->datastack_top = reinterpret_cast<PyObject**>(frame);
#endif
}

/// Ends a frame that CPython handed to us: before 3.12 the caller does that.
void end_entry_frame(PyThreadState* tstate, Frame* frame);

/// Counts one Python frame; false with RecursionError. In any case `leave_recursion` follows.
THUNDER_INLINE bool enter_recursion(PyThreadState* tstate) {
#if PY_VERSION_HEX >= 0x030c0000
  if (tstate->py_recursion_remaining-- > 0) [[likely]]
    return true;
  if (tstate->recursion_headroom != 0) return true;
  ++tstate->recursion_headroom;
  PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
  --tstate->recursion_headroom;
  return false;
#else
  if (_Py_EnterRecursiveCallTstate(tstate, "") == 0) [[likely]]
    return true;
  --tstate->recursion_remaining;
  return false;
#endif
}
THUNDER_INLINE void leave_recursion(PyThreadState* tstate) {
#if PY_VERSION_HEX >= 0x030c0000
  ++tstate->py_recursion_remaining;
#else
  ++tstate->recursion_remaining;
#endif
}

/// Room for finalizers that run while a frame ends at the recursion limit.
class ClearingScope {
 public:
  THUNDER_INLINE explicit ClearingScope(PyThreadState* tstate) : tstate_(tstate) { --counter(); }
  THUNDER_INLINE ~ClearingScope() { ++counter(); }
  ClearingScope(const ClearingScope&) = delete;
  ClearingScope& operator=(const ClearingScope&) = delete;

 private:
  THUNDER_INLINE int& counter() {
#if PY_VERSION_HEX >= 0x030c0000
    return tstate_->c_recursion_remaining;
#else
    return tstate_->recursion_remaining;
#endif
  }
  PyThreadState* tstate_;
};

/// The entry of one activation of the loop in CPython's thread state.
class Activation {
 public:
  THUNDER_INLINE Activation(PyThreadState* tstate, Frame* frame) : tstate_(tstate) {
#if PY_VERSION_HEX >= 0x030d0000
    frame->previous = tstate->current_frame;
    tstate->current_frame = frame;
#else
    cframe_.previous = tstate->cframe;
    cframe_.current_frame = frame;
#if PY_VERSION_HEX < 0x030c0000
    cframe_.use_tracing = tstate->cframe->use_tracing;
    frame->is_entry = true;
#endif
    frame->previous = tstate->cframe->current_frame;
    tstate->cframe = &cframe_;
#endif
  }
  THUNDER_INLINE void set_current(Frame* frame) {
#if PY_VERSION_HEX >= 0x030d0000
    tstate_->current_frame = frame;
#else
    cframe_.current_frame = frame;
#endif
  }
  THUNDER_INLINE void leave() {
#if PY_VERSION_HEX < 0x030d0000
    tstate_->cframe = cframe_.previous;
#if PY_VERSION_HEX < 0x030c0000
    tstate_->cframe->use_tracing = cframe_.use_tracing;
#endif
#endif
  }

 private:
  PyThreadState* tstate_;
#if PY_VERSION_HEX < 0x030d0000
  _PyCFrame cframe_;
#endif
};

/// Marks the generator of `frame`, which leaves by `yield`, as suspended; `delegating`: inside `yield from` or `await`.
THUNDER_INLINE void suspend_generator([[maybe_unused]] PyThreadState* tstate, Frame* frame,
                                      [[maybe_unused]] bool delegating) {
  PyGenObject* generator = _PyFrame_GetGenerator(frame);
#if PY_VERSION_HEX >= 0x030d0000
  generator->gi_frame_state = static_cast<signed char>(FRAME_SUSPENDED + (delegating ? 1 : 0));
#else
  generator->gi_frame_state = FRAME_SUSPENDED;
#endif
#if PY_VERSION_HEX >= 0x030c0000
  tstate->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
#endif
}

#endif

}  // namespace thunder::interpreter
