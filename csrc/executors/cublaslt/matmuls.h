#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "executors/cublaslt/api.h"

namespace thunder::executors::cublaslt {

/// The device that matmuls run on. Tests have one of their own.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Null: there is no library.
  [[nodiscard]] virtual const Api* api() const = 0;
  [[nodiscard]] virtual void* stream(at::Device device) const = 0;
};
/// NVIDIA's GPUs, with PyTorch's current stream.
[[nodiscard]] const Device& gpu();

/// A matrix as the library reads it: by rows, or by columns.
struct Operand {
  std::int64_t stride = 0;  ///< elements from one row, or column, to the next
  bool is_by_columns = false;
  auto operator<=>(const Operand&) const = default;
};
/// Nullopt: the matrix lies otherwise, or where the library's kernels for 16-byte vectors cannot read it.
[[nodiscard]] std::optional<Operand> operand_of(const at::Tensor& matrix);

/// Matmuls that differ in addresses alone.
struct Problem {
  at::ScalarType dtype = at::kBFloat16;
  Epilogue epilogue = Epilogue::kNone;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  Operand left;
  Operand right;
  std::uint32_t reductions = kAnyReduction;
  at::DeviceIndex device = 0;
  auto operator<=>(const Problem&) const = default;
};

/// The tensors of a matmul. All but the operands are contiguous.
struct Tensors {
  at::Tensor left{};       ///< rows × inner
  at::Tensor right{};      ///< inner × columns
  at::Tensor result{};     ///< rows × columns
  at::Tensor bias{};       ///< columns; may be undefined
  at::Tensor auxiliary{};  ///< rows × columns; may be undefined
};

/// Runs matmuls with epilogues. Thread-safe; lives as long as the process.
class Matmuls {
 public:
  explicit Matmuls(const Device& device);
  ~Matmuls();
  Matmuls(const Matmuls&) = delete;
  Matmuls& operator=(const Matmuls&) = delete;

  [[nodiscard]] const Device& device() const { return device_; }
  /// False: the library has no algorithm, or the user's settings ask for other arithmetic, and nothing was computed.
  bool run(Epilogue epilogue, const Tensors& tensors);

 private:
  class Plan;
  Plan& plan_of(const Problem& problem, const Tensors& tensors);

  const Device& device_;
  std::mutex mutex_;
  std::map<at::DeviceIndex, Api::Handle> libraries_;
  std::map<Problem, std::unique_ptr<Plan>> plans_;
};

}  // namespace thunder::executors::cublaslt
