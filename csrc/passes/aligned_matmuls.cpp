#include "passes/aligned_matmuls.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/uses.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

constexpr std::int64_t kElements = 8;  ///< of 16 bits, in 16 bytes
/// Multiplications below which a copy costs more than it saves.
constexpr double kLarge = 1 << 30;

std::int64_t aligned(std::int64_t count) { return (count + kElements - 1) / kElements * kElements; }
bool is_aligned(std::int64_t count) { return count % kElements == 0; }

bool is_reshape(const ir::BoundSymbol& symbol) {
  const std::string& name = symbol.op->name;
  return name == "aten::reshape" || name == "aten::_unsafe_view" ||
         (name == "aten::view" && symbol.op->overload.empty());
}

class Aligner {
 public:
  Aligner(const ir::Trace& trace, std::size_t caller_outputs, ir::FindOperator find_operator)
      : trace_(trace),
        find_operator_(find_operator),
        uses_(trace),
        aliases_(trace),
        result_(trace.empty_copy(kAlignedMatmuls)) {
    for (std::size_t i = 0; i < std::min(caller_outputs, trace.outputs.size()); ++i) {
      ir::for_each_value(trace.outputs[i], [&](ir::ValueId id) { given_out_.push_back(id); });
    }
  }

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      const std::size_t first = first_matrix(symbol);
      if (first == kNone || !is_large(symbol, first)) {
        add(symbol);
      } else {
        add_aligned(symbol, first);
      }
    }
    return std::move(result_);
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  /// Where the two factors of a matmul stand among its arguments.
  static std::size_t first_matrix(const ir::BoundSymbol& symbol) {
    if (!symbol.op->overload.empty()) return kNone;
    if (symbol.op->name == "aten::mm") return 0;
    return symbol.op->name == "aten::addmm" ? 1 : kNone;
  }

  [[nodiscard]] const ir::TensorType& type(ir::ValueId id) const { return *result_.tensor_type(id); }
  [[nodiscard]] std::int64_t size(ir::ValueId id, std::size_t dim) const { return type(id).sizes[dim].hint; }

  [[nodiscard]] bool is_large(const ir::BoundSymbol& symbol, std::size_t first) const {
    const ir::ValueId left = value_argument(symbol, first);
    const ir::ValueId right = value_argument(symbol, first + 1);
    const ir::ValueId result = single_result(symbol);
    for (const ir::ValueId id : {left, right, result}) {
      const ir::TensorType* type = id == ir::kNoValue ? nullptr : trace_.tensor_type(id);
      const bool fits = type != nullptr && type->device.type == ir::DeviceType::kCuda && type->sizes.size() == 2 &&
                        ir::is_floating_point(type->dtype) && ir::size_of(type->dtype) == 2 && has_plain_sizes(*type);
      if (!fits) return false;
    }
    return static_cast<double>(size(left, 0)) * static_cast<double>(size(left, 1)) *
               static_cast<double>(size(right, 1)) >=
           kLarge;
  }

  static bool has_plain_sizes(const ir::TensorType& type) {
    const auto is_number = [](const ir::Dim& dim) { return dim.is_concrete(); };
    return std::ranges::all_of(type.sizes, is_number) && std::ranges::all_of(type.strides, is_number);
  }

  void add(const ir::BoundSymbol& symbol) {
    ir::BoundSymbol& copy = result_.add(symbol);
    if (is_reshape(copy)) follow_strides(copy);
  }

  /// A reshape that splits the rows of a matrix has the strides of longer rows, too.
  void follow_strides(const ir::BoundSymbol& reshape) {
    const auto longer = row_strides_.find(value_argument(reshape, 0));
    if (longer == row_strides_.end()) return;
    const ir::ValueId result = single_result(reshape);
    set_row_stride(result, longer->second);
  }

  void set_row_stride(ir::ValueId id, std::int64_t stride) {
    ir::TensorType changed = type(id);
    changed.strides.back() = ir::Dim(1);
    for (std::size_t dim = changed.sizes.size() - 1; dim-- > 0;) {
      changed.strides[dim] = ir::Dim(stride);
      stride *= changed.sizes[dim].hint;
    }
    row_strides_[id] = changed.strides[changed.sizes.size() - 2].hint;
    result_.set_type(id, ir::make_type(std::move(changed)));
  }

  void add_aligned(const ir::BoundSymbol& symbol, std::size_t first) {
    ir::BoundSymbol copy = symbol;
    const ir::ValueId result = single_result(symbol);
    const std::int64_t columns = size(result, 1);
    const bool lengthens = !is_aligned(columns) && may_have_longer_rows(result) && widen(copy, first, aligned(columns));
    for (const std::size_t i : {first, first + 1}) copy.arguments[i] = ir::Argument(with_aligned_rows(copy, i));
    if (!lengthens) {
      result_.add(std::move(copy));
      return;
    }
    ir::TensorType longer = type(result);
    longer.sizes[1] = ir::Dim(aligned(columns));
    longer.strides = {ir::Dim(aligned(columns)), ir::Dim(1)};
    const ir::ValueId whole = result_.add_value(ir::make_type(std::move(longer)));
    copy.results = {ir::Argument(whole)};
    const ir::SourceLocation location = copy.location;
    result_.add(std::move(copy));
    ir::BoundSymbol front;
    front.op = find_operator_("aten::slice", "Tensor");
    front.arguments = {ir::Argument(whole), ir::Argument(std::int64_t{1}), ir::Argument(std::int64_t{0}),
                       ir::Argument(columns), ir::Argument(std::int64_t{1})};
    front.results = {ir::Argument(result)};
    front.location = location;
    result_.add(std::move(front));
    set_row_stride(result, aligned(columns));
  }

  /// Whether nobody sees or relies on the strides of a result: it is read by operations that take any, and by
  /// reshapes that split its rows.
  [[nodiscard]] bool may_have_longer_rows(ir::ValueId id) const {
    if (aliases_.is_written(id) || std::ranges::any_of(given_out_, [&](ir::ValueId output) {
          return aliases_.may_alias(output, id);
        })) {
      return false;
    }
    return std::ranges::all_of(uses_.readers(id), [&](std::uint32_t reader) {
      const ir::BoundSymbol& symbol = trace_.symbols[reader];
      if (symbol.op->style != ir::CallStyle::kTorchOperator || symbol.op->random) return false;
      if (operators::has_fact(*symbol.op, operators::Fact::kReadsStrides)) return false;
      if (!symbol.op->view) return true;
      const ir::TensorType* changed = trace_.tensor_type(single_result(symbol));
      const bool splits_rows = is_reshape(symbol) && changed != nullptr && changed->sizes.size() >= 2 &&
                               changed->sizes.back() == trace_.tensor_type(id)->sizes.back();
      return splits_rows && has_plain_sizes(*changed) && may_have_longer_rows(single_result(symbol));
    });
  }

  /// Gives the second factor, `t` of a matrix, more columns, and the summand of `addmm`; false: it is something else.
  bool widen(ir::BoundSymbol& symbol, std::size_t first, std::int64_t columns) {
    const std::int64_t missing = columns - size(value_argument(symbol, first + 1), 1);
    const ir::ValueId rows = source_of_transpose(value_argument(symbol, first + 1));
    if (rows == ir::kNoValue) return false;
    if (first == 1) {
      const ir::ValueId bias = value_argument(symbol, 0);
      const bool is_row = bias != ir::kNoValue && type(bias).sizes == ir::Dims{type(rows).sizes[0]};
      if (!is_row || !is_contiguous(type(bias))) return false;
      symbol.arguments[0] = ir::Argument(pad(bias, {0, missing}, symbol));
    }
    symbol.arguments[first + 1] = ir::Argument(transpose(pad(rows, {0, 0, 0, missing}, symbol), symbol));
    return true;
  }

  /// `m` of `m.t()`, where it is contiguous.
  [[nodiscard]] ir::ValueId source_of_transpose(ir::ValueId id) const {
    const std::uint32_t maker = ir::index_of(id) < trace_.value_count() ? uses_.maker(id) : ir::kNoPlace;
    if (maker == ir::kNoPlace || trace_.symbols[maker].op->name != "aten::t") return ir::kNoValue;
    const ir::ValueId source = value_argument(trace_.symbols[maker], 0);
    return source != ir::kNoValue && is_contiguous(type(source)) ? source : ir::kNoValue;
  }

  /// The operand with rows that begin at multiples of 16 bytes.
  ir::ValueId with_aligned_rows(const ir::BoundSymbol& symbol, std::size_t i) {
    const ir::ValueId operand = value_argument(symbol, i);
    const auto& strides = type(operand).strides;
    const bool has_rows = strides[1] == ir::Dim(1);
    const bool has_columns = strides[0] == ir::Dim(1);
    const std::int64_t between = strides[has_rows ? 0 : 1].hint;
    if ((!has_rows && !has_columns) || is_aligned(between)) return operand;
    if (has_rows) return copy_rows(operand, symbol);
    const ir::ValueId source = source_of_transpose(operand);
    return source == ir::kNoValue ? operand : transpose(copy_rows(source, symbol), symbol);
  }

  ir::ValueId copy_rows(ir::ValueId matrix, const ir::BoundSymbol& for_symbol) {
    const auto known = copies_.find(matrix);
    if (known != copies_.end()) return known->second;
    ir::TensorType changed = type(matrix);
    changed.strides[0] = ir::Dim(aligned(changed.sizes[1].hint));
    ir::ArgumentList strides{ir::Argument(changed.strides[0].hint), ir::Argument(std::int64_t{1})};
    const ir::ValueId copy = call("thunder::restride", "", {ir::Argument(matrix), ir::Argument(std::move(strides))},
                                  std::move(changed), for_symbol);
    copies_[matrix] = copy;
    return copy;
  }

  ir::ValueId pad(ir::ValueId matrix, const std::vector<std::int64_t>& by, const ir::BoundSymbol& for_symbol) {
    ir::TensorType longer = type(matrix);
    longer.sizes[0] = ir::Dim(longer.sizes[0].hint + by.back());
    ir::ArgumentList counts;
    for (const std::int64_t count : by) counts.emplace_back(count);
    return call("aten::constant_pad_nd", "",
                {ir::Argument(matrix), ir::Argument(std::move(counts)), ir::Argument(std::int64_t{0})},
                std::move(longer), for_symbol);
  }

  ir::ValueId transpose(ir::ValueId matrix, const ir::BoundSymbol& for_symbol) {
    ir::TensorType turned = type(matrix);
    std::swap(turned.sizes[0], turned.sizes[1]);
    std::swap(turned.strides[0], turned.strides[1]);
    return call("aten::t", "", {ir::Argument(matrix)}, std::move(turned), for_symbol);
  }

  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, ir::TensorType type,
                   const ir::BoundSymbol& for_symbol) {
    return ir::add_call(result_, *find_operator_(name, overload), std::move(arguments), ir::make_type(std::move(type)),
                        {}, for_symbol.location);
  }

  const ir::Trace& trace_;
  ir::FindOperator find_operator_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  ir::Trace result_;
  std::vector<ir::ValueId> given_out_;
  std::unordered_map<ir::ValueId, std::int64_t> row_strides_;   ///< of values with longer rows
  std::unordered_map<ir::ValueId, ir::ValueId> copies_;  ///< matrices with aligned rows, by those without
};

}  // namespace

ir::Trace align_matmuls(const ir::Trace& trace, std::size_t caller_outputs, ir::FindOperator find_operator) {
  return Aligner(trace, caller_outputs, find_operator).run();
}

}  // namespace thunder::passes
