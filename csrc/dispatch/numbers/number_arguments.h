#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "dispatch/numbers/traced_number.h"
#include "interpreter/provenance/tracker_native.h"

namespace thunder::dispatch {

// Numbers that the program computed, as arguments of C code. A status is by the convention of
// `TrackerOptions::intercept`: 0 says that the call is another one's business.

[[nodiscard]] bool is_traced_tensor(PyObject* object);
/// The name of a C function or method; empty for everything else.
[[nodiscard]] std::string_view name_of(PyObject* callable);
[[nodiscard]] std::string_view module_of(PyObject* callable);
[[nodiscard]] bool is_torch_function(PyObject* callable, const interpreter::NativeCall& call);

/// The number of arguments without `self`.
[[nodiscard]] std::size_t total(const interpreter::NativeCall& call);
[[nodiscard]] bool any_argument(const interpreter::NativeCall& call, bool (*predicate)(PyObject*));
[[nodiscard]] bool is_list_of_numbers(PyObject* object);
/// Whether it is a tensor of this recording with one integer, which is not known while the program is traced.
[[nodiscard]] bool holds_int(const tracer::Recorder& recorder, PyObject* object);
/// Whether a list or tuple has traced numbers among its items.
[[nodiscard]] bool holds_traced_numbers(PyObject* object);

/// A number of the same kind that is none of the trace (new reference).
[[nodiscard]] PyObject* placeholder(PyObject* number);
/// Calls with other arguments; `self` of a method that was looked up in its type goes first.
[[nodiscard]] PyObject* call_with(PyObject* callable, const interpreter::NativeCall& call,
                                  const std::vector<py::Ref>& arguments);
/// The call with other arguments; `values` has them while it is used.
[[nodiscard]] interpreter::NativeCall with_arguments(const interpreter::NativeCall& call,
                                                     const std::vector<py::Ref>& arguments,
                                                     std::vector<PyObject*>& values);
/// As `call_with`, for a function whose reads and writes are observed: `heapq.heappush(list, number)`.
[[nodiscard]] PyObject* call_observed(PyObject* callable, const interpreter::NativeCall& call,
                                      const std::vector<py::Ref>& arguments);
/// The arguments with `replace(number)` for each number that is one; nullopt with an exception.
[[nodiscard]] std::optional<std::vector<py::Ref>> replaced(const interpreter::NativeCall& call,
                                                           bool (*is_one)(PyObject* object),
                                                           PyObject* (*replace)(PyObject* number));

/// A function of PyTorch whose arguments are sizes of the trace, or hold some: called as it stands, and with ints where
/// it takes no sizes.
[[nodiscard]] int call_with_sizes(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);

/// Whether an argument of a function of PyTorch is a size, or one of several: `x.new_zeros(n)`.
[[nodiscard]] bool takes_size_at(PyObject* callable, const interpreter::NativeCall& call, std::size_t i);
/// Whether it takes a tensor there, or a list of tensors where the argument is a list, by some overload.
[[nodiscard]] bool takes_tensor_at(PyObject* callable, const interpreter::NativeCall& call, std::size_t i);
/// Whether some arguments of a function of PyTorch that are sizes are numbers from data.
[[nodiscard]] bool takes_sizes_from_data(PyObject* callable, const interpreter::NativeCall& call);
/// Calls a function of PyTorch with sizes in the place of such numbers, as above; other numbers from data are looked
/// at. Null with an exception.
[[nodiscard]] PyObject* call_with_data_sizes(PyObject* callable, const interpreter::NativeCall& call);

/// A function of PyTorch, called with tensors in the place of the numbers where it takes them.
[[nodiscard]] int call_with_computed(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
/// The dtype of tensors of a legacy type (`torch.FloatTensor`), as an attribute of `torch`; null: it is none of them.
[[nodiscard]] const char* dtype_of_legacy_type(PyObject* callable);
/// `torch.tensor`, `torch.FloatTensor` and their like, of sequences with tensors of the trace or such numbers in them.
[[nodiscard]] int call_on_sequences(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
/// `torch.batch_norm` with such a number as its momentum: `momentum=None` counts batches in a tensor.
[[nodiscard]] int call_batch_norm(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
/// `torch.where` of two numbers, some of which are such ones.
[[nodiscard]] int call_where(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);

}  // namespace thunder::dispatch
