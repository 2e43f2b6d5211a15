#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "bridge/convert.h"
#include "check.h"
#include "ir/builder.h"
#include "traced_operator.h"

namespace thunder::check {

/// A trace of two symbols, `s0` and `s1`, made by hand.
class SymbolicProgram {
 public:
  const ir::Dim rows = ir::Dim::symbol(0, 24);
  const ir::Dim columns = ir::Dim::symbol(1, 96);

  ir::ValueId input(ir::Dims sizes, ir::Dtype dtype = ir::Dtype::kFloat32) {
    return trace.add_input(ir::tensor_type(dtype, std::move(sizes)));
  }
  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, ir::Dims sizes,
                   ir::Dtype dtype = ir::Dtype::kFloat32) {
    return call(name, overload, std::move(arguments), ir::tensor_type(dtype, std::move(sizes)));
  }
  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, const ir::TypePtr& type) {
    return ir::add_call(trace, find(name, overload), std::move(arguments), type);
  }
  /// Calls an operator of several results.
  std::vector<ir::ValueId> call_for_all(const char* name, ir::ArgumentList arguments,
                                        const std::vector<ir::Dims>& all) {
    std::vector<ir::ValueId> values;
    ir::ArgumentList results;
    for (const ir::Dims& sizes : all) {
      values.push_back(trace.add_value(ir::tensor_type(ir::Dtype::kFloat32, sizes)));
      results.emplace_back(values.back());
    }
    ir::add_symbol(trace, find(name, ""), std::move(arguments), std::move(results));
    return values;
  }
  [[nodiscard]] ir::TensorType type_of(ir::ValueId value) const { return *trace.tensor_type(value); }

  ir::Trace trace{"computation", std::make_shared<ir::TraceContext>()};
};

/// An input of a type without symbols: random numbers, or indices below five.
inline at::Tensor sample(const ir::TensorType& type) {
  const std::vector<std::int64_t> sizes = bridge::hints(type.sizes);
  const at::Tensor tensor = type.dtype == ir::Dtype::kInt64 ? at::randint(0, 5, sizes, at::kLong) : at::randn(sizes);
  return at::empty_strided(sizes, bridge::hints(type.strides), tensor.options()).copy_(tensor);
}

inline void equal_tensors(const at::Tensor& got, const at::Tensor& expected, const std::string& sizes) {
  const bool is_alike = got.sizes() == expected.sizes() && got.strides() == expected.strides() &&
                        got.scalar_type() == expected.scalar_type();
  if (is_alike && at::allclose(got, expected, 1e-4, 1e-5)) return;
  report_failure(
      __FILE__, __LINE__,
      "another result at sizes " + sizes + ": strides " + show(got.strides()) + " and " + show(expected.strides()));
}

}  // namespace thunder::check
