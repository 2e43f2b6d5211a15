#pragma once

#include <string_view>

#include "dispatch/python/errors.h"
#include "interpreter/provenance/tracker.h"

namespace thunder::dispatch {

class PythonBackwards;

/// `torch`, `Tensor.new_tensor`: the function at a path of attributes, if its module has been imported; null otherwise,
/// without an exception.
[[nodiscard]] py::Ref loaded_function(const char* module_name, std::string_view path);

/// The arguments of one substituted call, by the convention of `TrackerOptions::Substitute`.
struct SubstitutedCall {
  PyObject* const* arguments;
  std::size_t count;
  PyObject* names;

  /// The positional argument at `index` or the one called `name`; null: not given.
  [[nodiscard]] py::Borrowed find(std::size_t index, const char* name) const;
};

/// Generators and seeds: what the program does to them happens at each run of the trace.
void add_random_substitutes(interpreter::TrackerOptions& options);
/// Methods of tensors whose C code cannot run on trace tensors. A function mode is told of the call before.
void add_tensor_substitutes(interpreter::TrackerOptions& options);
/// Pickling by the code in Python: what it reads of objects is guarded.
void add_pickle_substitutes(interpreter::TrackerOptions& options);
/// `numpy.prod`, `sum`, `max` and `min` of sizes.
void add_array_substitutes(interpreter::TrackerOptions& options);
/// `torch.cuda.device_count`, which is constant as soon as CUDA is initialized, but is asked of NVML through `ctypes`
/// at first: `torch.autocast("cuda", torch.bfloat16)` calls it.
void add_device_substitutes(interpreter::TrackerOptions& options);

/// `torch.cond`, `while_loop`, `scan`, `map`: what the functions that they are given do becomes part of the trace.
void add_higher_order_substitutes(interpreter::TrackerOptions& options);
/// `torch.utils.checkpoint.checkpoint`.
void add_checkpoint_substitute(interpreter::TrackerOptions& options, PythonBackwards& backwards);

}  // namespace thunder::dispatch
