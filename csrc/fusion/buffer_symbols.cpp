#include "fusion/buffer_symbols.h"

#include <optional>
#include <utility>

#include "passes/symbol_facts.h"

namespace thunder::fusion {

/// The strides of a part where it stands.
ir::Dims strides_in(const BufferRegion& part, const ir::TensorType& buffer) {
  ir::Dims strides = buffer.strides;
  if (part.missing_dim) strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(*part.missing_dim));
  return strides;
}

ir::ValueId BufferSymbols::add_buffer(const ir::TensorType& type, std::vector<BoundSymbol>& where) {
  const auto list = [](const ir::Dims& dims) {
    ir::ArgumentList arguments;
    for (const Dim& dim : dims) arguments.emplace_back(dim);
    return ir::Argument(std::move(arguments));
  };
  ir::TensorType made_type = type;
  made_type.storage_offset = 0;
  made_type.requires_grad = false;
  BoundSymbol made =
      call("aten::empty_strided", "",
           {list(type.sizes), list(type.strides), type.dtype, ir::Argument(), type.device, ir::Argument()},
           ir::make_type(std::move(made_type)));
  made.comment = "results of fusions are computed in it";
  const ir::ValueId buffer = passes::single_result(made);
  where.push_back(std::move(made));
  return buffer;
}

ir::ValueId BufferSymbols::add_slice(ir::ValueId buffer, const BufferRegion& part, std::vector<BoundSymbol>& where) {
  ir::ValueId view = buffer;
  for (std::size_t d = 0; d < part.start.size(); ++d) {
    if (part.missing_dim != d) view = narrow(view, d, part.start[d], part.start[d] + part.sizes[d], where);
  }
  if (!part.missing_dim) return view;
  const std::size_t dim = *part.missing_dim;
  ir::TensorType type = *trace_.tensor_type(view);
  type.storage_offset += part.start[dim] * type.strides[dim];
  type.sizes.erase(type.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  type.strides.erase(type.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  where.push_back(call("aten::select", "int", {view, dim, ir::Argument(part.start[dim])}, ir::make_type(type)));
  return passes::single_result(where.back());
}

void BufferSymbols::fill_around(ir::ValueId buffer, const BufferRegion& part, double number,
                                std::vector<BoundSymbol>& where) {
  ir::ValueId view = buffer;
  std::optional<std::size_t> filled;  // the last dimension, of which `view` still has all
  for (std::size_t d = 0; d < part.start.size(); ++d) {
    const Dim end = part.start[d] + part.sizes[d];
    const Dim size = trace_.tensor_type(buffer)->sizes[d];
    if (part.start[d] == Dim(0) && end == size) continue;
    if (filled) view = narrow(view, *filled, part.start[*filled], part.start[*filled] + part.sizes[*filled], where);
    filled = d;
    const auto fill = [&](const Dim& from, const Dim& to) {
      if (from == to) return;
      const ir::ValueId side = narrow(view, d, from, to, where);
      where.push_back(write("aten::fill_", "Scalar", {side, number}));
    };
    fill(0, part.start[d]);
    fill(end, size);
  }
}

BoundSymbol BufferSymbols::copy(ir::ValueId target, ir::ValueId value) const {
  return write("aten::copy_", "", {target, value, false});
}

ir::ValueId BufferSymbols::narrow(ir::ValueId view, std::size_t dim, const Dim& start, const Dim& end,
                                  std::vector<BoundSymbol>& where) {
  ir::TensorType type = *trace_.tensor_type(view);
  if (start == Dim(0) && end == type.sizes[dim]) return view;
  type.storage_offset += start * type.strides[dim];
  type.sizes[dim] = end - start;
  where.push_back(call("aten::slice", "Tensor", {view, dim, ir::Argument(start), ir::Argument(end), 1},
                       ir::make_type(std::move(type))));
  return passes::single_result(where.back());
}

BoundSymbol BufferSymbols::call(const char* name, const char* overload, ir::ArgumentList arguments,
                                const ir::TypePtr& type) {
  BoundSymbol symbol;
  symbol.op = find_operator_(name, overload);
  symbol.arguments = std::move(arguments);
  symbol.results = {ir::Argument(trace_.add_value(type))};
  symbol.location = location_;
  return symbol;
}

BoundSymbol BufferSymbols::write(const char* name, const char* overload, ir::ArgumentList arguments) const {
  BoundSymbol symbol;
  symbol.op = find_operator_(name, overload);
  symbol.arguments = std::move(arguments);
  symbol.results = {ir::Argument()};
  symbol.location = location_;
  return symbol;
}

}  // namespace thunder::fusion
