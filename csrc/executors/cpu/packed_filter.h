#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

namespace thunder::executors::cpu {

/// A tensor in a library's own layout, for as long as it stays the same. Thread-safe.
///
/// A write moves the tensor's version, unless it goes past it (`.data`, NumPy). So all of its bytes are added up in
/// each call, which takes a fraction of the time of bringing them to the layout.
class PackedFilter {
 public:
  using Pack = std::function<at::Tensor(const at::Tensor&)>;

  /// `pack(filter)`, from now or from an earlier call; nullopt when the filter is seen for the first time as it is, and
  /// when it may change without its version.
  [[nodiscard]] std::optional<at::Tensor> of(const at::Tensor& filter, const Pack& pack);

 private:
  std::mutex mutex_;
  c10::weak_intrusive_ptr<c10::TensorImpl> seen_{c10::intrusive_ptr<c10::TensorImpl>()};
  std::uint32_t version_ = 0;
  std::uint64_t checksum_ = 0;
  at::Tensor packed_;
};

/// Of the bytes of a tensor without gaps: moves with each of them and with their order.
[[nodiscard]] std::uint64_t checksum(const at::Tensor& tensor);

}  // namespace thunder::executors::cpu
