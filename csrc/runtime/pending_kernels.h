#pragma once

namespace thunder::runtime {

/// Kernels that are compiled in the background, while programs run without them.
class PendingKernels {
 public:
  virtual ~PendingKernels() = default;
  PendingKernels() = default;
  PendingKernels(const PendingKernels&) = delete;
  PendingKernels& operator=(const PendingKernels&) = delete;

  /// Returns when all that were requested are there, or have failed.
  virtual void wait() const = 0;
  /// Whether `wait` would return at once.
  [[nodiscard]] virtual bool is_settled() const = 0;
};

}  // namespace thunder::runtime
