#include "passes/aligned_matmuls.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rounding.h"
#include "ir/builder.h"
#include "ir/uses.h"
#include "operators/names.h"
#include "operators/reorderings.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

constexpr std::int64_t kElements = 8;  ///< 16 bits each, 16 bytes together
/// Multiplications below which a copy costs more than it saves.
constexpr double kLarge = 1 << 30;

class Aligner {
 public:
  Aligner(const ir::Trace& trace, ir::DeviceType device, std::size_t caller_outputs, ir::FindOperator find_operator)
      : trace_(trace),
        device_(device),
        find_operator_(find_operator),
        uses_(trace),
        aliases_(trace),
        result_(trace.empty_copy(kAlignedMatmuls)) {
    caller_outputs_ = std::min(caller_outputs, trace.outputs.size());
    for (std::size_t i = 0; i < caller_outputs_; ++i) {
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
      for_each_result(symbol, [&](ir::ValueId id) { copy_for_caller(id, symbol); });
    }
    for (std::size_t i = 0; i < caller_outputs_; ++i) {
      ir::for_each_value(result_.outputs[i], [&](ir::ValueId& id) {
        const auto copy = copies_.find(id);
        if (copy != copies_.end()) id = copy->second;
      });
    }
    return std::move(result_);
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  /// Where a matmul of two matrices has them among its arguments; the summand of an `addmm` stands before them.
  static std::size_t first_matrix(const ir::BoundSymbol& symbol) {
    const operators::Matmul* matmul = operators::find_matmul(*symbol.op);
    if (matmul == nullptr || matmul->is_batched || matmul->takes_transposed) return kNone;
    const bool is_plain = matmul->right == matmul->left + 1 && matmul->bias.value_or(0) == 0;
    return is_plain && matmul->left == (matmul->bias ? 1 : 0) ? matmul->left : kNone;
  }

  [[nodiscard]] const ir::TensorType& type(ir::ValueId id) const { return *result_.tensor_type(id); }
  [[nodiscard]] std::int64_t size(ir::ValueId id, std::size_t dim) const { return type(id).sizes[dim].hint; }

  [[nodiscard]] bool is_large(const ir::BoundSymbol& symbol, std::size_t first) const {
    const ir::ValueId left = value_argument(symbol, first);
    const ir::ValueId right = value_argument(symbol, first + 1);
    const ir::ValueId result = single_result(symbol);
    for (const ir::ValueId id : {left, right, result}) {
      const ir::TensorType* type = trace_.tensor_type(id);
      const bool fits = type != nullptr && type->device.type == device_ && type->sizes.size() == 2 &&
                        ir::is_half(type->dtype) && has_plain_sizes(*type);
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

  void add(const ir::BoundSymbol& symbol) { follow_strides(result_.add(symbol)); }

  /// A view that splits the rows of a matrix (`may_have_longer_rows`) has the strides of longer rows, too.
  void follow_strides(const ir::BoundSymbol& symbol) {
    const auto longer = row_strides_.find(value_argument(symbol, 0));
    if (operators::is_view(*symbol.op) && longer != row_strides_.end())
      set_row_stride(single_result(symbol), longer->second);
  }

  /// The caller gets a value with longer rows as a copy: what reads it here, reads it where it is.
  void copy_for_caller(ir::ValueId id, const ir::BoundSymbol& for_symbol) {
    if (!row_strides_.contains(id) || std::ranges::find(given_out_, id) == given_out_.end()) return;
    // A view that only the caller reads is a copy of the matrix, which fuses with what else reads that.
    const ir::ValueId shown = value_argument(for_symbol, 0);
    const bool is_only_shown = uses_.readers(id).empty() && operators::is_view(*for_symbol.op) &&
                               row_strides_.contains(shown) && uses_.count(shown) > 1;
    if (!is_only_shown) {
      copies_[id] = dense_copy(id, for_symbol);
      return;
    }
    ir::TensorType dense = type(id);
    dense.strides = ir::contiguous_strides(dense.sizes);
    ir::ArgumentList sizes;
    for (const ir::Dim& dim : dense.sizes) sizes.emplace_back(dim.hint);
    copies_[id] =
        call(operators::kView, "", {ir::Argument(dense_copy(shown, for_symbol)), ir::Argument(std::move(sizes))},
             std::move(dense), for_symbol);
  }

  ir::ValueId dense_copy(ir::ValueId id, const ir::BoundSymbol& for_symbol) {
    ir::TensorType dense = type(id);
    dense.strides = ir::contiguous_strides(dense.sizes);
    dense.storage_offset = 0;
    return call(operators::kClone, "", {ir::Argument(id), ir::Argument(ir::MemoryFormat::kContiguous)},
                std::move(dense), for_symbol);
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

  /// The elements that each dimension of a matmul lacks: those of the rows, of the sums, of the columns.
  struct Missing {
    std::int64_t rows = 0;
    std::int64_t sums = 0;
    std::int64_t columns = 0;
    [[nodiscard]] bool any() const { return rows != 0 || sums != 0 || columns != 0; }
  };

  [[nodiscard]] Missing missing_in(ir::ValueId left, ir::ValueId right) const {
    const auto lacks = [&](ir::ValueId id, std::size_t dim) {
      return round_up(size(id, dim), kElements) - size(id, dim);
    };
    const bool left_has_rows = type(left).strides[1] == ir::Dim(1);
    const bool right_has_rows = type(right).strides[1] == ir::Dim(1);
    return {.rows = left_has_rows ? 0 : lacks(left, 0),
            .sums = left_has_rows || !right_has_rows ? lacks(left, 1) : 0,
            .columns = lacks(right, 1)};
  }

  void add_aligned(const ir::BoundSymbol& symbol, std::size_t first) {
    const ir::ValueId left = value_argument(symbol, first);
    const ir::ValueId right = value_argument(symbol, first + 1);
    const Missing missing = missing_in(left, right);
    if (!missing.any() || !can_pad(left) || !can_pad(right) || (first == 1 && !is_row_of(symbol, right))) {
      return add(symbol);
    }
    ir::BoundSymbol copy = symbol;
    copy.arguments[first] = ir::Argument(padded(left, missing.rows, missing.sums, symbol));
    copy.arguments[first + 1] = ir::Argument(padded(right, missing.sums, missing.columns, symbol));
    if (first == 1 && missing.columns != 0) {
      copy.arguments[0] = ir::Argument(pad(value_argument(symbol, 0), {0, missing.columns}, symbol));
    }
    const ir::ValueId result = single_result(symbol);
    if (missing.rows == 0 && missing.columns == 0) {
      result_.add(std::move(copy));
      return;
    }
    ir::TensorType longer = type(result);
    longer.sizes = {ir::Dim(size(left, 0) + missing.rows), ir::Dim(size(right, 1) + missing.columns)};
    longer.strides = {longer.sizes[1], ir::Dim(1)};
    ir::ValueId value = result_.add_value(ir::make_type(longer));
    copy.results = {ir::Argument(value)};
    result_.add(std::move(copy));
    if (missing.rows != 0 && missing.columns != 0) value = front(value, 0, size(left, 0), symbol);
    give_front(value, missing.columns != 0 ? 1 : 0, result, symbol);
  }

  /// Whether the summand of an `addmm` is a row of its result.
  [[nodiscard]] bool is_row_of(const ir::BoundSymbol& symbol, ir::ValueId right) const {
    const ir::ValueId bias = value_argument(symbol, 0);
    return bias != ir::kNoValue && type(bias).sizes == ir::Dims{type(right).sizes[1]} && is_contiguous(type(bias));
  }

  [[nodiscard]] bool can_pad(ir::ValueId matrix) const {
    return is_contiguous(type(matrix)) || source_of_transpose(matrix) != ir::kNoValue;
  }

  /// A matrix with so many rows and columns of zeros more, in the same order of memory.
  ir::ValueId padded(ir::ValueId matrix, std::int64_t rows, std::int64_t columns, const ir::BoundSymbol& for_symbol) {
    if (rows == 0 && columns == 0) return matrix;
    if (is_contiguous(type(matrix))) return pad(matrix, {0, columns, 0, rows}, for_symbol);
    return transpose_as(matrix, pad(source_of_transpose(matrix), {0, rows, 0, columns}, for_symbol));
  }

  /// The first `count` elements of a dimension.
  ir::ValueId front(ir::ValueId value, std::int64_t dim, std::int64_t count, const ir::BoundSymbol& for_symbol) {
    ir::TensorType shorter = type(value);
    shorter.sizes[static_cast<std::size_t>(dim)] = ir::Dim(count);
    return call(operators::kSlice, "Tensor",
                {ir::Argument(value), ir::Argument(dim), ir::Argument(std::int64_t{0}), ir::Argument(count),
                 ir::Argument(std::int64_t{1})},
                std::move(shorter), for_symbol);
  }

  /// `result` is the front of a dimension: as it lies there, or a copy where some operation may see how it lies.
  void give_front(ir::ValueId value, std::int64_t dim, ir::ValueId result, const ir::BoundSymbol& for_symbol) {
    const bool lies_apart = dim == 1 && !may_have_longer_rows(result);
    const ir::ValueId cut = front(value, dim, size(result, static_cast<std::size_t>(dim)), for_symbol);
    ir::BoundSymbol& last = result_.symbols.back();
    if (!lies_apart) {
      last.results = {ir::Argument(result)};
      if (dim == 1) set_row_stride(result, size(value, 1));
      return;
    }
    ir::BoundSymbol copy;
    copy.op = find_operator_("thunder::restride", "");
    copy.arguments = {ir::Argument(cut),
                      ir::Argument(ir::ArgumentList{ir::Argument(size(result, 1)), ir::Argument(std::int64_t{1})})};
    copy.results = {ir::Argument(result)};
    copy.location = for_symbol.location;
    result_.add(std::move(copy));
  }

  /// Whether no operation sees or relies on the strides of a result: it is read by those that take any, and by
  /// reshapes that split its rows. The caller may get one of these values, as a copy: two would share memory.
  [[nodiscard]] bool may_have_longer_rows(ir::ValueId id) const {
    ir::ValueId given = ir::kNoValue;
    for (const ir::ValueId output : given_out_) {
      if (!aliases_.may_alias(output, id)) continue;
      if (given != ir::kNoValue && given != output) return false;
      given = output;
    }
    if (aliases_.is_written(id)) return false;
    return std::ranges::all_of(uses_.readers(id), [&](std::uint32_t reader) {
      const ir::BoundSymbol& symbol = trace_.symbols[reader];
      if (symbol.op->style != ir::CallStyle::kTorchOperator || symbol.op->random) return false;
      if (operators::has_fact(*symbol.op, operators::Fact::kReadsStrides)) return false;
      if (!operators::is_view(*symbol.op)) return true;
      const ir::TensorType* changed = trace_.tensor_type(single_result(symbol));
      const bool splits_rows = changed != nullptr && is_contiguous(*changed) && changed->sizes.size() >= 2 &&
                               changed->sizes.back() == trace_.tensor_type(id)->sizes.back() &&
                               element_count(*changed) == element_count(*trace_.tensor_type(id));
      return splits_rows && has_plain_sizes(*changed) && may_have_longer_rows(single_result(symbol));
    });
  }

  /// The contiguous matrix that another one is the transpose of.
  [[nodiscard]] ir::ValueId source_of_transpose(ir::ValueId id) const {
    const std::uint32_t maker = ir::index_of(id) < trace_.value_count() ? uses_.maker(id) : ir::kNoPlace;
    if (maker == ir::kNoPlace || !operators::is_view(*trace_.symbols[maker].op)) return ir::kNoValue;
    const ir::ValueId source = value_argument(trace_.symbols[maker], 0);
    const bool is_turned = source != ir::kNoValue && is_contiguous(type(source)) && type(source).sizes.size() == 2 &&
                           type(source).sizes[0] == type(id).sizes[1] &&
                           type(source).strides[0] == type(id).strides[1] &&
                           type(source).sizes[1] == type(id).sizes[0] && type(source).strides[1] == type(id).strides[0];
    return is_turned && type(source).storage_offset == type(id).storage_offset ? source : ir::kNoValue;
  }

  /// Zeros behind the elements of each dimension, counted as `constant_pad_nd` does: from the last dimension on.
  ir::ValueId pad(ir::ValueId tensor, const std::vector<std::int64_t>& counts, const ir::BoundSymbol& for_symbol) {
    const auto found = padded_.find(std::pair(tensor, counts));
    if (found != padded_.end()) return found->second;
    const ir::ValueId source = source_of_rows(tensor, counts);
    const ir::ValueId made = source == ir::kNoValue
                                 ? pad_itself(tensor, counts, for_symbol)
                                 : as_matrix(pad_itself(source, {0, counts[1]}, for_symbol), for_symbol);
    padded_[std::pair(tensor, counts)] = made;
    return made;
  }

  /// The value that a matrix shows as one row after the other, where only its rows get longer, and nobody else reads
  /// it: it is padded in place of the matrix, so that what computes it writes to the longer rows.
  [[nodiscard]] ir::ValueId source_of_rows(ir::ValueId matrix, const std::vector<std::int64_t>& counts) const {
    if (ir::index_of(matrix) >= trace_.value_count() || counts.size() != 4 || counts[3] != 0) return ir::kNoValue;
    const std::uint32_t maker = uses_.maker(matrix);
    if (maker == ir::kNoPlace || uses_.is_output(matrix)) return ir::kNoValue;
    const ir::BoundSymbol& view = trace_.symbols[maker];
    const ir::ValueId source = value_argument(view, 0);
    if (!operators::is_reshape(*view.op) || source == ir::kNoValue || uses_.count(source) != 1 ||
        uses_.is_output(source)) {
      return ir::kNoValue;
    }
    const ir::TensorType& type = this->type(source);
    const bool has_rows = type.sizes.size() > 2 && has_plain_sizes(type) && is_contiguous(type) &&
                          type.sizes.back() == this->type(matrix).sizes.back();
    return has_rows && !aliases_.is_written(source) && uses_.maker(source) != ir::kNoPlace ? source : ir::kNoValue;
  }

  /// The rows of a value, one after the other.
  ir::ValueId as_matrix(ir::ValueId value, const ir::BoundSymbol& for_symbol) {
    ir::TensorType matrix = type(value);
    const ir::Dim columns = matrix.sizes.back();
    matrix.sizes = {ir::Dim(element_count(matrix) / columns.hint), columns};
    matrix.strides = ir::contiguous_strides(matrix.sizes);
    ir::ArgumentList sizes{ir::Argument(matrix.sizes[0].hint), ir::Argument(columns.hint)};
    return call(operators::kReshape, "", {ir::Argument(value), ir::Argument(std::move(sizes))}, std::move(matrix),
                for_symbol);
  }

  ir::ValueId pad_itself(ir::ValueId tensor, const std::vector<std::int64_t>& counts,
                         const ir::BoundSymbol& for_symbol) {
    ir::TensorType longer = type(tensor);
    ir::Dim stride = 1;
    for (std::size_t dim = longer.sizes.size(), i = 1; dim-- > 0; i += 2) {
      if (i < counts.size()) longer.sizes[dim] = ir::Dim(longer.sizes[dim].hint + counts[i]);
      longer.strides[dim] = stride;
      stride *= longer.sizes[dim];
    }
    ir::ArgumentList list;
    for (const std::int64_t count : counts) list.emplace_back(count);
    return call(operators::kPad, "",
                {ir::Argument(tensor), ir::Argument(std::move(list)), ir::Argument(std::int64_t{0})}, std::move(longer),
                for_symbol);
  }

  /// The view that made `transposed`, of another matrix.
  ir::ValueId transpose_as(ir::ValueId transposed, ir::ValueId matrix) {
    ir::TensorType turned = type(matrix);
    std::swap(turned.sizes[0], turned.sizes[1]);
    std::swap(turned.strides[0], turned.strides[1]);
    ir::BoundSymbol view = trace_.symbols[uses_.maker(transposed)];
    view.arguments[0] = ir::Argument(matrix);
    const ir::ValueId result = result_.add_value(ir::make_type(std::move(turned)));
    view.results = {ir::Argument(result)};
    result_.add(std::move(view));
    return result;
  }

  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, ir::TensorType type,
                   const ir::BoundSymbol& for_symbol) {
    return ir::add_call(result_, *find_operator_(name, overload), std::move(arguments), ir::make_type(std::move(type)),
                        {}, for_symbol.location);
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  ir::FindOperator find_operator_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  ir::Trace result_;
  std::size_t caller_outputs_ = 0;
  std::vector<ir::ValueId> given_out_;
  std::unordered_map<ir::ValueId, ir::ValueId> copies_;        ///< value that the caller gets -> its copy
  std::unordered_map<ir::ValueId, std::int64_t> row_strides_;  ///< values with longer rows
  std::map<std::pair<ir::ValueId, std::vector<std::int64_t>>, ir::ValueId> padded_;  ///< by tensor and counts
};

}  // namespace

ir::Trace align_matmuls(const ir::Trace& trace, ir::DeviceType device, std::size_t caller_outputs,
                        ir::FindOperator find_operator) {
  return Aligner(trace, device, caller_outputs, find_operator).run();
}

}  // namespace thunder::passes
