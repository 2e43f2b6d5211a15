#include "dispatch/flag_reads.h"

#include <string>

#include "dispatch/substitutes.h"
#include "interpreter/provenance_constant.h"

namespace thunder::dispatch {
namespace {

constexpr const char* kGetters[] = {
    "get_num_threads",
    "get_num_interop_threads",
    "_get_mkldnn_enabled",
    "_get_mkldnn_deterministic",
    "_get_nnpack_enabled",
    "_get_float32_matmul_precision",
    "_get_cudnn_enabled",
    "_get_cudnn_benchmark",
    "_get_cudnn_deterministic",
    "_get_cudnn_allow_tf32",
    "_get_cublas_allow_tf32",
    "_get_flash_sdp_enabled",
    "_get_math_sdp_enabled",
    "_get_mem_efficient_sdp_enabled",
    "_get_cudnn_sdp_enabled",
    "_get_math_sdp_allow_fp16_bf16_reduction",
    "_get_deterministic_algorithms_warn_only",
    "_get_deterministic_fill_uninitialized_memory",
};

}  // namespace

void FlagReads::remember() {
  for (const char* name : kGetters) {
    py::Ref function = loaded_function("torch._C", name);
    py::Ref value = py::Ref::steal(function ? PyObject_CallNoArgs(function.get()) : nullptr);
    PyErr_Clear();
    if (value) flags_.push_back({std::move(function), std::move(value), name});
  }
}

void FlagReads::add_substitutes(interpreter::TrackerOptions& options, interpreter::Tracker& tracker) const {
  for (const Flag& flag : flags_) {
    options.substitutes[interpreter::native_identity(flag.function.get())] =
        [&flag, &tracker](PyObject* const*, std::size_t count, PyObject*, PyObject** result) {
          if (count != 0) return 0;
          *result = PyObject_CallNoArgs(flag.function.get());
          if (*result == nullptr) return -1;
          if (interpreter::equal_constants(*result, flag.before.get())) {
            tracker.record_result(flag.function.get(), std::string("torch._C.") + flag.name, *result);
          }
          return 1;
        };
  }
}

}  // namespace thunder::dispatch
