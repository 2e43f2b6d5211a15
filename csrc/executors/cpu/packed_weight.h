#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace thunder::executors::cpu {

/// How a weight is known to be the one that was packed. Tensor, memory and version are looked at in any case.
enum class WeightGuard : std::uint8_t {
  kBytes,    ///< all of its bytes are added up in each call: writes past the version (`.data`, NumPy) are seen, too
  kVersion,  ///< the user promises that there are none
};

/// A weight in a library's own layout, for as long as it stays the same. Thread-safe.
///
/// Programs share what they keep of the same weight in the same layout. It goes with the last of them; with the weight
/// when another one is packed.
class PackedWeight {
 public:
  using Pack = std::function<at::Tensor(const at::Tensor&)>;
  /// `layout` names what `pack` gives.
  PackedWeight(WeightGuard guard, std::string layout) : guard_(guard), layout_(std::move(layout)) {}

  /// `pack(weight)`, from now or from an earlier call; nullopt when the weight is seen for the first time as it is, and
  /// when it may change without its version.
  [[nodiscard]] std::optional<at::Tensor> of(const at::Tensor& weight, const Pack& pack);

  struct Kept;

 private:
  WeightGuard guard_;
  std::string layout_;
  std::mutex mutex_;
  std::shared_ptr<Kept> kept_;
};

/// The checksum of the bytes of a tensor without gaps: changes with each of them and with their order.
[[nodiscard]] std::uint64_t checksum(const at::Tensor& tensor);

}  // namespace thunder::executors::cpu
