#include "dispatch/capture/tensor_facts.h"

#include <torch/csrc/autograd/variable.h>

#include <string>

#include "dispatch/call/thread_state.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/numbers/number_arguments.h"
#include "dispatch/numbers/size_object.h"
#include "dispatch/python/python_tensor.h"
#include "tracer/recorder.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"

namespace thunder::dispatch {
namespace {

/// An input, and what the program sees in its place.
struct Input {
  at::Tensor seen;
  at::Tensor real;
};

/// The input that `tensor`, of the trace, is or shows a part of; undefined for others.
Input input_of(at::Tensor tensor) {
  for (;;) {
    if (const at::Tensor real = tracer::recorder_on_top()->tensors.real_behind(tensor); real.defined())
      return {tensor, real};
    const auto& view = tracer::trace_impl(tensor)->state()->view;
    if (!view) return {};
    tensor = at::Tensor(view->parent);
  }
}

}  // namespace

bool shows_input(const at::Tensor& tensor) { return input_of(tensor).real.defined(); }

bool is_conjugate_or_negative(const at::Tensor& tensor) {
  if (!tracer::is_trace_tensor(tensor)) return tensor.is_conj() || tensor.is_neg();
  const tracer::LazyView view = tracer::lazy_view(tensor);
  const at::Tensor real = tracer::recorder_on_top()->tensors.real_behind(view.root);
  const bool is_conjugate = real.defined() && real.is_conj();
  const bool is_negative = real.defined() && real.is_neg();
  return (view.conjugates % 2 == 1) != is_conjugate || (view.negatives % 2 == 1) != is_negative ||
         view.is_part_of_conjugate(is_conjugate);
}

bool requires_grad_for_base(const at::Tensor& tensor) {
  const tracer::Recorder* const recorder = tracer::recorder_on_top();
  if (recorder == nullptr || !tracer::is_trace_tensor(tensor)) return false;
  const at::Tensor real = recorder->tensors.real_behind(tensor);
  if (!real.defined() || !real.is_leaf() || !real.requires_grad()) return false;
  const auto* const meta = torch::autograd::impl::get_autograd_meta(real);
  return meta == nullptr || !meta->requires_grad_;
}

bool refuse_fact(const std::string& what) {
  const std::string message = "thunder.jit: " + what + " of this tensor is not known inside; read it outside";
  tracer::note_refusal(message);
  PyErr_SetString(PyExc_NotImplementedError, message.c_str());
  return false;
}

namespace {

PyObject* storage_offset(const at::Tensor& tensor) {
  const Input input = input_of(tensor);
  tracer::recorder_on_top()->tensors.note_offset_asked(tensor);
  if (input.real.defined()) {
    const bool is_input = input.seen.is_same(tensor);
    // Views of a moved input count from elsewhere than those of what the program sees, each in its own way.
    if (!is_input && input.seen.sym_storage_offset() != input.real.storage_offset()) {
      return refuse_fact("Tensor.storage_offset"), nullptr;
    }
    if (is_input) return PyLong_FromLongLong(input.real.storage_offset());
  }
  return make_size_number(tensor.sym_storage_offset());
}

}  // namespace

void add_tensor_facts(interpreter::TrackerOptions& options) {
  const py::Ref method = loaded_function("torch", "Tensor.storage_offset");
  if (!method) return;
  options.substitute(method.get(), [](PyObject* const* arguments, std::size_t count, PyObject*, PyObject** result) {
    if (count != 1 || !is_traced_tensor(arguments[0]) || is_told_of_operations(arguments[0])) return 0;
    *result = storage_offset(unpack_tensor(arguments[0]));
    return *result == nullptr ? -1 : 1;
  });
}

}  // namespace thunder::dispatch
