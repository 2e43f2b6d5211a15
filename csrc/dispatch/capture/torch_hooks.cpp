#include "dispatch/capture/torch_hooks.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/QScheme.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "bridge/convert.h"
#include "dispatch/call/number_input.h"
#include "dispatch/call/output_plan.h"
#include "dispatch/call/tensor_guard.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/capture/size_index.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/capture/tensor_facts.h"
#include "dispatch/numbers/number_arguments.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/local_part.h"
#include "dispatch/python/python_tensor.h"
#include "dispatch/python/trace_object.h"
#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/provenance/provenance_constant.h"
#include "tracer/trace_node.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"
#include "transforms/functorch_layer.h"

namespace thunder::dispatch {
namespace {

// Tensors that the tracer does not know how to stand in for.
void require_plain(const at::Tensor& tensor, PyTypeObject* type, const std::string& path) {
  const auto refuse = [&](const std::string& found, const std::string& advice) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: " + path + ": expected a dense tensor, got " + found + "; " + advice);
  };
  if (tensor.layout() == c10::kJagged) refuse("a nested tensor", "call it on the tensors that it consists of");
  if (tensor.layout() == c10::kMkldnn) refuse("an MKL-DNN tensor", "call to_dense() before");
  if (tensor.layout() != c10::kStrided) refuse("a sparse tensor", "call to_dense() before");
  if (tensor.is_quantized()) refuse("a quantized tensor", "call dequantize() before");
  if (tensor.is_nested()) refuse("a nested tensor", "call to_padded_tensor() before");
  if (tensor.key_set().has(c10::DispatchKey::Python)) {
    refuse(std::string("the tensor subclass ") + type->tp_name, "convert it to a torch.Tensor before");
  }
  if (is_functorch_wrapper(tensor)) {
    refuse("a tensor that left a function under vmap, grad or jvp in another way than by being returned",
           "return it from that function");
  }
  if (at::functionalization::impl::isFunctionalTensor(tensor)) {
    refuse("a tensor that left a function under torch.func.functionalize", "return it from that function");
  }
  if (PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "cls_to_become") != 0) {
    refuse("a parameter of a lazy module that has none yet", "call the module once in eager");
  }
}

/// Data descriptors in C whose answer follows from what is guarded of each tensor, or is an operation of the trace.
bool is_told_by_trace_tensor(std::string_view name) {
  constexpr std::array<std::string_view, 18> kNames{
      "T",         "H",        "mT",     "mH",       "real",   "imag",
      "data",      "device",   "dtype",  "itemsize", "layout", "requires_grad",
      "__class__", "__dict__", "nbytes", "ndim",     "shape",  "_has_symbolic_sizes_strides"};
  return std::ranges::find(kNames, name) != kNames.end() || (name.starts_with("is_") && name != "is_leaf");
}

/// Whether an attribute is read from the tensor behind an input, and guarded. For other tensors autograd answers
/// itself.
bool is_told_by_tensor_behind(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames{
      "grad",         "grad_fn",    "is_leaf",         "output_nr",
      "retains_grad", "grad_dtype", "_backward_hooks", "_post_accumulate_grad_hooks"};
  return std::ranges::find(kNames, name) != kNames.end();
}

/// `nn.Parameter`, which a distributed parameter is to programs.
py::Ref parameter_type() {
  const py::Ref module = checked(py::import_module("torch.nn.parameter"));
  return checked(PyObject_GetAttrString(module.get(), "Parameter"));
}

/// `torch.FloatTensor` and its kin, which ask for dtype and device.
bool is_legacy_class(PyObject* kind) { return std::string_view(Py_TYPE(kind)->tp_name) == "torch.tensortype"; }

int is_of_legacy_class(PyObject* tensor, PyObject* kind) {
  const interpreter::NativeScope native;
  const WithoutFunctionModes unseen;
  const py::Ref name = py::Ref::steal(PyObject_CallMethod(tensor, "type", nullptr));
  if (!name) return -1;
  return PyUnicode_CompareWithASCIIString(name.get(), reinterpret_cast<PyTypeObject*>(kind)->tp_name) == 0 ? 1 : 0;
}

}  // namespace

