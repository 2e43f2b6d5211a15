#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "executors/cuda_kernels/kernel_source.h"

namespace thunder::executors::cuda {

/// A compiled text: its functions, for the devices that it was launched on.
class Module {
 public:
  virtual ~Module() = default;
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
};

/// Compiles kernels and launches them. Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The type of the devices whose memory kernels read.
  [[nodiscard]] virtual at::DeviceType device_type() const = 0;
  [[nodiscard]] virtual int multiprocessors(at::Device device) = 0;
  /// Equal texts are one module.
  [[nodiscard]] virtual std::shared_ptr<const Module> compile(const KernelSource& source, at::Device device) = 0;
  /// Launches a function of the module with its one argument, on the device's current stream. False: a thread has
  /// stopped the kernel, which devices tell later.
  virtual bool launch(const Module& module, const Launch& launch, std::span<const std::byte> argument,
                      at::Device device) = 0;
};

}  // namespace thunder::executors::cuda
