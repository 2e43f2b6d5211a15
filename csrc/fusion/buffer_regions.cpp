// Operations that put tensors into a larger one: where each stands, and how a fusion reads them.
#include "fusion/buffer_regions.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

/// An operation's arguments, and the sizes of its result.
struct Assembly {
  const BoundSymbol& symbol;
  const Trace& trace;
  Dims sizes;

  [[nodiscard]] std::int64_t number(std::size_t i, std::int64_t otherwise) const {
    const auto* given = i < symbol.arguments.size() ? symbol.arguments[i].get<std::int64_t>() : nullptr;
    return given == nullptr ? otherwise : *given;
  }
  [[nodiscard]] std::size_t dim(std::size_t i) const { return wrap_dim(number(i, 0), sizes.size()); }
  [[nodiscard]] BufferRegion at_origin(const ir::Argument& value) const {
    const auto id = std::get<ir::ValueId>(value.content);
    return {id, trace.tensor_type(id)->sizes, Dims(sizes.size(), 0), std::nullopt};
  }
  /// At an index of a dimension that the value does not have.
  [[nodiscard]] BufferRegion at_index(const ir::Argument& value, std::size_t dim, const Dim& index) const {
    BufferRegion part = at_origin(value);
    part.missing_dim = dim;
    part.sizes = part.in_result(part.sizes, 1);
    part.start[dim] = index;
    return part;
  }
};
/// A number, or an expression over symbols.
std::optional<Dim> size_in(const ir::Argument& argument) {
  if (const auto* dim = argument.get<Dim>()) return *dim;
  const auto* number = argument.get<std::int64_t>();
  return number == nullptr ? std::nullopt : std::make_optional<Dim>(*number);
}

using Place = bool (*)(const Assembly& assembly, BufferRegions& regions);

bool place_cat(const Assembly& assembly, BufferRegions& regions) {
  const std::size_t dim = assembly.dim(1);
  Dim start = 0;
  for (const ir::Argument& tensor : std::get<ir::ArgumentList>(assembly.symbol.arguments[0].content)) {
    regions.parts.push_back(assembly.at_origin(tensor));
    BufferRegion& part = regions.parts.back();
    if (part.sizes.size() != assembly.sizes.size()) return false;  // eager takes an empty one of any rank
    part.start[dim] = start;
    start += part.sizes[dim];
  }
  return true;
}

bool place_stack(const Assembly& assembly, BufferRegions& regions) {
  std::int64_t index = 0;
  for (const ir::Argument& tensor : std::get<ir::ArgumentList>(assembly.symbol.arguments[0].content)) {
    regions.parts.push_back(assembly.at_index(tensor, assembly.dim(1), index++));
  }
  return true;
}

/// PyTorch cuts before it pads, and refuses to cut more than there is, also where as much is added on the other side.
bool has_what_is_cut(const Dim& size, const Dim& before, const Dim& after) {
  constexpr std::int64_t kLeastOfSymbol = 2;
  if ((before.hint < 0) == (after.hint < 0)) return true;  // else the size of the result tells
  const std::int64_t least = size.is_concrete() ? size.hint : kLeastOfSymbol;
  return before.is_concrete() && after.is_concrete() && least + std::min(before.hint, after.hint) >= 0;
}

bool place_pad(const Assembly& assembly, BufferRegions& regions) {
  BufferRegion part = assembly.at_origin(assembly.symbol.arguments[0]);
  const auto& pads = std::get<ir::ArgumentList>(assembly.symbol.arguments[1].content);
  for (std::size_t i = 0; i + 1 < pads.size(); i += 2) {
    const std::size_t dim = assembly.sizes.size() - 1 - i / 2;
    const auto before = size_in(pads[i]);
    const auto after = size_in(pads[i + 1]);
    if (!before || !after || !has_what_is_cut(part.sizes[dim], *before, *after)) return false;
    part.start[dim] = *before;
  }
  regions.parts.push_back(std::move(part));
  // As the program calls it, it has a mode before the number.
  const bool has_mode = assembly.symbol.op->name == "aten::pad";
  const auto rest = std::span(assembly.symbol.arguments).subspan(2);
  if (has_mode && !rest.empty() && rest[0] != ir::Argument(std::string("constant"))) return false;
  const std::size_t fill = has_mode ? 1 : 0;
  const ir::Argument number = fill < rest.size() && !rest[fill].is<ir::None>() ? rest[fill] : ir::Argument(0);
  const auto* integer = number.get<std::int64_t>();
  if (integer == nullptr && !number.is<double>()) return false;
  regions.fill = integer != nullptr ? static_cast<double>(*integer) : std::get<double>(number.content);
  return integer == nullptr || static_cast<std::int64_t>(*regions.fill) == *integer;
}

