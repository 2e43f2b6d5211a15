#include "passes/merged_linears.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <ranges>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/uses.h"
#include "operators/names.h"
#include "operators/reorderings.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

bool is_cast(const ir::BoundSymbol& symbol) {
  return symbol.op->name == operators::kCast || (symbol.op->name == "aten::to" && symbol.op->overload == "dtype");
}

/// Whether both casts are to the same type.
bool cast_alike(const ir::BoundSymbol* left, const ir::BoundSymbol* right) {
  if (left == nullptr || right == nullptr) return left == right;
  return left->op == right->op && std::equal(left->arguments.begin() + 1, left->arguments.end(),
                                             right->arguments.begin() + 1, right->arguments.end());
}

/// Views that give the elements of a contiguous tensor other dimensions.
bool is_reshape(const ir::Operator& op) {
  return operators::is_reshape(op) || op.name == "aten::flatten" || op.name == "aten::unflatten";
}

/// Views whose strides are those of what they view, or multiples of these.
bool is_strided_view(const ir::BoundSymbol& symbol, std::size_t rank) {
  constexpr std::array<std::string_view, 10> kNames{
      "aten::chunk", "aten::expand",           "aten::narrow",  "aten::select", operators::kSlice,
      "aten::split", "aten::split_with_sizes", "aten::squeeze", "aten::unbind", operators::kUnsqueeze,
  };
  return std::ranges::find(kNames, std::string_view(symbol.op->name)) != kNames.end() ||
         operators::permutation_of(symbol, rank).has_value();
}

bool has_plain_layout(const ir::TensorType* type) {
  return type != nullptr && !ir::has_symbols(*type) && type->layout == ir::Layout::kStrided && is_contiguous(*type);
}

/// A weight or a bias, and the cast between the two where there is one.
struct Operand {
  ir::ValueId source = ir::kNoValue;
  const ir::BoundSymbol* cast = nullptr;
};

struct Linear {
  std::uint32_t place = 0;
  Operand weight;
  Operand bias;
};

/// Columns of a wider matrix, in the place of a matrix by itself.
struct Columns {
  std::int64_t width = 0;
  std::int64_t row_stride = 0;  ///< elements from one row of the wider matrix to the next
  std::int64_t first = 0;

  [[nodiscard]] std::int64_t moved(std::int64_t stride) const { return stride / width * row_stride + stride % width; }
  /// The type of a value that views these columns, which viewed the matrix.
  [[nodiscard]] ir::TensorType moved(ir::TensorType type) const {
    for (ir::Dim& stride : type.strides) stride = moved(stride.hint);
    type.storage_offset = first + moved(type.storage_offset.hint);
    return type;
  }
};

/// Which outputs of a trace give a gradient to each of its values. A backward from some of the outputs leaves the
/// weights of the others without a gradient, which is not a gradient of zeros.
class GradientSources {
 public:
  explicit GradientSources(const ir::Trace& trace)
      : words_((trace.outputs.size() + kBits - 1) / kBits), outputs_(trace.value_count() * words_) {
    for (std::size_t i = 0; i < trace.outputs.size(); ++i) {
      ir::for_each_value(trace.outputs[i], [&](ir::ValueId id) {
        if (requires_grad(trace, id)) of(id)[i / kBits] |= std::uint64_t{1} << i % kBits;
      });
    }
    for (const ir::BoundSymbol& symbol : std::views::reverse(trace.symbols)) {
      for_each_result(symbol, [&](ir::ValueId result) {
        if (!requires_grad(trace, result)) return;
        for_each_argument(symbol, [&](ir::ValueId id) {
          for (std::size_t i = 0; i < words_; ++i) of(id)[i] |= of(result)[i];
        });
      });
    }
  }

  [[nodiscard]] bool are_equal(ir::ValueId left, ir::ValueId right) { return std::ranges::equal(of(left), of(right)); }

 private:
  static constexpr std::size_t kBits = 64;

  static bool requires_grad(const ir::Trace& trace, ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    return type != nullptr && type->requires_grad;
  }
  [[nodiscard]] std::span<std::uint64_t> of(ir::ValueId id) {
    return std::span(outputs_).subspan(ir::index_of(id) * words_, words_);
  }

  std::size_t words_;
  std::vector<std::uint64_t> outputs_;  ///< a bit for each output, `words_` for each value
};

class Merger {
 public:
  Merger(const ir::Trace& trace, const MergeRule& rule, bool (*accepts)(const ir::TensorType& type),
         FindOperator find_operator)
      : trace_(trace),
        rule_(rule),
        accepts_(accepts),
        find_operator_(find_operator),
        uses_(trace),
        aliases_(trace),
        sources_(trace),
        result_(trace.empty_copy(kMergedLinears)) {}

