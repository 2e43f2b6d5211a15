# Precompiled headers, made once and reused by every layer of the same kind. Compile options must equal those of the
# layers, or the compiler refuses to reuse them.
function(thunder_precompiled name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LINKS")
  set(source "${PROJECT_BINARY_DIR}/precompiled/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(${name} PRIVATE thunder_options ${arg_LINKS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()

# Half of the time of a source without PyTorch goes into these.
thunder_precompiled(
  thunder_precompiled_std
  HEADERS <algorithm> <array> <cmath> <cstddef> <cstdint> <functional> <limits> <map> <memory> <numeric> <optional> <ranges>
          <set> <span> <string> <string_view> <unordered_map> <unordered_set> <utility> <variant> <vector>)

set(torch_headers <ATen/ATen.h> <ATen/core/dispatch/Dispatcher.h> <torch/csrc/autograd/function.h>
                  <torch/csrc/autograd/variable.h> <torch/library.h>)
thunder_precompiled(thunder_precompiled_torch HEADERS ${torch_headers} LINKS thunder_torch)
thunder_precompiled(thunder_precompiled_torch_python HEADERS <Python.h> ${torch_headers} LINKS thunder_torch_python thunder_python)