/// Where a slice begins, as PyTorch takes it; nullopt: that depends on symbols.
std::optional<Dim> slice_start(const Assembly& assembly, std::size_t argument, std::size_t dim) {
  const Dim& size = assembly.sizes[dim];
  if (argument < assembly.symbol.arguments.size() && assembly.symbol.arguments[argument].is<Dim>()) return std::nullopt;
  const std::int64_t start = assembly.number(argument, 0);
  if (start == 0) return Dim(0);
  if (!size.is_concrete()) return std::nullopt;
  return std::clamp<std::int64_t>(start < 0 ? start + size.hint : start, 0, size.hint);
}
bool place_slice_backward(const Assembly& assembly, BufferRegions& regions) {
  const std::size_t dim = assembly.dim(2);
  const auto start = slice_start(assembly, 3, dim);
  if (!start) return false;
  regions.parts.push_back(assembly.at_origin(assembly.symbol.arguments[0]));
  regions.parts[0].start[dim] = *start;
  regions.fill = 0;
  return assembly.number(5, 1) == 1;
}
/// Whether the part has the sizes of the slice that it replaces: the kernel refuses others, the meta kernel does not.
bool fits_slice(const Assembly& assembly, const Dims& part, std::size_t dim, std::int64_t start) {
  if (part.size() != assembly.sizes.size()) return false;
  Dims expected = assembly.sizes;
  const std::int64_t size = expected[dim].hint;
  const ir::ArgumentList& arguments = assembly.symbol.arguments;
  const auto end = arguments.size() > 4 ? size_in(arguments[4]) : std::nullopt;
  const std::int64_t last = !end ? size : end->hint < 0 ? end->hint + size : end->hint;
  expected[dim] = part[dim];
  return part == expected && part[dim].hint == std::max<std::int64_t>(std::min(last, size) - start, 0);
}
bool place_slice_scatter(const Assembly& assembly, BufferRegions& regions) {
  const std::size_t dim = assembly.dim(2);
  if (dim >= assembly.sizes.size()) return false;  // the meta kernel takes any
  const auto start = slice_start(assembly, 3, dim);
  if (!start) return false;
  for (std::size_t i = 0; i < 2; ++i) regions.parts.push_back(assembly.at_origin(assembly.symbol.arguments[i]));
  if (!fits_slice(assembly, regions.parts[1].sizes, dim, start->hint)) return false;
  regions.parts[1].start[dim] = *start;
  return assembly.number(5, 1) == 1;
}
bool place_select_backward(const Assembly& assembly, BufferRegions& regions) {
  const std::size_t dim = assembly.dim(2);
  const auto given = size_in(assembly.symbol.arguments[3]);
  if (!given) return false;
  // A symbol is never both: `note_select` of the tracer makes a condition of its sign.
  const Dim index = given->hint < 0 ? *given + assembly.sizes[dim] : *given;
  regions.parts.push_back(assembly.at_index(assembly.symbol.arguments[0], dim, index));
  regions.fill = 0;
  return true;
}

constexpr std::pair<std::string_view, Place> kRows[] = {
    {"aten::cat", &place_cat},
    {"aten::stack", &place_stack},
    {"aten::concat", &place_cat},
    {"aten::pad", &place_pad},
    {"aten::constant_pad_nd", &place_pad},
    {"aten::slice_backward", &place_slice_backward},
    {"aten::slice_scatter", &place_slice_scatter},
    {"aten::select_backward", &place_select_backward},
};

}  // namespace

std::vector<std::string_view> placing_operators() {
  std::vector<std::string_view> names;
  for (const auto& [name, place] : kRows) names.push_back(name);
  return names;
}

Dims BufferRegion::in_result(Dims dims, std::int64_t missing) const {
  if (missing_dim) dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(*missing_dim), missing);
  return dims;
}

std::optional<BufferRegions> buffer_regions_of(const BoundSymbol& symbol, const Trace& trace) {
  const auto* row = std::ranges::find_if(kRows, [&](const auto& each) { return each.first == symbol.op->name; });
  const ir::TensorType* joined = result_type(symbol, trace);
  if (row == std::end(kRows) || !symbol.op->overload.empty() || joined == nullptr) return std::nullopt;
  bool fits = true;
  passes::for_each_argument(symbol, [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    fits = fits && type != nullptr && type->dtype == joined->dtype && passes::element_count(*type) > 0;
  });
  BufferRegions regions;
  if (!fits || !row->second({symbol, trace, joined->sizes}, regions)) return std::nullopt;
  return regions;
}

}  // namespace thunder::fusion