bool TorchHooks::is_real_tensor(PyObject* object) const {
  if (!is_tensor(object)) return false;
  const at::Tensor& tensor = unpack_tensor(object);
  if (tracer::is_trace_tensor(tensor)) return false;
  return !is_functorch_wrapper(tensor) || !tracer::is_trace_tensor(transforms::innermost(tensor));
}

bool TorchHooks::is_plain_class(PyTypeObject* type) const {
  static PyObject* const parameter = parameter_type().release();
  auto* object = reinterpret_cast<PyObject*>(type);
  return object == plain_tensor_type() || object == parameter;
}

bool TorchHooks::is_traced(PyObject* object) const {
  if (is_traced_number(object)) return true;
  if (!is_tensor(object)) return false;
  const at::Tensor& tensor = unpack_tensor(object);
  return tracer::is_trace_tensor(tensor) || (is_functorch_wrapper(tensor) && !is_real_tensor(object));
}

PyObject* TorchHooks::lift(PyObject* real_tensor, const std::string& path) {
  const interpreter::NativeScope native;
  try {
    const Overrides::Entry* override = overrides_.find(real_tensor);
    const bool is_part = override != nullptr && is_distributed(real_tensor);
    const at::Tensor real = is_part ? local_part(real_tensor) : unpack_tensor(real_tensor);
    require_plain(real, Py_TYPE(real_tensor), path);
    const ir::TypePtr seen =
        override == nullptr ? ir::make_type(bridge::type_of(real)) : Overrides::seen_type(*override, real);
    py::Ref traced = py::Ref::steal(wrap_tensor(recorder_.add_input(real, seen, path)));
    if (!traced) return nullptr;
    const at::Tensor& made = unpack_tensor(traced.get());
    if (!is_part && real.grad_fn() != nullptr && made.is_leaf()) {
      torch::autograd::set_history(
          made, autograd::make_node<tracer::OutsideNode>(real.grad_fn()->name(), recorder_.value_of(made),
                                                         recorder_.tensors.real_inputs().size() - 1));
    }
    // `isinstance(p, nn.Parameter)` has to hold for the trace tensor of a parameter.
    const py::Ref type = is_part ? parameter_type() : py::Ref::share(reinterpret_cast<PyObject*>(Py_TYPE(real_tensor)));
    if (type.get() != reinterpret_cast<PyObject*>(Py_TYPE(traced.get()))) {
      if (PyObject_SetAttrString(traced.get(), "__class__", type.get()) < 0) return nullptr;
    }
    if (const py::Ref attributes = interpreter::instance_dict(real_tensor);
        attributes && PyDict_Size(attributes.get()) > 0) {
      const py::Ref own = interpreter::instance_dict(traced.get());
      if (!own || PyDict_Update(own.get(), attributes.get()) < 0) return nullptr;
    }
    const bool is_new = !index_by_real_.contains(real_tensor);
    if (is_new) enter_input(real_tensor, traced, override);
    if (override != nullptr) recorder_.data.replaced_inputs.emplace(index_by_real_.at(real_tensor), override->name);
    if (is_new && note_input) note_input(real_tensor, made, path);
    return traced.release();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

/// Without data there is nothing to know of it but its metadata.
PyObject* TorchHooks::make_anew(PyObject* real_tensor) {
  const at::Tensor& real = unpack_tensor(real_tensor);
  const bool is_plain = real.is_meta() && real.layout() == c10::kStrided && real.is_leaf() && !real.is_view() &&
                        real.is_inference() == c10::InferenceMode::is_enabled();
  // A wrapper counts once for all other holders of its tensor; the trace is one, if it knows it as a constant.
  const std::size_t holders = recorder_.tensors.find_constant(real) ? 2 : 1;
  if (!is_plain || real.use_count() != holders || real.storage().use_count() != holders) return nullptr;
  if (static_cast<std::size_t>(Py_REFCNT(real_tensor)) > holders) return nullptr;
  const interpreter::NativeScope native;
  try {
    const at::Tensor made = at::empty_strided(real.sizes(), real.strides(), real.options());
    if (real.requires_grad()) made.set_requires_grad(true);
    return wrap_tensor(made);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* TorchHooks::original(PyObject* traced) const {
  const auto found = index_by_traced_.find(traced);
  return found == index_by_traced_.end() ? nullptr : Py_NewRef(inputs_[found->second].get());
}

/// Whether it is asked if a view requires grad that is a leaf which does to eager code, and does not here.
static bool is_view_that_requires_grad(PyObject* traced, PyObject* name) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  return PyUnicode_Compare(name, requires_grad) == 0 && is_traced_tensor(traced) &&
         tracer::is_hidden_leaf(unpack_tensor(traced));
}

bool TorchHooks::require_known_state(PyObject* traced, PyObject* name) {
  const std::string text = PyUnicode_AsUTF8(name);
  const at::Tensor& tensor = unpack_tensor(traced);
  if (is_functorch_wrapper(tensor)) return true;
  if (text == "requires_grad" && tracer::is_hidden_leaf(tensor)) {
    return tracer::is_known_to_autograd(tensor) || refuse_fact("Tensor." + text);
  }
  if (is_told_by_trace_tensor(text)) return true;
  const bool is_known = text == "_version"  ? !shows_input(tensor)
                        : text == "grad_fn" ? dynamic_cast<tracer::OutsideNode*>(tensor.grad_fn().get()) == nullptr
                                            : is_told_by_tensor_behind(text);
  return is_known || refuse_fact("Tensor." + text);
}

bool TorchHooks::may_set_state(PyObject* traced, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "requires_grad") != 0) return true;
  if (!requires_grad_for_base(unpack_tensor(traced))) return true;
  tracer::note_refusal(kRequiresGradForBase);
  PyErr_SetString(PyExc_NotImplementedError, kRequiresGradForBase);
  return false;
}

bool TorchHooks::is_unknown_state(PyObject* traced, PyObject* name) const {
  const auto found = index_by_traced_.find(traced);
  if (found == index_by_traced_.end()) return is_view_that_requires_grad(traced, name);
  const InputState& state = states_[found->second];
  const std::string text = PyUnicode_AsUTF8(name);
  if (text == "grad") return !state.knows_grad;
  return text != "grad_fn" && is_told_by_tensor_behind(text) && !state.compared.contains(text);
}

bool TorchHooks::learn_state(PyObject* traced, PyObject* name, PyObject* value) {
  InputState& state = states_[index_by_traced_.at(traced)];
  const std::string text = PyUnicode_AsUTF8(name);
  if (state.override != nullptr && text != "is_leaf") return refuse_fact(state.override->name + "." + text);
  if (text == "grad") {
    state.knows_grad = true;
    state.grad = py::Ref::share(value);
    if (value != Py_None) unpack_tensor(traced).mutable_grad() = unpack_tensor(value);
    return true;
  }
  state.compared.insert(text);
  const py::Ref own = py::Ref::steal(attribute(traced, name));
  if (!own) return false;
  return text == "is_leaf" || own.get() == value || refuse_fact("Tensor." + text);
}

PyObject* TorchHooks::present_sizes(PyObject* value) {
  return tracer::TraceSession::current().size_reads == nullptr ? value : dispatch::present_sizes(value);
}

PyObject* TorchHooks::lift_number(PyObject* number, const std::string& path, std::size_t* input) {
  if (!input_for_number) return nullptr;
  const interpreter::NativeScope native;
  try {
    const at::Tensor input_tensor = input_for_number(number, path);
    const py::Ref real = py::Ref::steal(input_tensor.defined() ? wrap_tensor(input_tensor) : nullptr);
    if (!real) return nullptr;
    const at::Tensor traced =
        recorder_.add_input(unpack_tensor(real.get()), ir::make_type(bridge::type_of(unpack_tensor(real.get()))), path);
    *input = inputs_.size();
    enter_input(real.get(), py::Ref::steal(wrap_tensor(traced)), nullptr);
    return note_number(real.get(), traced, path);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

bool TorchHooks::numbers_change(PyObject* sequence, const std::string& path) {
  return are_inputs && are_inputs(sequence, path);
}

bool TorchHooks::function_changes(PyObject* function, const std::string& path) {
  return is_changing_function && is_changing_function(function, path);
}

bool TorchHooks::takes_sizes(PyObject* function) const {
  return is_torch_function(function, interpreter::native_call({function, nullptr, 0, nullptr}));
}

PyObject* TorchHooks::plain_number(PyObject* object) {
  if (is_size_number(object)) return look_at_size(object);
  if (is_traced_number(object)) return look_at(object);
  return !PyTuple_Check(object) || look_inside(object) ? Py_NewRef(object) : nullptr;
}

PyObject* TorchHooks::number_now(PyObject* object) {
  const auto dim = dim_of_size_number(object);
  return dim                        ? int_as(type_of_size(object), PyLong_FromLongLong(dim->hint))
         : is_traced_number(object) ? number_without_tie(object)
                                    : Py_NewRef(object);
}

void TorchHooks::need_number(PyObject* lifted) {
  const py::Ref number = py::Ref::steal(plain_number(lifted));
  if (!number) PyErr_Clear();
}

void TorchHooks::enter_input(PyObject* real, const py::Ref& traced, const Overrides::Entry* override) {
  index_by_real_.emplace(real, inputs_.size());
  index_by_traced_.emplace(traced.get(), inputs_.size());
  inputs_.push_back(py::Ref::share(real));
  states_.push_back({.real = py::Ref::share(real), .traced = traced, .override = override});
}

PyObject* TorchHooks::get_item(PyObject* owner, PyObject* key) {
  const bool has_symbols = tracer::TraceSession::current().size_reads != nullptr;
  const auto part = has_symbols ? select_at_sizes(owner, key) : std::nullopt;
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (!part) return PyObject_GetItem(owner, key);
  if (!part->rest) return Py_NewRef(part->tensor.get());
  PyObject* item = PyObject_GetItem(part->tensor.get(), part->rest.get());
  if (item != nullptr || PyErr_ExceptionMatches(PyExc_IndexError) == 0) return item;
  PyErr_Clear();  // which speaks of the part, and not of the tensor
  return PyObject_GetItem(owner, key);
}

int TorchHooks::set_item(PyObject* owner, PyObject* key, PyObject* value) {
  const bool has_symbols = tracer::TraceSession::current().size_reads != nullptr;
  const auto part = has_symbols ? select_at_sizes(owner, key) : std::nullopt;
  if (PyErr_Occurred() != nullptr) return -1;
  if (!part) return PyObject_SetItem(owner, key, value);
  return PyObject_SetItem(part->tensor.get(), part->rest ? part->rest.get() : Py_Ellipsis, value);
}

// The builtin makes an int of what `Tensor.__len__` gives.
PyObject* TorchHooks::length(PyObject* object) {
  const bool has_symbols = tracer::TraceSession::current().size_reads != nullptr;
  if (!has_symbols || !is_tensor(object) || !tracer::is_trace_tensor(unpack_tensor(object)) || has_function_mode()) {
    return TensorHooks::length(object);
  }
  const at::Tensor& tensor = unpack_tensor(object);
  const py::Ref method = py::Ref::steal(tensor.dim() == 0 ? nullptr : PyObject_GetAttrString(object, "size"));
  if (!method) return PyErr_Clear(), TensorHooks::length(object);
  const py::Ref dim = py::Ref::steal(PyLong_FromLong(0));
  PyObject* size = dim ? PyObject_CallOneArg(method.get(), dim.get()) : nullptr;
  return size == nullptr ? nullptr : dispatch::present_sizes(size);
}

int TorchHooks::is_instance(PyObject* object, PyObject* kind) {
  if (is_size_number(object)) {
    const py::Ref example = py::Ref::steal(int_as(type_of_size(object), PyLong_FromLong(2)));
    return example ? PyObject_IsInstance(example.get(), kind) : -1;
  }
  const bool is_asked_of_tensor = is_tensor(object) && is_traced(object);
  if (!is_asked_of_tensor) return PyObject_IsInstance(object, kind);
  if (PyTuple_Check(kind)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kind); ++i) {
      if (const int found = is_instance(object, PyTuple_GET_ITEM(kind, i)); found != 0) return found;
    }
    return 0;
  }
  return is_legacy_class(kind) && !is_conjugate_or_negative(unpack_tensor(object)) ? is_of_legacy_class(object, kind)
                                                                                   : PyObject_IsInstance(object, kind);
}

namespace {

/// Calls a hook from outside, in Python or in C; null with an exception.
py::Ref call_hook(const py::Ref& hook, const py::Ref& argument) {
  PyObject* const arguments[] = {argument.get()};
  return py::Ref::steal(argument ? interpreter::call_from_c(hook.get(), arguments, 1, nullptr) : nullptr);
}

/// The hooks that `leaf`'s tensor has under `name`, guarded; an empty list when there are none.
std::vector<py::Ref> hooks_behind(interpreter::Tracker& tracker, py::Borrowed leaf, PyObject* name) {
  std::vector<py::Ref> hooks;
  const py::Ref dict = py::Ref::steal(tracker.tensors().read_behind(leaf, name));
  if (PyErr_Occurred() != nullptr) throw PendingError();
  if (!dict || dict.get() == Py_None) return hooks;
  if (!tracker.examine(dict.get(), interpreter::Aspect::kContents)) throw PendingError();
  PyObject *key, *hook;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict.get(), &position, &key, &hook)) hooks.push_back(py::Ref::share(hook));
  return hooks;
}

}  // namespace