  std::optional<ir::Trace> run() {
    find_groups();
    std::erase_if(groups_, [](const auto& group) { return group.size() < 2; });
    if (groups_.empty()) return std::nullopt;
    std::unordered_map<std::uint32_t, const std::vector<Linear>*> group_of;
    for (const auto& group : groups_) {
      for (const Linear& linear : group) group_of[linear.place] = &group;
    }
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const auto found = group_of.find(i);
      if (found == group_of.end()) {
        add(trace_.symbols[i]);
      } else if (found->second->front().place == i) {
        add_merged(*found->second);
      }
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] const ir::BoundSymbol& symbol_of(const Linear& linear) const { return trace_.symbols[linear.place]; }
  [[nodiscard]] const ir::TensorType& type(ir::ValueId id) const { return *result_.tensor_type(id); }
  [[nodiscard]] std::int64_t width_of(const Linear& linear) const { return type(linear.weight.source).sizes[0].hint; }

  // Which layers.

  void find_groups() {
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const auto linear = linear_at(i);
      if (!linear) continue;
      const auto fits = [&](const auto& group) {
        double total = multiplications_of(symbol_of(*linear));
        for (const Linear& other : group) total += multiplications_of(symbol_of(other));
        return belongs_to(*linear, group.front()) && total <= 4 * rule_.most_multiplications;
      };
      const auto group = std::ranges::find_if(groups_, fits);
      if (group == groups_.end()) {
        groups_.push_back({*linear});
      } else {
        group->push_back(*linear);
      }
    }
  }

  [[nodiscard]] std::optional<Linear> linear_at(std::uint32_t place) const {
    const ir::BoundSymbol& symbol = trace_.symbols[place];
    const operators::Matmul* matmul = operators::find_matmul(*symbol.op);
    const bool is_linear = matmul != nullptr && matmul->takes_transposed && matmul->left == 0 && matmul->bias == 2U &&
                           matmul->factors == 0 && !matmul->is_batched;
    if (!is_linear || !is_worth_it(symbol)) return std::nullopt;
    Linear linear{place, operand(symbol, 1), operand(symbol, 2)};
    const bool has_bias = !symbol.arguments[2].is<ir::None>();
    const bool is_cast_alike = (linear.weight.cast != nullptr) == (linear.bias.cast != nullptr);
    if (linear.weight.source == ir::kNoValue || has_bias != (linear.bias.source != ir::kNoValue)) return std::nullopt;
    if ((linear.weight.cast == nullptr && !rule_.copies_weights) || (has_bias && !is_cast_alike)) return std::nullopt;
    return may_be_columns(single_result(symbol)) ? std::make_optional(linear) : std::nullopt;
  }

  [[nodiscard]] double multiplications_of(const ir::BoundSymbol& linear) const {
    return static_cast<double>(element_count(*argument_type(linear, trace_, 0))) *
           static_cast<double>(result_type(linear, trace_)->sizes.back().hint);
  }

  [[nodiscard]] bool is_worth_it(const ir::BoundSymbol& symbol) const {
    const ir::TensorType* input = argument_type(symbol, trace_, 0);
    const ir::TensorType* result = result_type(symbol, trace_);
    if (!is_float(input) || ir::has_symbols(*input) || !accepts_(*input) || !has_plain_layout(result)) return false;
    if (input->sizes.size() < 2 || aliases_.is_written(value_argument(symbol, 0))) return false;
    const std::int64_t columns = input->sizes.back().hint;
    const std::int64_t width = result->sizes.back().hint;
    const std::int64_t rows = columns == 0 ? 0 : element_count(*input) / columns;
    return rows >= rule_.least_rows && columns >= rule_.least_columns && width > 0 &&
           width % rule_.width_multiple == 0 && multiplications_of(symbol) <= rule_.most_multiplications;
  }

  [[nodiscard]] Operand operand(const ir::BoundSymbol& linear, std::size_t argument) const {
    const ir::ValueId id = value_argument(linear, argument);
    if (id == ir::kNoValue || aliases_.is_written(id)) return {};
    const std::uint32_t maker = uses_.maker(id);
    Operand found{id};
    // A cast that somebody else reads would be made twice.
    if (maker != kNoPlace && is_cast(trace_.symbols[maker]) && uses_.count(id) == 1 && !uses_.is_output(id)) {
      found = {value_argument(trace_.symbols[maker], 0), &trace_.symbols[maker]};
    }
    const ir::TensorType* source = trace_.tensor_type(found.source);
    const bool fits = has_plain_layout(source) && !aliases_.is_written(found.source) &&
                      source->sizes.size() == (argument == 1 ? 2 : 1) &&
                      source->device == trace_.tensor_type(id)->device && is_float(source);
    return fits ? found : Operand{};
  }

  /// Whether the two run on one input, with weights and biases of one kind, where the first one stands.
  [[nodiscard]] bool belongs_to(const Linear& linear, const Linear& first) {
    const auto is_alike = [&](const Operand& own, const Operand& other) {
      if (own.source == ir::kNoValue || other.source == ir::kNoValue) return own.source == other.source;
      const ir::TensorType& type = *trace_.tensor_type(own.source);
      const ir::TensorType& other_type = *trace_.tensor_type(other.source);
      const std::uint32_t maker = uses_.maker(own.source);
      return cast_alike(own.cast, other.cast) && type.dtype == other_type.dtype &&
             type.requires_grad == other_type.requires_grad && (maker == kNoPlace || maker < first.place);
    };
    return is_same_input(value_argument(symbol_of(linear), 0), value_argument(symbol_of(first), 0)) &&
           is_alike(linear.weight, first.weight) && is_alike(linear.bias, first.bias) &&
           result_type(symbol_of(linear), trace_)->requires_grad ==
               result_type(symbol_of(first), trace_)->requires_grad &&
           sources_.are_equal(single_result(symbol_of(linear)), single_result(symbol_of(first)));
  }

  /// Autocast casts an activation for each layer that reads it.
  [[nodiscard]] bool is_same_input(ir::ValueId left, ir::ValueId right) const {
    if (left == right) return true;
    const std::uint32_t left_maker = uses_.maker(left);
    const std::uint32_t right_maker = uses_.maker(right);
    if (left_maker == kNoPlace || right_maker == kNoPlace) return false;
    const ir::BoundSymbol& cast = trace_.symbols[left_maker];
    const ir::BoundSymbol& other = trace_.symbols[right_maker];
    return is_cast(cast) && is_cast(other) && cast_alike(&cast, &other) &&
           value_argument(cast, 0) == value_argument(other, 0) && !aliases_.is_written(value_argument(cast, 0));
  }

  // How results are read.

  /// Whether a result may lie among others: what reads it goes by elements, not by strides.
  [[nodiscard]] bool may_be_columns(ir::ValueId id) const {
    if (id == ir::kNoValue || aliases_.is_written(id) || aliases_.touches_output(id)) return false;
    return may_be_read(id, trace_.tensor_type(id)->sizes.back().hint, true);
  }

  /// `is_matrix`: the value has all elements of the result, in order.
  [[nodiscard]] bool may_be_read(ir::ValueId id, std::int64_t width, bool is_matrix) const {
    return std::ranges::all_of(uses_.readers(id), [&](std::uint32_t reader) {
      const ir::BoundSymbol& symbol = trace_.symbols[reader];
      if (!views(symbol, id)) return may_read(symbol, id);
      const bool reshapes = is_reshape(*symbol.op);
      if (reshapes && (!is_matrix || !splits_rows(symbol, width))) return false;
      bool may = true;
      for_each_result(symbol, [&](ir::ValueId result) { may = may && may_be_read(result, width, reshapes); });
      return may;
    });
  }

  /// Whether a symbol gives views of the value, of which the pass knows the strides.
  [[nodiscard]] bool views(const ir::BoundSymbol& symbol, ir::ValueId id) const {
    return value_argument(symbol, 0) == id &&
           (is_reshape(*symbol.op) || is_strided_view(symbol, trace_.tensor_type(id)->sizes.size()));
  }

  /// Whether an operation that is no view may read columns. Attention draws by heads and tokens, not by addresses.
  [[nodiscard]] bool may_read(const ir::BoundSymbol& symbol, ir::ValueId id) const {
    using enum operators::Fact;
    const ir::Operator& op = *symbol.op;
    const bool draws_by_element = op.random && operators::has_fact(op, kIsAttention) && !op.mutates && !op.effect;
    if (op.style != ir::CallStyle::kTorchOperator || !(is_pure(symbol) || draws_by_element)) return false;
    if (operators::facts_of(op).has_any(kReadsStrides | kAsksAboutTensor | kReadsMetadata)) return false;
    if (copies_memory(op)) return false;
    const bool may_share = operators::is_view(op) || operators::has_fact(op, kMayReturnArgument);
    const ir::TensorType* made = result_type(symbol, trace_);
    return !may_share ||
           (is_cast(symbol) && made != nullptr && made->dtype != trace_.tensor_type(id)->dtype && is_float(made));
  }

  /// Whether a reshape of a matrix leaves its rows together: some of its last dimensions are one row.
  [[nodiscard]] bool splits_rows(const ir::BoundSymbol& symbol, std::int64_t width) const {
    const ir::TensorType* made = result_type(symbol, trace_);
    if (!has_plain_layout(made)) return false;
    std::int64_t count = 1;
    for (std::size_t dim = made->sizes.size(); dim-- > 0 && count < width;) count *= made->sizes[dim].hint;
    return count == width;
  }

  // The merged layer.

  void add_merged(const std::vector<Linear>& group) {
    const ir::BoundSymbol& first = symbol_of(group.front());
    std::int64_t total = 0;
    for (const Linear& linear : group) total += width_of(linear);
    ir::TensorType wide = *result_type(first, trace_);
    wide.sizes.back() = total;
    wide.strides = ir::contiguous_strides(wide.sizes);
    ir::BoundSymbol merged = first;
    merged.nested.clear();
    merged.arguments[1] = ir::Argument(joined(group, &Linear::weight, total, first));
    if (group.front().bias.source != ir::kNoValue)
      merged.arguments[2] = ir::Argument(joined(group, &Linear::bias, total, first));
    const ir::ValueId result = result_.add_value(ir::make_type(std::move(wide)));
    merged.results = {ir::Argument(result)};
    result_.add(std::move(merged));
    add_split(group, result, total, first);
  }

  /// The weights, or the biases, of a group behind one another.
  ir::ValueId joined(const std::vector<Linear>& group, Operand Linear::* member, std::int64_t total,
                     const ir::BoundSymbol& for_symbol) {
    ir::ArgumentList parts;
    for (const Linear& linear : group) parts.emplace_back((linear.*member).source);
    const Operand& first = group.front().*member;
    ir::TensorType longer = type(first.source);
    longer.sizes[0] = total;
    longer.storage_offset = 0;
    const ir::ValueId result = ir::add_call(result_, *find_operator_(operators::kCat, ""),
                                            {ir::Argument(std::move(parts)), ir::Argument(std::int64_t{0})},
                                            ir::make_type(longer), {}, for_symbol.location);
    if (first.cast == nullptr) return result;
    ir::BoundSymbol cast = *first.cast;
    cast.nested.clear();
    cast.location = for_symbol.location;
    cast.arguments[0] = ir::Argument(result);
    longer.dtype = result_type(cast, trace_)->dtype;
    const ir::ValueId narrow = result_.add_value(ir::make_type(std::move(longer)));
    cast.results = {ir::Argument(narrow)};
    result_.add(std::move(cast));
    return narrow;
  }

  void add_split(const std::vector<Linear>& group, ir::ValueId merged, std::int64_t total,
                 const ir::BoundSymbol& for_symbol) {
    ir::BoundSymbol split;
    split.op = find_operator_("aten::split_with_sizes", "");
    split.location = for_symbol.location;
    ir::ArgumentList widths;
    ir::ArgumentList results;
    std::int64_t first = 0;
    for (const Linear& linear : group) {
      const std::int64_t width = width_of(linear);
      const ir::ValueId result = single_result(symbol_of(linear));
      widths.emplace_back(width);
      results.emplace_back(result);
      move(result, {.width = width, .row_stride = total, .first = first});
      first += width;
    }
    split.arguments = {ir::Argument(merged), ir::Argument(std::move(widths)), ir::Argument(std::int64_t{-1})};
    split.results = {ir::Argument(std::move(results))};
    result_.add(std::move(split));
  }

  void move(ir::ValueId id, const Columns& columns) {
    result_.set_type(id, ir::make_type(columns.moved(type(id))));
    columns_of_.emplace(id, columns);
  }

  void add(const ir::BoundSymbol& symbol) {
    result_.add(symbol);
    const ir::ValueId viewed = value_argument(symbol, 0);
    const auto found = columns_of_.find(viewed);
    if (found == columns_of_.end() || !views(symbol, viewed)) return;
    const Columns columns = found->second;
    for_each_result(symbol, [&](ir::ValueId id) { move(id, columns); });
  }

  const ir::Trace& trace_;
  const MergeRule& rule_;
  bool (*accepts_)(const ir::TensorType& type);
  FindOperator find_operator_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  GradientSources sources_;
  ir::Trace result_;
  std::vector<std::vector<Linear>> groups_;
  std::unordered_map<ir::ValueId, Columns> columns_of_;  ///< results, and views of them
};

}  // namespace

std::optional<ir::Trace> merge_linears(const ir::Trace& trace, const MergeRule& rule,
                                       bool (*accepts)(const ir::TensorType& type), FindOperator find_operator) {
  return Merger(trace, rule, accepts, find_operator).run();
}

}  // namespace thunder::passes
