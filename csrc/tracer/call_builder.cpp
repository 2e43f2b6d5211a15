#include "tracer/call_builder.h"

#include <utility>

#include "operators/names.h"
#include "tracer/recording.h"

namespace thunder::tracer {

using at::Tensor;
using c10::IValue;

Tensor CallBuilder::call(OperatorCall call) const {
  return recording_.call_by_name(call.name, call.overload, std::move(call.arguments))[0].toTensor();
}

Tensor CallBuilder::clone(const Tensor& x) const { return call({"aten::clone", "", {x}}); }
Tensor CallBuilder::detach(const Tensor& x) const { return call({"aten::detach", "", {x}}); }

Tensor CallBuilder::to(const Tensor& x, const Tensor& like, at::MemoryFormat format) const {
  const auto dtype = static_cast<std::int64_t>(like.scalar_type());
  return call(
      {"aten::_to_copy", "", {x, dtype, IValue(), like.device(), false, false, static_cast<std::int64_t>(format)}});
}

Tensor CallBuilder::empty_strided_like(const Tensor& like) const {
  return call({operators::kEmptyStrided,
               "",
               {like.sizes().vec(), like.strides().vec(), like.scalar_type(), IValue(), like.device(), IValue()}});
}

Tensor CallBuilder::zeros_like(const Tensor& x) const { return call({"aten::zeros_like", "", {x}}); }
Tensor CallBuilder::ones_like(const Tensor& x) const { return call({"aten::ones_like", "", {x}}); }

Tensor CallBuilder::arange(std::int64_t count, at::Device device) const {
  return call({"aten::arange", "", {count, static_cast<std::int64_t>(at::kLong), IValue(), device}});
}

Tensor CallBuilder::expand(const Tensor& x, at::IntArrayRef sizes) const {
  return call({"aten::expand", "", {x, sizes.vec()}});
}
Tensor CallBuilder::permute(const Tensor& x, at::IntArrayRef dims) const {
  return call({"aten::permute", "", {x, dims.vec()}});
}
Tensor CallBuilder::reshape(const Tensor& x, at::IntArrayRef sizes) const {
  return call({"aten::reshape", "", {x, sizes.vec()}});
}
Tensor CallBuilder::transpose(const Tensor& x, std::int64_t dim, std::int64_t other) const {
  return call({"aten::transpose", "int", {x, dim, other}});
}
Tensor CallBuilder::view_as_real(const Tensor& x) const { return call({"aten::view_as_real", "", {x}}); }
Tensor CallBuilder::view_as_complex(const Tensor& x) const { return call({"aten::view_as_complex", "", {x}}); }
Tensor CallBuilder::restride(const Tensor& x, at::IntArrayRef strides) const {
  return call({"thunder::restride", "", {x, strides.vec()}});
}

Tensor CallBuilder::add(const Tensor& a, const Tensor& b) const { return call({"aten::add", "Tensor", {a, b}}); }
Tensor CallBuilder::sub(const Tensor& a, const Tensor& b) const { return call({"aten::sub", "Tensor", {a, b}}); }
Tensor CallBuilder::eq(const Tensor& a, const Tensor& b) const { return call({"aten::eq", "Tensor", {a, b}}); }
Tensor CallBuilder::is_not_zero(const Tensor& x) const { return call({"aten::ne", "Scalar", {x, c10::Scalar(0)}}); }
Tensor CallBuilder::isclose(std::vector<IValue> arguments) const {
  return call({"aten::isclose", "", std::move(arguments)});
}
Tensor CallBuilder::where(const Tensor& condition, const Tensor& a, const Tensor& b) const {
  return call({"aten::where", "self", {condition, a, b}});
}
Tensor CallBuilder::where(const Tensor& condition, const Tensor& a, const at::Scalar& b) const {
  return call({"aten::where", "ScalarOther", {condition, a, b}});
}
Tensor CallBuilder::all(const Tensor& x) const { return call({"aten::all", "", {x}}); }
Tensor CallBuilder::sum(const Tensor& x) const { return call({"aten::sum", "", {x}}); }
Tensor CallBuilder::index_copy(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source) const {
  return call({"aten::index_copy", "", {x, dim, index, source}});
}

}  // namespace thunder::tracer
