#pragma once

#include <cstddef>
#include <string>

namespace thunder::executors::cuda {

/// One of `CUlaunchAttribute`: its number, and a value in 64 bytes.
struct LaunchAttribute {
  int number = 0;
  char unused[4] = {};
  union {
    int value;
    char room[64];
  };
};
/// `CUlaunchConfig`.
struct LaunchConfiguration {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void* stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
struct NodeParameters {
  void* function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;
  void* context = nullptr;
};

/// The functions of the CUDA driver that launches need, from the library that the process has loaded, or would load.
/// The declarations are ours: thunder builds without CUDA.
struct Driver {
  using Result = int;
  using Handle = void*;

  Result (*initialize)(unsigned flags) = nullptr;
  Result (*version)(int* version) = nullptr;
  Result (*device)(int* device, int ordinal) = nullptr;
  Result (*attribute)(int* value, int attribute, int device) = nullptr;
  Result (*total_memory)(std::size_t* bytes, int device) = nullptr;
  Result (*current_context)(Handle* context) = nullptr;
  Result (*retain_context)(Handle* context, int device) = nullptr;
  Result (*set_context)(Handle context) = nullptr;
  Result (*push_context)(Handle context) = nullptr;
  Result (*pop_context)(Handle* context) = nullptr;
  Result (*exchange_capture_mode)(int* mode) = nullptr;
  Result (*is_capturing)(Handle stream, int* status) = nullptr;
  Result (*load_module)(Handle* module, const void* image) = nullptr;
  Result (*unload_module)(Handle module) = nullptr;
  Result (*function)(Handle* function, Handle module, const char* name) = nullptr;
  Result (*function_attribute)(int* value, int attribute, Handle function) = nullptr;
  Result (*launch)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Handle stream, void** arguments,
                   void** extra) = nullptr;
  /// Null: the driver is older than graphs with such launches.
  Result (*launch_with)(const LaunchConfiguration* configuration, Handle function, void** arguments,
                        void** extra) = nullptr;
  // Graphs; null: as `launch_with`.
  Result (*create_stream)(Handle* stream, unsigned flags) = nullptr;
  Result (*destroy_stream)(Handle stream) = nullptr;
  Result (*begin_capture)(Handle stream, int mode) = nullptr;
  Result (*end_capture)(Handle stream, Handle* graph) = nullptr;
  Result (*nodes)(Handle graph, Handle* nodes, std::size_t* count) = nullptr;
  Result (*parameters)(Handle node, NodeParameters* parameters) = nullptr;
  Result (*instantiate)(Handle* executable, Handle graph, unsigned long long flags) = nullptr;
  Result (*set_parameters)(Handle executable, Handle node, const NodeParameters* parameters) = nullptr;
  Result (*launch_graph)(Handle executable, Handle stream) = nullptr;
  Result (*destroy_executable)(Handle executable) = nullptr;
  Result (*destroy_graph)(Handle graph) = nullptr;
  Result (*error_text)(Result result, const char** text) = nullptr;

  /// Throws UserError, with what to do, where there is no driver.
  [[nodiscard]] static const Driver& get();
  /// Throws UserError for a call that failed; `doing` says what.
  void check(Result result, const std::string& doing) const;
};

}  // namespace thunder::executors::cuda