void TorchHooks::run_hooks(interpreter::Tracker& tracker, const at::Tensor& leaf, at::Tensor& gradient) const {
  static PyObject* const name = PyUnicode_InternFromString("_backward_hooks");
  const py::Ref object = py::Ref::steal(wrap_tensor(leaf));
  if (!object) throw PendingError();
  for (const py::Ref& hook : hooks_behind(tracker, object.get(), name)) {
    const py::Ref result = call_hook(hook, py::Ref::steal(wrap_tensor(gradient)));
    if (!result) throw PendingError();
    if (is_tensor(result.get())) gradient = unpack_tensor(result.get());
  }
}

void TorchHooks::run_post_accumulate_hooks(interpreter::Tracker& tracker, const at::Tensor& leaf) const {
  static PyObject* const name = PyUnicode_InternFromString("_post_accumulate_grad_hooks");
  const py::Ref object = py::Ref::steal(wrap_tensor(leaf));
  if (!object) throw PendingError();
  for (const py::Ref& hook : hooks_behind(tracker, object.get(), name)) {
    if (!call_hook(hook, object)) throw PendingError();
  }
}

bool TorchHooks::is_position(PyObject* index) const {
  const auto is_scalar = [](const at::Tensor& tensor) {
    return tensor.dim() == 0 && tensor.scalar_type() != at::kByte;
  };
  return is_tensor(index) && is_scalar(unpack_tensor(index)) && holds_int(recorder_, index);
}

