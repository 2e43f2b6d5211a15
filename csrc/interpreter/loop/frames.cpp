#include "interpreter/loop/frames.h"

#include <cstring>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030d0000

namespace {

/// Moves `frame` into the frame object that outlives it, as CPython does when a traceback or a closure holds it.
void move_into_object(PyFrameObject* object, Frame* frame) {
  // Asked before the frame moves: the link to the caller is then still there.
  PyFrameObject* back = PyFrame_GetBack(object);
  const auto size = reinterpret_cast<char*>(&frame->localsplus[frame->stacktop]) - reinterpret_cast<char*>(frame);
  std::memcpy(static_cast<void*>(object->_f_frame_data), frame, static_cast<std::size_t>(size));
  auto* moved = reinterpret_cast<Frame*>(object->_f_frame_data);
  object->f_frame = moved;
  moved->owner = FRAME_OWNED_BY_FRAME_OBJECT;
  if (_PyFrame_IsIncomplete(moved)) moved->prev_instr = _PyCode_CODE(moved->f_code) + moved->f_code->_co_firsttraceable;
  object->f_back = back;
  moved->previous = nullptr;
  if (!PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(object))) PyObject_GC_Track(object);
}

void clear_frame_parts(Frame* frame) {
  for (int i = 0; i < frame->stacktop; ++i) Py_XDECREF(frame->localsplus[i]);
  Py_XDECREF(frame->f_locals);
  Py_DECREF(function_of(frame));
  Py_DECREF(frame->f_code);
}

}  // namespace

void clear_frame(Frame* frame) {
  if (frame->frame_obj != nullptr) {
    PyFrameObject* object = frame->frame_obj;
    frame->frame_obj = nullptr;
    if (Py_REFCNT(object) > 1) {
      move_into_object(object, frame);
      Py_DECREF(object);
      return;
    }
    Py_DECREF(object);
  }
  clear_frame_parts(frame);
}

#endif

#if PY_VERSION_HEX >= 0x030d0000

void end_entry_frame(PyThreadState* tstate, Frame* frame) { _PyEval_FrameClearAndPop(tstate, frame); }

#elif PY_VERSION_HEX >= 0x030c0000

namespace {

/// Gives back the frame's room on the data stack, and its chunk if it began one.
void release_room(PyThreadState* tstate, Frame* frame) {
  auto** base = reinterpret_cast<PyObject**>(frame);
  _PyStackChunk* chunk = tstate->datastack_chunk;
  if (base != &chunk->data[0]) {
    tstate->datastack_top = base;
    return;
  }
  _PyStackChunk* previous = chunk->previous;
  tstate->datastack_top = &previous->data[previous->top];
  tstate->datastack_chunk = previous;
  tstate->datastack_limit = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(previous) + previous->size);
  PyObjectArenaAllocator arena;
  PyObject_GetArenaAllocator(&arena);
  arena.free(arena.ctx, chunk, chunk->size);
}

}  // namespace

void end_entry_frame(PyThreadState* tstate, Frame* frame) {
  if (frame->owner != FRAME_OWNED_BY_GENERATOR) {
    clear_frame(frame);
    release_room(tstate, frame);
    return;
  }
  PyGenObject* generator = _PyFrame_GetGenerator(frame);
  generator->gi_frame_state = FRAME_CLEARED;
  tstate->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
  // A generator keeps its code for `gi_code`.
  Py_INCREF(frame->f_code);
  clear_frame(frame);
  frame->previous = nullptr;
}

#elif PY_VERSION_HEX >= 0x030b0000

void end_entry_frame(PyThreadState* /*tstate*/, Frame* /*frame*/) {}

#endif

void add_traceback(Frame* frame) {
#if PY_VERSION_HEX >= 0x030b0000
  if (_PyFrame_IsIncomplete(frame)) return;
  PyFrameObject* object = PyEval_GetFrame();
#else
  PyFrameObject* object = frame;
#endif
  if (object != nullptr) PyTraceBack_Here(object);
}

}  // namespace thunder::interpreter
