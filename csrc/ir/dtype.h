#pragma once

#include <cstdint>
#include <string_view>

namespace thunder::ir {

// name in C++, name in torch, short name in printed comments, bytes
#define THUNDER_FORALL_DTYPES(_)                         \
  _(kBool, "bool", "b8", 1)                              \
  _(kUint8, "uint8", "ui8", 1)                           \
  _(kUint16, "uint16", "ui16", 2)                        \
  _(kUint32, "uint32", "ui32", 4)                        \
  _(kUint64, "uint64", "ui64", 8)                        \
  _(kInt8, "int8", "i8", 1)                              \
  _(kInt16, "int16", "i16", 2)                           \
  _(kInt32, "int32", "i32", 4)                           \
  _(kInt64, "int64", "i64", 8)                           \
  _(kFloat16, "float16", "f16", 2)                       \
  _(kBfloat16, "bfloat16", "bf16", 2)                    \
  _(kFloat32, "float32", "f32", 4)                       \
  _(kFloat64, "float64", "f64", 8)                       \
  _(kComplex32, "complex32", "c32", 4)                   \
  _(kComplex64, "complex64", "c64", 8)                   \
  _(kComplex128, "complex128", "c128", 16)               \
  _(kFloat8E4m3fn, "float8_e4m3fn", "f8e4m3fn", 1)       \
  _(kFloat8E5m2, "float8_e5m2", "f8e5m2", 1)             \
  _(kFloat8E4m3fnuz, "float8_e4m3fnuz", "f8e4m3fnuz", 1) \
  _(kFloat8E5m2fnuz, "float8_e5m2fnuz", "f8e5m2fnuz", 1) \
  _(kFloat8E8m0fnu, "float8_e8m0fnu", "f8e8m0fnu", 1)

enum class Dtype : std::uint8_t {
#define THUNDER_ENUMERATOR(enumerator, torch_name, short_name, bytes) enumerator,
  THUNDER_FORALL_DTYPES(THUNDER_ENUMERATOR)
#undef THUNDER_ENUMERATOR
};

/// `float32` of `torch.float32`.
[[nodiscard]] std::string_view torch_name(Dtype dtype);
/// `f32`.
[[nodiscard]] std::string_view short_name(Dtype dtype);
/// Bytes of one element.
[[nodiscard]] std::int64_t size_of(Dtype dtype);
[[nodiscard]] bool is_floating_point(Dtype dtype);
/// Whether it is one of the floating-point dtypes of 16 bits.
[[nodiscard]] constexpr bool is_half(Dtype dtype) { return dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat16; }
[[nodiscard]] bool is_complex(Dtype dtype);

enum class DeviceType : std::uint8_t { kCpu, kCuda, kMeta, kOther };

struct Device {
  DeviceType type = DeviceType::kCpu;
  std::int8_t index = -1;  ///< -1: the current one
  friend bool operator==(const Device&, const Device&) = default;
};

[[nodiscard]] std::string_view torch_name(DeviceType type);

enum class Layout : std::uint8_t {
  kStrided,
  kSparse,
  kSparseCsr,
  kSparseCsc,
  kSparseBsr,
  kSparseBsc,
  kMkldnn,
  kJagged
};
enum class MemoryFormat : std::uint8_t { kContiguous, kPreserve, kChannelsLast, kChannelsLast3d };

[[nodiscard]] std::string_view torch_name(Layout layout);
[[nodiscard]] std::string_view torch_name(MemoryFormat format);

}  // namespace thunder::ir