PyObject* TorchHooks::position(PyObject* index) {
  if (is_traced_number(index)) return size_or_number(index);
  if (!holds_int(recorder_, index)) return Py_NewRef(index);
  const py::Ref number = py::Ref::steal(item_of(index));
  return number && is_traced_number(number.get()) ? size_or_number(number.get()) : Py_XNewRef(number.get());
}

namespace {

/// A tuple of what `give` makes of each item (new reference); null with an exception.
template <typename Give>
PyObject* tuple_of_each(PyObject* tuple, const Give& give) {
  py::Ref items = py::Ref::steal(PyTuple_New(PyTuple_GET_SIZE(tuple)));
  for (Py_ssize_t i = 0; items && i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = give(PyTuple_GET_ITEM(tuple, i));
    if (item == nullptr) return nullptr;
    PyTuple_SET_ITEM(items.get(), i, item);
  }
  return items.release();
}

}  // namespace

PyObject* TorchHooks::index_with_numbers(PyObject* index) {
  if (is_traced_number(index) || is_position(index)) return position(index);
  if (PySlice_Check(index)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(index);
    const py::Ref start = py::Ref::steal(position(slice->start));
    const py::Ref stop = py::Ref::steal(start ? position(slice->stop) : nullptr);
    const py::Ref step = py::Ref::steal(stop ? position(slice->step) : nullptr);
    return step ? PySlice_New(start.get(), stop.get(), step.get()) : nullptr;
  }
  if (PyList_CheckExact(index) && holds_traced_numbers(index) && is_list_of_numbers(index)) {
    return tensor_of_list(index);
  }
  if (!PyTuple_CheckExact(index)) return look_inside(index, Inside::kSizes) ? Py_NewRef(index) : nullptr;
  return tuple_of_each(index, [this](PyObject* item) { return index_with_numbers(item); });
}

