#include "passes/rotations.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/layout.h"
#include "ir/substitution.h"
#include "ir/uses.h"
#include "operators/names.h"
#include "passes/alias_analysis.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// Operations on elements, whose results lie like their first operand that has as many elements.
constexpr std::array<std::string_view, 5> kElementwise{"aten::add", "aten::sub", "aten::mul", "aten::neg",
                                                       operators::kCast};

/// The type of a tensor without gaps whose dimensions have that order in memory.
ir::TensorType in_order(ir::TensorType type, const std::vector<std::size_t>& order) {
  type.strides = ir::strides_in_order(type.sizes, order);
  type.storage_offset = 0;
  return type;
}

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator)
      : trace_(trace),
        device_(device),
        find_operator_(find_operator),
        uses_(trace),
        aliases_(trace),
        result_(trace.empty_copy(kRotations)),
        replaced_(trace.value_count()) {}

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      const auto rotated = rotation_by(symbol);
      if (!rotated || !add_rotation(symbol, *rotated)) replaced_.apply(result_.add(symbol));
    }
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  struct Rotation {
    ir::ValueId source = ir::kNoValue;
    bool is_derivative = false;  ///< `cat([x[..., h:], -x[..., :h]])`, the rotation's negative
  };

  // --- what is a rotation

  [[nodiscard]] const ir::BoundSymbol* maker(ir::ValueId id) const {
    const std::uint32_t place = uses_.maker(id);
    return place == kNoPlace ? nullptr : &trace_.symbols[place];
  }
  [[nodiscard]] static bool is(const ir::BoundSymbol* symbol, std::string_view name, std::string_view overload = "") {
    return symbol != nullptr && symbol->op->name == name && symbol->op->overload == overload;
  }
  [[nodiscard]] const ir::TensorType& type(ir::ValueId id) const { return *result_.tensor_type(id); }

  /// A floating-point tensor on the device, of two halves in its last dimension, which are contiguous.
  [[nodiscard]] bool has_halves(ir::ValueId id) const {
    const ir::TensorType* given = trace_.tensor_type(id);
    if (!is_float(given) || given->device.type != device_ || given->sizes.size() < 2) return false;
    const auto is_number = [](const ir::Dim& dim) { return dim.is_concrete(); };
    return std::ranges::all_of(given->sizes, is_number) && std::ranges::all_of(given->strides, is_number) &&
           given->sizes.back().hint >= 2 && given->sizes.back().hint % 2 == 0 && given->strides.back() == ir::Dim(1) &&
           !aliases_.is_written(id);
  }

  /// The value that another one is a half of, in the last dimension; kNoValue: it is not that half of anything.
  [[nodiscard]] ir::ValueId half_of(ir::ValueId id, bool second) const {
    const ir::BoundSymbol* slice = maker(id);
    if (!is(slice, operators::kSlice, "Tensor") || slice->arguments.size() < 5) return ir::kNoValue;
    const ir::ValueId source = value_argument(*slice, 0);
    if (!has_halves(source) || !is_last(slice->arguments[1], source)) return ir::kNoValue;
    const ir::TensorType& all = *trace_.tensor_type(source);
    const std::int64_t half = all.sizes.back().hint / 2;
    const bool fits = slice->arguments[2] == ir::Argument(second ? half : std::int64_t{0}) &&
                      slice->arguments[4] == ir::Argument(1) && trace_.tensor_type(id)->sizes.back() == ir::Dim(half);
    return fits ? source : ir::kNoValue;
  }
  [[nodiscard]] bool is_last(const ir::Argument& dim, ir::ValueId of) const {
    const auto* number = dim.get<std::int64_t>();
    const std::size_t rank = trace_.tensor_type(of)->sizes.size();
    return number != nullptr && wrap_dim(*number, rank) + 1 == rank;
  }
  [[nodiscard]] ir::ValueId negated(ir::ValueId id) const {
    const ir::BoundSymbol* neg = maker(id);
    return is(neg, "aten::neg") ? value_argument(*neg, 0) : ir::kNoValue;
  }

  /// The gradient of a half that a value pads with zeros; kNoValue: it pads none of that half.
  [[nodiscard]] ir::ValueId padded_half(ir::ValueId id, bool second) const {
    const ir::BoundSymbol* pad = maker(id);
    if (!is(pad, "aten::slice_backward") || pad->arguments.size() < 6) return ir::kNoValue;
    const std::int64_t half = trace_.tensor_type(id)->sizes.back().hint / 2;
    const ir::ValueId part = value_argument(*pad, 0);
    const bool fits = is_last(pad->arguments[2], id) && pad->arguments[5] == ir::Argument(1) &&
                      pad->arguments[3] == ir::Argument(second ? half : std::int64_t{0}) && part != ir::kNoValue &&
                      trace_.tensor_type(part)->sizes.back() == ir::Dim(half);
    return fits ? part : ir::kNoValue;
  }

  [[nodiscard]] std::optional<Rotation> rotation_by(const ir::BoundSymbol& symbol) const {
    const ir::ValueId result = single_result(symbol);
    if (!has_halves(result)) return std::nullopt;
    if (is(&symbol, operators::kCat)) {
      const auto* parts = symbol.arguments[0].get<ir::ArgumentList>();
      const bool joins =
          parts != nullptr && parts->size() == 2 && symbol.arguments.size() > 1 && is_last(symbol.arguments[1], result);
      const auto* first = joins ? (*parts)[0].get<ir::ValueId>() : nullptr;
      const auto* second = joins ? (*parts)[1].get<ir::ValueId>() : nullptr;
      if (first == nullptr || second == nullptr) return std::nullopt;
      const ir::ValueId source = half_of(negated(*first), true);
      const bool fits = source != ir::kNoValue && half_of(*second, false) == source &&
                        trace_.tensor_type(source)->sizes == trace_.tensor_type(result)->sizes;
      return fits ? std::make_optional(Rotation{source, false}) : std::nullopt;
    }
    if (!is(&symbol, "aten::add", "Tensor") || symbol.arguments.size() != 3 || symbol.arguments[2] != ir::Argument(1))
      return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
      const ir::ValueId behind = value_argument(symbol, i);
      const ir::ValueId front = value_argument(symbol, 1 - i);
      const ir::ValueId source = half_of(negated(padded_half(behind, true)), false);
      const bool fits = source != ir::kNoValue && half_of(padded_half(front, false), true) == source &&
                        trace_.tensor_type(source)->sizes == trace_.tensor_type(result)->sizes;
      if (fits) return Rotation{source, true};
    }
    return std::nullopt;
  }

  // --- the rotation of what lies in memory

  bool add_rotation(const ir::BoundSymbol& symbol, const Rotation& rotation) {
    const ir::ValueId result = single_result(symbol);
    location_ = symbol.location;
    std::unordered_map<ir::ValueId, ir::TypePtr> moved;
    if (!may_lie(result, ir::dims_by_stride(*trace_.tensor_type(base_of(rotation.source))), moved)) return false;
    for (const auto& [id, changed] : moved) result_.set_type(id, changed);
    ir::ValueId value = rotated(rotation.source);
    if (rotation.is_derivative) value = call("aten::neg", "", {ir::Argument(value)}, type(value));
    replaced_.set(result, ir::Argument(value));
    return true;
  }

  /// The operand that a value is computed from element by element, by casts and products with a small tensor.
  [[nodiscard]] ir::ValueId operand_of(ir::ValueId id) const {
    const ir::BoundSymbol* symbol = maker(id);
    if (is(symbol, operators::kCast)) {
      const ir::ValueId source = value_argument(*symbol, 0);
      return has_halves(source) && is_float(trace_.tensor_type(id)) ? source : ir::kNoValue;
    }
    if (!is(symbol, "aten::mul", "Tensor")) return ir::kNoValue;
    for (std::size_t i = 0; i < 2; ++i) {
      const ir::ValueId large = value_argument(*symbol, i);
      if (has_halves(large) && trace_.tensor_type(large)->sizes == trace_.tensor_type(id)->sizes &&
          is_small(value_argument(*symbol, 1 - i), id))
        return large;
    }
    return ir::kNoValue;
  }
  [[nodiscard]] bool is_small(ir::ValueId factor, ir::ValueId beside) const {
    const ir::TensorType* all = trace_.tensor_type(beside);
    const ir::TensorType* type = trace_.tensor_type(factor);
    return type != nullptr && has_halves(factor) && type->sizes.back() == all->sizes.back() &&
           2 * element_count(*type) <= element_count(*all);
  }
  [[nodiscard]] ir::ValueId base_of(ir::ValueId id) const {
    for (ir::ValueId next = operand_of(id); next != ir::kNoValue; next = operand_of(id)) id = next;
    return id;
  }

  ir::ValueId rotated(ir::ValueId id) {
    const auto known = rotated_.find(id);
    if (known != rotated_.end()) return known->second;
    const ir::ValueId operand = operand_of(id);
    const ir::ValueId value = operand == ir::kNoValue ? rotated_in_memory(id) : computed_of(id, rotated(operand));
    rotated_[id] = value;
    return value;
  }

  /// The cast, or the product, that made a value of its operand, of the rotated operand.
  ir::ValueId computed_of(ir::ValueId id, ir::ValueId operand) {
    ir::BoundSymbol symbol = *maker(id);
    ir::TensorType changed = in_order(type(id), ir::dims_by_stride(type(operand)));
    const std::size_t large = value_argument(symbol, 0) == operand_of(id) ? 0 : 1;
    if (symbol.op->name == "aten::mul")
      symbol.arguments[1 - large] = ir::Argument(swapped(value_argument(symbol, 1 - large)));
    symbol.arguments[large] = ir::Argument(operand);
    symbol.results = {ir::Argument(result_.add_value(ir::make_type(std::move(changed))))};
    symbol.nested.clear();
    return single_result(result_.add(std::move(symbol)));
  }

  ir::ValueId rotated_in_memory(ir::ValueId id) {
    const ir::TensorType given = type(id);
    const std::vector<std::size_t> order = ir::dims_by_stride(given);
    ir::TensorType flat = given;
    for (std::size_t i = 0; i < order.size(); ++i) {
      flat.sizes[i] = given.sizes[order[i]];
      flat.strides[i] = given.strides[order[i]];
    }
    const ir::ValueId memory = permuted(id, order, flat);
    const std::int64_t half = given.sizes.back().hint / 2;
    ir::TensorType all = flat;
    all.strides = ir::contiguous_strides(all.sizes);
    all.storage_offset = 0;
    const ir::ValueId front =
        call("aten::neg", "", {ir::Argument(padded(sliced(memory, half, 2 * half), 0, half, all))}, all);
    const ir::ValueId behind = padded(sliced(memory, 0, half), half, 0, all);
    const ir::ValueId sum =
        call("aten::add", "Tensor", {ir::Argument(front), ir::Argument(behind), ir::Argument(1)}, all);
    std::vector<std::size_t> back(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
    return permuted(sum, back, in_order(given, order));
  }

  /// The second half of a small tensor before the first.
  ir::ValueId swapped(ir::ValueId id) {
    const auto known = swapped_.find(id);
    if (known != swapped_.end()) return known->second;
    const std::int64_t half = type(id).sizes.back().hint / 2;
    ir::TensorType all = type(id);
    all.strides = ir::contiguous_strides(all.sizes);
    all.storage_offset = 0;
    ir::ArgumentList parts{ir::Argument(sliced(id, half, 2 * half)), ir::Argument(sliced(id, 0, half))};
    const ir::ValueId value =
        call(operators::kCat, "", {ir::Argument(std::move(parts)), ir::Argument(-1)}, std::move(all));
    swapped_[id] = value;
    return value;
  }

  ir::ValueId permuted(ir::ValueId id, const std::vector<std::size_t>& order, ir::TensorType to) {
    if (std::ranges::is_sorted(order)) return id;
    ir::ArgumentList dims;
    for (const std::size_t dim : order) dims.emplace_back(static_cast<std::int64_t>(dim));
    return call("aten::permute", "", {ir::Argument(id), ir::Argument(std::move(dims))}, std::move(to));
  }

  ir::ValueId sliced(ir::ValueId id, std::int64_t begin, std::int64_t end) {
    ir::TensorType part = type(id);
    part.sizes.back() = end - begin;
    part.storage_offset += begin;
    const auto last = static_cast<std::int64_t>(part.sizes.size()) - 1;
    return call(operators::kSlice, "Tensor",
                {ir::Argument(id), ir::Argument(last), ir::Argument(begin), ir::Argument(end), ir::Argument(1)},
                std::move(part));
  }

  ir::ValueId padded(ir::ValueId id, std::int64_t before, std::int64_t behind, const ir::TensorType& to) {
    ir::ArgumentList counts{ir::Argument(before), ir::Argument(behind)};
    return call(operators::kPad, "", {ir::Argument(id), ir::Argument(std::move(counts)), ir::Argument(0)}, to);
  }

  // --- the order of memory of what reads it

  /// Whether a value may lie in another order of memory: nobody sees it but operations on elements, whose results may,
  /// too. Collects the types that change.
  [[nodiscard]] bool may_lie(ir::ValueId id, const std::vector<std::size_t>& order,
                             std::unordered_map<ir::ValueId, ir::TypePtr>& moved) const {
    if (moved.contains(id) || ir::dims_by_stride(type(id)) == order) return true;
    if (uses_.is_output(id) || aliases_.is_written(id)) return false;
    moved[id] = ir::make_type(in_order(type(id), order));
    for (const std::uint32_t reader : uses_.readers(id)) {
      const ir::BoundSymbol& symbol = trace_.symbols[reader];
      if (std::ranges::find(kElementwise, symbol.op->name) == kElementwise.end()) return false;
      const ir::ValueId result = single_result(symbol);
      if (result == ir::kNoValue || symbol.op->mutates) return false;
      // It lies like its first operand of that size.
      for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
        const ir::ValueId operand = value_argument(symbol, i);
        if (trace_.tensor_type(operand) == nullptr ||
            trace_.tensor_type(operand)->sizes != trace_.tensor_type(result)->sizes)
          continue;
        if (operand == id && !may_lie(result, order, moved)) return false;
        break;
      }
    }
    return true;
  }

  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, ir::TensorType type) {
    type.requires_grad = false;
    return ir::add_call(result_, *find_operator_(name, overload), std::move(arguments), ir::make_type(std::move(type)),
                        {}, location_);
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  FindOperator find_operator_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  ir::Trace result_;
  ir::Substitution replaced_;
  ir::SourceLocation location_;
  std::unordered_map<ir::ValueId, ir::ValueId> rotated_;
  std::unordered_map<ir::ValueId, ir::ValueId> swapped_;
};

}  // namespace

ir::Trace fuse_rotations(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator) {
  return Rewriter(trace, device, find_operator).run();
}

}  // namespace thunder::passes
