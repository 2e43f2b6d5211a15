#include "interpreter/loop/eval.h"

#if PY_VERSION_HEX < 0x030b0000

#include <array>

#include "interpreter/loop/frames.h"
#include "interpreter/loop/handlers_3_10.h"
#include "interpreter/loop/handlers_attributes.h"
#include "interpreter/loop/native_evaluation.h"

namespace thunder::interpreter {

namespace {

/// An EXTENDED_ARG prefixes the next instruction's argument: done by the loop itself.
THUNDER_HANDLER(extended_argument) { return Step::kNext; }

/// Makes the pending exception the handled one, and lays it and the one before on the stack.
void push_exception(PyThreadState* tstate, PyObject**& sp) {
  _PyErr_StackItem* item = tstate->exc_info;
  *sp++ = item->exc_traceback;
  *sp++ = item->exc_value;
  *sp++ = item->exc_type != nullptr ? item->exc_type : Py_NewRef(Py_None);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
  item->exc_type = Py_NewRef(type);
  item->exc_value = Py_NewRef(value);
  item->exc_traceback = traceback;
  *sp++ = Py_NewRef(traceback != nullptr ? traceback : Py_None);
  *sp++ = value;
  *sp++ = type;
}

/// Unwinds the block stack to the handler of the pending exception and returns its offset; -1 when there is none.
int unwind_blocks(PyThreadState* tstate, Frame* frame, PyObject**& sp) {
  frame->f_state = FRAME_UNWINDING;
  const auto drop_to = [&](int level) {
    while (sp - frame->f_valuestack > level) {
      PyObject* value = *--sp;
      Py_XDECREF(value);
    }
  };
  while (frame->f_iblock > 0) {
    const PyTryBlock block = frame->f_blockstack[--frame->f_iblock];
    if (block.b_type == EXCEPT_HANDLER) {
      drop_to(block.b_level + 3);
      _PyErr_StackItem* item = tstate->exc_info;
      PyObject* old[] = {item->exc_type, item->exc_value, item->exc_traceback};
      item->exc_type = *--sp;
      item->exc_value = *--sp;
      item->exc_traceback = *--sp;
      for (PyObject* part : old) Py_XDECREF(part);
      continue;
    }
    drop_to(block.b_level);
    PyTryBlock& handler = frame->f_blockstack[frame->f_iblock++];
    handler.b_type = EXCEPT_HANDLER;
    handler.b_handler = frame->f_lasti;
    handler.b_level = block.b_level;
    push_exception(tstate, sp);
    frame->f_state = FRAME_EXECUTING;
    return block.b_handler;
  }
  drop_to(0);
  frame->f_stackdepth = 0;
  frame->f_state = FRAME_RAISED;
  return -1;
}

/// Where CPython does not look at the eval breaker: between an acquisition and the block that releases it.
bool may_interrupt(const Instruction* pc) {
  return pc->opcode != SETUP_FINALLY && pc->opcode != SETUP_WITH && pc->opcode != BEFORE_ASYNC_WITH &&
         pc->opcode != YIELD_FROM;
}

#define THUNDER_DISPATCH()                                              \
  do {                                                                  \
    m.frame->f_lasti = static_cast<int>(m.pc - m.data->instructions()); \
    argument = m.pc->argument;                                          \
    goto* targets[m.pc->opcode];                                        \
  } while (false)

#define THUNDER_FOLLOW(step) \
  switch (step) {            \
    case Step::kNext:        \
      THUNDER_DISPATCH();    \
    case Step::kCall:        \
    case Step::kError:       \
      goto failed;           \
    case Step::kUnwind:      \
      goto unwind;           \
    case Step::kReturn:      \
      goto return_frame;     \
    case Step::kYield:       \
      goto yield_frame;      \
    case Step::kPending:     \
      goto pending;          \
  }

/// The loop, for one frame.
template <bool kObserved>
PyObject* run(PyThreadState* tstate, Frame* frame, int throwing) {
  static std::array<const void*, 256> targets{};
  if (targets[0] == nullptr) [[unlikely]] {
    targets.fill(&&unknown_opcode);
#define THUNDER_OPCODE(row, handler, caches) targets[row] = &&target_##row;
#include "interpreter/loop/opcodes.h"
  }
  if (_Py_EnterRecursiveCall(tstate, "")) return nullptr;
  Machine m{};
  m.data = CodeData::of(frame->f_code);
  if (m.data == nullptr) {
    _Py_LeaveRecursiveCall(tstate);
    return nullptr;
  }
  CFrame cframe;
  cframe.use_tracing = tstate->cframe->use_tracing;
  cframe.previous = tstate->cframe;
  tstate->cframe = &cframe;
  tstate->frame = frame;

  m.tstate = tstate;
  m.frame = frame;
  m.names = frame->f_code->co_names;
  m.constants = frame->f_code->co_consts;
  m.locals = frame->f_localsplus;
  m.pc = m.data->instructions() + frame->f_lasti + 1;
  m.sp = frame->f_valuestack + frame->f_stackdepth;
  if constexpr (kObserved) m.observer = current_context->observer;
  frame->f_stackdepth = -1;
  frame->f_state = FRAME_EXECUTING;
  int argument = 0;
  if (throwing != 0) goto error;
  if (eval_breaker_is_set(tstate)) goto pending;
  THUNDER_DISPATCH();

#define THUNDER_OPCODE(row, handler, caches)                            \
  target_##row : m.pc += 1;                                             \
  if constexpr (row == EXTENDED_ARG) {                                  \
    m.frame->f_lasti = static_cast<int>(m.pc - m.data->instructions()); \
    argument = (argument << 8) | m.pc->argument;                        \
    goto* targets[m.pc->opcode];                                        \
  } else {                                                              \
    THUNDER_FOLLOW(THUNDER_STEP(handler))                               \
  }
#include "interpreter/loop/opcodes.h"

unknown_opcode:
  PyErr_Format(PyExc_SystemError, "thunder.interpreter: unknown opcode %d", m.pc->opcode);
  goto error;

pending:
  if (may_interrupt(m.pc) && handle_pending(tstate) < 0) goto error;
  THUNDER_DISPATCH();

failed:
  if constexpr (kObserved) m.observer->notice_failure();
error:
  m.keyword_names = nullptr;
  add_traceback(frame);
unwind:
  {
    PyObject** sp = m.sp;
    const int handler = unwind_blocks(tstate, frame, sp);
    m.sp = sp;
    m.result = nullptr;
    if (handler < 0) goto leave;
    if constexpr (kObserved) m.observer->notice_handler(sp[-2]);
    m.pc = m.data->instructions() + handler;
    THUNDER_DISPATCH();
  }

return_frame:
  frame->f_state = FRAME_RETURNED;
  frame->f_stackdepth = 0;
  goto leave;

yield_frame:
  frame->f_state = FRAME_SUSPENDED;
  frame->f_stackdepth = static_cast<int>(m.sp - frame->f_valuestack);

leave:
  tstate->cframe = cframe.previous;
  tstate->cframe->use_tracing = cframe.use_tracing;
  _Py_LeaveRecursiveCall(tstate);
  tstate->frame = frame->f_back;
  return m.result;
}

/// Tells the observer about a frame that C code, a call or a generator's resumption entered, and asks how its code is
/// treated. `is_ours`: the observer has made the call itself. False with an exception set.
bool announce_frame(Context& context, Frame* frame, Treatment& treatment, bool& is_ours) {
  if (context.announced != nullptr &&
      PyFunction_GET_CODE(context.announced) == reinterpret_cast<PyObject*>(frame->f_code)) {
    const auto* function = reinterpret_cast<PyFunctionObject*>(context.announced);
    context.announced = nullptr;
    is_ours = true;
    const bool has_defaults = function->func_defaults != nullptr || function->func_kwdefaults != nullptr;
    return !has_defaults || observed_arguments(*context.observer, frame->f_localsplus, frame->f_code);
  }
  if (frame->f_gen == nullptr) {
    PyObject* result = nullptr;
    const int status = context.observer->before_python_call(nullptr, nullptr, 0, nullptr, &result);
    Py_XDECREF(result);
    if (status == 0 && frame->f_code->co_argcount > 0 && frame->f_localsplus[0] != nullptr) {
      context.observer->enter_method(frame->f_code, frame->f_localsplus,
                                     static_cast<std::size_t>(frame->f_code->co_argcount));
    }
    if (status < 0 || !observed_arguments(*context.observer, frame->f_localsplus, frame->f_code)) return false;
  }
  treatment = context.observer->treatment(frame->f_code);
  return true;
}

/// Evaluates a frame that C code, a call or a generator's resumption entered.
PyObject* evaluate_observed(PyThreadState* tstate, Frame* frame, int throwing) {
  Context& context = *current_context;
  Treatment treatment{};
  bool is_ours = false;
  try {
    if (!announce_frame(context, frame, treatment, is_ours)) return nullptr;
  } catch (...) {
    context.observer->translate_exception();
    return nullptr;
  }
  if (is_native(treatment)) {
    const NativeFunctionScope native(treatment);
    return evaluate_natively(tstate, frame, throwing);
  }
  if (is_ours) return run<true>(tstate, frame, throwing);
  const py::Ref self = py::Ref::share(frame->f_code->co_argcount > 0 ? frame->f_localsplus[0] : nullptr);
  PyObject* result = run<true>(tstate, frame, throwing);
  return result == nullptr ? nullptr : context.observer->return_to_c(nullptr, self.get(), result);
}

}  // namespace

const void* current_instruction() {
  const Frame* frame = PyThreadState_Get()->frame;
  return frame == nullptr ? nullptr : PyBytes_AS_STRING(frame->f_code->co_code) + 2 * frame->f_lasti;
}

PyObject* generator_of(Frame* frame) { return frame->f_gen; }

PyObject* evaluate_frame(PyThreadState* tstate, Frame* frame, int throwing) {
  if (static_cast<const char*>(__builtin_frame_address(0)) < stack_limit()) [[unlikely]] {
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is exhausted");
    return nullptr;
  }
  if (current_context->observer != nullptr) return evaluate_observed(tstate, frame, throwing);
  return run<false>(tstate, frame, throwing);
}

}  // namespace thunder::interpreter

#endif
