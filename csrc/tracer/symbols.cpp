#include "tracer/symbols.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "operators/names.h"
#include "tracer/operators.h"

namespace thunder::tracer {
namespace {

ir::BoundSymbol make(const char* name, ir::ArgumentList arguments, ir::Argument result, const char* overload = "") {
  ir::BoundSymbol symbol;
  symbol.op = find_operator(name, overload);
  symbol.arguments = std::move(arguments);
  symbol.results.push_back(std::move(result));
  return symbol;
}

ir::Argument list_of(at::IntArrayRef numbers) { return ir::ArgumentList(numbers.begin(), numbers.end()); }
ir::Argument list_of(const ir::Dims& dims) { return ir::ArgumentList(dims.begin(), dims.end()); }

}  // namespace

ir::BoundSymbol alias_symbol(ir::ValueId value, ir::ValueId result) { return make("aten::alias", {value}, result); }

ir::BoundSymbol clone_symbol(ir::ValueId value, ir::ValueId result) {
  return make("aten::clone", {ir::Argument(value), ir::None{}}, result);
}

ir::BoundSymbol restride_symbol(ir::ValueId value, const ir::Dims& strides, ir::ValueId result) {
  return make("thunder::restride", {value, list_of(strides)}, result);
}

ir::BoundSymbol detach_symbol(ir::ValueId value, ir::ValueId result) { return make("aten::detach", {value}, result); }

ir::BoundSymbol add_symbol(ir::ValueId left, ir::ValueId right, ir::ValueId result) {
  return make("aten::add", {left, right, std::int64_t{1}}, result, "Tensor");
}

ir::BoundSymbol zeros_symbol(const ir::TensorType& type, ir::ValueId result) {
  return make("aten::zeros", {list_of(type.sizes), type.dtype, ir::Argument(), type.device, ir::Argument()}, result);
}

ir::BoundSymbol empty_symbol(const ir::TensorType& type, ir::ValueId result) {
  return make(operators::kEmptyStrided,
              {list_of(type.sizes), list_of(type.strides), type.dtype, ir::Argument(), type.device, ir::Argument()},
              result);
}

ir::BoundSymbol copy_symbol(ir::ValueId target, ir::ValueId source) {
  return make("aten::copy_", {target, source, false}, ir::None{});
}

ir::BoundSymbol resize_symbol(ir::ValueId target, at::IntArrayRef sizes) {
  return make("aten::resize_", {target, list_of(sizes), ir::None{}}, ir::None{});
}

ir::BoundSymbol lay_out_symbol(ir::ValueId target, at::IntArrayRef sizes, at::IntArrayRef strides,
                               ir::Argument offset) {
  return make("aten::as_strided_", {target, list_of(sizes), list_of(strides), std::move(offset)}, ir::None{});
}

ir::BoundSymbol need_symbol(ir::ValueId value) {
  ir::BoundSymbol symbol = make("aten::_assert_tensor_metadata", {value}, ir::None{});
  symbol.arguments.resize(symbol.op->parameters.size(), ir::Argument(ir::None{}));
  symbol.results.clear();
  return symbol;
}

}  // namespace thunder::tracer
