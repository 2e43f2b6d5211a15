#include "interpreter/loop/eval.h"

#if PY_VERSION_HEX >= 0x030b0000

#include <array>

#include "interpreter/loop/exceptions.h"
#include "interpreter/loop/frames.h"
#include "interpreter/loop/handlers_attributes.h"
#include "interpreter/loop/handlers_calls.h"
#include "interpreter/loop/handlers_containers.h"
#include "interpreter/loop/handlers_control.h"
#include "interpreter/loop/handlers_exceptions.h"
#include "interpreter/loop/handlers_operators.h"
#include "interpreter/loop/handlers_statements.h"
#include "interpreter/loop/handlers_values.h"
#include "interpreter/loop/native_evaluation.h"

namespace thunder::interpreter {

namespace {

/// An EXTENDED_ARG prefixes the next instruction's argument: done by the loop itself.
THUNDER_HANDLER(extended_argument) { return Step::kNext; }

/// Loads the registers from `m.frame`; `after_call`: a call that this loop executed has ended.
THUNDER_INLINE bool load_registers(Machine& m, [[maybe_unused]] bool after_call) {
  PyCodeObject* code = code_of(m.frame);
  m.data = CodeData::of(code);
  if (m.data == nullptr) return false;
  m.names = code->co_names;
  m.constants = code->co_consts;
  m.locals = m.frame->localsplus;
#if PY_VERSION_HEX >= 0x030d0000
  m.pc = m.data->instructions() + current_offset(m) + (after_call ? m.frame->return_offset : 0);
#else
  m.pc = m.data->instructions() + current_offset(m) + 1;
#endif
  m.sp = m.locals + m.frame->stacktop;
  m.frame->stacktop = -1;
  return true;
}

/// Has the frame show the call that it waits for, and remember where to go on.
THUNDER_INLINE void save_call(Machine& m) {
#if PY_VERSION_HEX >= 0x030d0000
  m.frame->return_offset = static_cast<std::uint16_t>(m.pc - m.data->instructions() - current_offset(m));
#else
  set_current_offset(m, m.pc - 1 - m.data->instructions());
#endif
}

/// Has the frame of a generator show where it goes on.
THUNDER_INLINE void save_yield([[maybe_unused]] Machine& m) {
#if PY_VERSION_HEX >= 0x030d0000
  set_current_offset(m, m.pc - m.data->instructions());
#endif
}

/// The offset at which an exception thrown into a suspended generator counts as raised.
THUNDER_INLINE int thrown_offset(const Machine& m) {
#if PY_VERSION_HEX >= 0x030d0000
  return static_cast<int>(current_offset(m)) - 1;
#else
  return static_cast<int>(current_offset(m));
#endif
}

THUNDER_INLINE void save_stack(Machine& m) { m.frame->stacktop = static_cast<int>(m.sp - m.locals); }

/// Prepares the stack and the exception for the handler of the pending exception; false when the frame has none.
bool unwind_to_handler(Frame* frame, const CodeData& data, int offset, PyObject*** stack_pointer,
                       const Instruction** pc) {
  PyCodeObject* code = code_of(frame);
  const ExceptionRegion* region = data.find_region(offset);
  PyObject** stack_base = frame->localsplus + code->co_nlocalsplus;
  PyObject** new_top = stack_base + (region != nullptr ? region->depth : 0);
  PyObject** sp = *stack_pointer;
  while (sp > new_top) {
    PyObject* value = *--sp;
    Py_XDECREF(value);
  }
  if (region != nullptr) {
    if (region->push_last_instruction) {
      const auto shown = static_cast<long>(frame->THUNDER_FRAME_INSTRUCTION - _PyCode_CODE(code));
      *sp++ = PyLong_FromLong(shown);
    }
    *sp++ = take_exception();
    *pc = data.instructions() + region->handler;
  }
  *stack_pointer = sp;
  return region != nullptr;
}

#define THUNDER_DISPATCH()                                \
  do {                                                    \
    set_current_offset(m, m.pc - m.data->instructions()); \
    argument = m.pc->argument;                            \
    goto* targets[m.pc->opcode];                          \
  } while (false)

#define THUNDER_FOLLOW(step) \
  switch (step) {            \
    case Step::kNext:        \
      THUNDER_DISPATCH();    \
    case Step::kError:       \
      goto failed;           \
    case Step::kUnwind:      \
      goto unwind;           \
    case Step::kCall:        \
      goto call_frame;       \
    case Step::kReturn:      \
      goto return_frame;     \
    case Step::kYield:       \
      goto yield_frame;      \
    case Step::kPending:     \
      goto pending;          \
  }

/// The loop. Frames that it entered itself end in it; `entry` ends it.
template <bool kObserved>
PyObject* run(PyThreadState* tstate, Frame* const entry, int throwing) {
  static std::array<const void*, 256> targets{};
  if (targets[0] == nullptr) [[unlikely]] {
    targets.fill(&&unknown_opcode);
#define THUNDER_OPCODE(row, handler, caches) targets[row] = &&target_##row;
#include "interpreter/loop/opcodes.h"
  }

  Activation activation(tstate, entry);
  Machine m{};
  m.tstate = tstate;
  m.frame = entry;
  m.unwind_offset = -1;
  if constexpr (kObserved) m.observer = current_context->observer;
  int argument = 0;

  if (throwing != 0) {
    if (!enter_recursion(tstate) || !load_registers(m, false)) goto leave_frame;
    m.unwind_offset = thrown_offset(m);
    goto error;
  }
start_frame:
  if (!enter_recursion(tstate) || !load_registers(m, false)) goto leave_frame;
  THUNDER_DISPATCH();

#define THUNDER_OPCODE(row, handler, caches)              \
  target_##row : m.pc += 1 + caches;                      \
  if constexpr (row == EXTENDED_ARG) {                    \
    set_current_offset(m, m.pc - m.data->instructions()); \
    argument = (argument << 8) | m.pc->argument;          \
    goto* targets[m.pc->opcode];                          \
  } else {                                                \
    THUNDER_FOLLOW(THUNDER_STEP(handler))                 \
  }
#include "interpreter/loop/opcodes.h"

unknown_opcode:
  PyErr_Format(PyExc_SystemError, "thunder.interpreter: unknown opcode %d", m.pc->opcode);
  goto error;

pending:
  if (handle_pending(tstate) < 0) goto error;
  THUNDER_DISPATCH();

failed:
  if constexpr (kObserved) m.observer->notice_failure();
error:
  m.keyword_names = nullptr;
  add_traceback(m.frame);
unwind:
  {
    const int offset = m.unwind_offset >= 0 ? m.unwind_offset : static_cast<int>(current_offset(m));
    m.unwind_offset = -1;
    PyObject** sp = m.sp;
    const Instruction* pc = m.pc;
    const bool handled = unwind_to_handler(m.frame, *m.data, offset, &sp, &pc);
    m.sp = sp;
    m.pc = pc;
    if (handled) {
      if constexpr (kObserved) m.observer->notice_handler(sp[-1]);
      THUNDER_DISPATCH();
    }
    save_stack(m);
    goto leave_frame;
  }

call_frame:
  save_stack(m);
  save_call(m);
  m.callee->previous = m.frame;
  m.frame = m.callee;
  activation.set_current(m.frame);
  goto start_frame;

leave_frame:
  m.result = nullptr;
  goto end_frame;
return_frame:
  save_stack(m);
end_frame:
  {
    leave_recursion(tstate);
    Frame* dying = m.frame;
    activation.set_current(dying->previous);
    if (dying == entry) {
      {
        const ClearingScope clearing(tstate);
        end_entry_frame(tstate, dying);
      }
      activation.leave();
      return m.result;
    }
    m.frame = dying->previous;
    {
      const ClearingScope clearing(tstate);
      pop_frame(tstate, dying);
    }
    if (!load_registers(m, true)) goto leave_frame;
    if (m.result == nullptr) goto error;
    m.push(m.result);
    THUNDER_DISPATCH();
  }

yield_frame:
  save_stack(m);
  save_yield(m);
  suspend_generator(tstate, m.frame, argument != 0);
  leave_recursion(tstate);
#if PY_VERSION_HEX >= 0x030c0000
  activation.set_current(m.frame->previous);
  m.frame->previous = nullptr;
#endif
  activation.leave();
  return m.result;
}

/// Whether `frame` is about to make its generator: CPython's own loop does that, and runs none of the body.
bool makes_generator(const Frame* frame) {
  constexpr int kGenerator = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  return (code_of(frame)->co_flags & kGenerator) != 0 && frame->owner != FRAME_OWNED_BY_GENERATOR;
}

PyObject* make_generator(PyThreadState* tstate, Frame* frame) {
#if PY_VERSION_HEX >= 0x030c0000
  return _PyEval_EvalFrameDefault(tstate, frame, 0);
#else
  const auto tracing = tstate->cframe->use_tracing;
  tstate->cframe->use_tracing = 0;
  PyObject* generator = _PyEval_EvalFrameDefault(tstate, frame, 0);
  tstate->cframe->use_tracing = tracing;
  return generator;
#endif
}

/// Leaves a frame that has not begun, with the pending exception.
PyObject* refuse_frame(PyThreadState* tstate, Frame* frame) {
  end_entry_frame(tstate, frame);
  return nullptr;
}

bool has_defaults(PyObject* function) {
  const auto* object = reinterpret_cast<PyFunctionObject*>(function);
  return object->func_defaults != nullptr || object->func_kwdefaults != nullptr;
}

/// Tells the observer about a frame that C code or a generator's resumption entered, and asks how its code is treated.
/// `is_ours`: the observer has made the call itself. False with an exception set.
bool announce_frame(Context& context, Frame* frame, Treatment& treatment, bool& is_ours) {
  PyObject* function = reinterpret_cast<PyObject*>(function_of(frame));
  if (context.announced == function) {
    context.announced = nullptr;
    is_ours = true;
    return !has_defaults(function) || observed_arguments(*context.observer, frame->localsplus, code_of(frame));
  }
  if (frame->owner != FRAME_OWNED_BY_GENERATOR) {
    PyObject* result = nullptr;
    const int status = context.observer->before_python_call(function, nullptr, 0, nullptr, &result);
    Py_XDECREF(result);
    if (status == 0 && code_of(frame)->co_argcount > 0 && frame->localsplus[0] != nullptr) {
      context.observer->enter_method(code_of(frame), frame->localsplus,
                                     static_cast<std::size_t>(code_of(frame)->co_argcount));
    }
    if (status < 0 || !observed_arguments(*context.observer, frame->localsplus, code_of(frame))) return false;
  }
  treatment = context.observer->treatment(code_of(frame));
  return true;
}

/// Evaluates a frame that C code or a generator's resumption entered.
PyObject* evaluate_observed(PyThreadState* tstate, Frame* frame, int throwing) {
  Context& context = *current_context;
  Treatment treatment{};
  bool is_ours = false;
  try {
    if (!announce_frame(context, frame, treatment, is_ours)) return refuse_frame(tstate, frame);
  } catch (...) {
    context.observer->translate_exception();
    return refuse_frame(tstate, frame);
  }
  if (is_native(treatment)) {
    const NativeFunctionScope native(treatment);
    return evaluate_natively(tstate, frame, throwing);
  }
  if (makes_generator(frame)) return make_generator(tstate, frame);
  if (is_ours) return run<true>(tstate, frame, throwing);
  const py::Ref function = py::Ref::share(reinterpret_cast<PyObject*>(function_of(frame)));
  const py::Ref self = py::Ref::share(code_of(frame)->co_argcount > 0 ? frame->localsplus[0] : nullptr);
  PyObject* result = run<true>(tstate, frame, throwing);
  return result == nullptr ? nullptr : context.observer->return_to_c(function.get(), self.get(), result);
}

}  // namespace

const void* current_instruction() {
#if PY_VERSION_HEX >= 0x030d0000
  const Frame* frame = PyThreadState_Get()->current_frame;
#else
  const Frame* frame = PyThreadState_Get()->cframe->current_frame;
#endif
  return frame == nullptr ? nullptr : frame->THUNDER_FRAME_INSTRUCTION;
}

PyObject* generator_of(Frame* frame) {
  return frame->owner == FRAME_OWNED_BY_GENERATOR ? reinterpret_cast<PyObject*>(_PyFrame_GetGenerator(frame)) : nullptr;
}

PyObject* evaluate_frame(PyThreadState* tstate, Frame* frame, int throwing) {
  if (static_cast<const char*>(__builtin_frame_address(0)) < stack_limit()) [[unlikely]] {
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is exhausted");
    return refuse_frame(tstate, frame);
  }
  if (current_context->observer != nullptr) return evaluate_observed(tstate, frame, throwing);
  if (makes_generator(frame)) return make_generator(tstate, frame);
  return run<false>(tstate, frame, throwing);
}

}  // namespace thunder::interpreter

#endif