PyObject* TorchHooks::operand(PyObject* number, PyObject* other, bool is_key) {
  if (PyTuple_CheckExact(number) && THPSize_Check(other) && !is_key) {
    return tuple_of_each(number, [this](PyObject* size) { return position(size); });
  }
  if (is_key && is_tensor(other) && !is_told_of_operations(other)) return index_with_numbers(number);
  if (is_key) {
    if (is_traced_number(number)) return is_tensor(other) ? size_or_number(number) : look_at(number);
    return look_inside(number, is_tensor(other) ? Inside::kSizes : Inside::kNumbers) ? Py_NewRef(number) : nullptr;
  }
  if (!is_tensor(other) && PyObject_CheckBuffer(other) != 0) {
    // NumPy takes an operand that it does not know for an object, and so each number of the result.
    return is_size_number(number)     ? look_at_size(number)
           : is_traced_number(number) ? look_at(number)
                                      : Py_NewRef(number);
  }
  if (!is_tensor(other) || !is_traced(other) || is_size_number(number)) return Py_NewRef(number);
  // Who is told of an operation sees the number that the program has.
  if (is_traced_number(number) && is_told_of_operations(other)) return look_at(number);
  return tensor_of_number(number);
}

std::size_t TorchHooks::input_index(PyObject* real_tensor) const { return index_by_real_.at(real_tensor); }

std::string TorchHooks::describe(PyObject* tensor) const { return describe_tensor(unpack_tensor(tensor)); }

PyObject* TorchHooks::attribute(PyObject* owner, PyObject* name) const {
  if (is_view_that_requires_grad(owner, name)) Py_RETURN_TRUE;
  const WithoutFunctionModes unseen;
  return PyObject_GenericGetAttr(owner, name);
}

interpreter::ConstantKind TorchHooks::classify(PyObject* object) const {
  using interpreter::ConstantKind;
  if (trace_in(object) != nullptr) return ConstantKind::kIdentity;
  if (THPDtype_Check(object) || THPLayout_Check(object) || THPMemoryFormat_Check(object) || THPQScheme_Check(object) ||
      Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(THPGeneratorClass)) {
    return ConstantKind::kIdentity;
  }
  return THPDevice_Check(object) || THPSize_Check(object) ? ConstantKind::kEquality : ConstantKind::kUnknown;
}

}  // namespace thunder::dispatch
