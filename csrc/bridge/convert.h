#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/argument.h"
#include "ir/type.h"

namespace thunder::bridge {

[[nodiscard]] at::ScalarType to_torch(ir::Dtype dtype);
[[nodiscard]] ir::Dtype from_torch(at::ScalarType dtype);
[[nodiscard]] c10::Device to_torch(ir::Device device);
[[nodiscard]] ir::Device from_torch(c10::Device device);
[[nodiscard]] c10::Layout to_torch(ir::Layout layout);
[[nodiscard]] ir::Layout from_torch(c10::Layout layout);
[[nodiscard]] at::MemoryFormat to_torch(ir::MemoryFormat format);
[[nodiscard]] ir::MemoryFormat from_torch(at::MemoryFormat format);

/// The numbers that symbolic dimensions had when they were recorded.
[[nodiscard]] std::vector<std::int64_t> hints(const ir::Dims& dims);
[[nodiscard]] ir::Dims to_dims(c10::IntArrayRef numbers);

/// Metadata of a tensor. Throws UserError for layouts without strides (sparse) and for nested tensors.
[[nodiscard]] ir::TensorType type_of(const at::Tensor& tensor);

/// The conversions of the parts that only the caller knows.
struct ArgumentReader {
  std::function<ir::Argument(const at::Tensor&)> tensor;   ///< defined tensors
  std::function<ir::Argument(const c10::IValue&)> object;  ///< generators and other opaque values
};
struct ArgumentWriter {
  std::function<c10::IValue(ir::ValueId)> value;
  std::function<c10::IValue(ir::ObjectConstant)> object;
};

/// `value` as an argument; `type` is the schema's real type, which tells a dtype from an integer.
[[nodiscard]] ir::Argument to_argument(const c10::IValue& value, const c10::Type& type, const ArgumentReader& reader);
/// The reverse. A number where a tensor is expected becomes a wrapped number, as in `x + 2`.
[[nodiscard]] c10::IValue to_ivalue(const ir::Argument& argument, const c10::Type& type, const ArgumentWriter& writer);

}  // namespace thunder::bridge
