#include <cstdint>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "operators/names.h"
#include "passes/alias_analysis.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

extern const Pass kEmbeddingGradients;

namespace {

/// The arguments of `embedding_dense_backward`.
enum : std::uint8_t { kGradient, kIndices, kRowCount, kPaddingIndex, kScaleByFrequency };

ir::TypePtr contiguous(ir::TensorType type, ir::Dims sizes) {
  type.strides = ir::contiguous_strides(sizes);
  type.sizes = std::move(sizes);
  type.storage_offset = 0;
  return ir::make_type(std::move(type));
}

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, FindOperator find_operator)
      : trace_(trace),
        find_operator_(find_operator),
        aliases_(trace),
        dense_(trace.value_count(), kNoPlace),
        uses_(trace),
        result_(trace.empty_copy(kEmbeddingGradients.name)) {}

  ir::Trace run() {
    find_dense();
    std::vector<std::uint32_t> added(trace_.symbols.size(), kNoPlace);  // sum -> its dense gradient
    std::vector<bool> dropped(trace_.symbols.size(), false);
    for (std::size_t i = 0; i < trace_.symbols.size(); ++i) {
      const std::size_t which = dense_argument(trace_.symbols[i]);
      if (which > 1) continue;
      added[i] = dense_[ir::index_of(value_argument(trace_.symbols[i], which))];
      dropped[added[i]] = true;
    }
    for (std::size_t i = 0; i < trace_.symbols.size(); ++i) {
      if (dropped[i]) continue;
      if (added[i] != kNoPlace) {
        add_rows(trace_.symbols[i], trace_.symbols[added[i]]);
      } else {
        result_.add(trace_.symbols[i]);
      }
    }
    return std::move(result_);
  }

 private:
  void find_dense() {
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const ir::BoundSymbol& symbol = trace_.symbols[i];
      if (gives_rows(symbol)) dense_[ir::index_of(single_result(symbol))] = i;
    }
  }

  [[nodiscard]] bool gives_rows(const ir::BoundSymbol& symbol) const {
    if (symbol.op->name != "aten::embedding_dense_backward" || symbol.arguments.size() != 5) return false;
    const auto* scales = symbol.arguments[kScaleByFrequency].get<bool>();
    const ir::ValueId gradient = value_argument(symbol, kGradient);
    const ir::ValueId indices = value_argument(symbol, kIndices);
    if (scales == nullptr || *scales || gradient == ir::kNoValue || indices == ir::kNoValue) return false;
    if (!symbol.arguments[kPaddingIndex].is<std::int64_t>()) return false;
    const ir::TensorType& type = *trace_.tensor_type(gradient);
    const bool exact = type.dtype == ir::Dtype::kFloat32 || type.dtype == ir::Dtype::kFloat64;
    const bool has_sums = type.device.type == ir::DeviceType::kCpu || type.device.type == ir::DeviceType::kCuda;
    return exact && has_sums && !aliases_.is_written(gradient) && !aliases_.is_written(indices);
  }

  /// Which argument of a sum is a dense gradient that nobody else reads, to be added to one that lies as the sum does.
  [[nodiscard]] std::size_t dense_argument(const ir::BoundSymbol& symbol) const {
    constexpr std::size_t kNone = 2;
    const bool is_sum = symbol.op->name == "aten::add" && symbol.op->overload == "Tensor" &&
                        symbol.arguments.size() == 3 && symbol.arguments[2] == ir::Argument(1);
    if (!is_sum) return kNone;
    for (std::size_t i = 0; i < 2; ++i) {
      const ir::ValueId dense = value_argument(symbol, i);
      const ir::ValueId other = value_argument(symbol, 1 - i);
      if (dense == ir::kNoValue || other == ir::kNoValue || dense_[ir::index_of(dense)] == kNoPlace) continue;
      const ir::TensorType* type = trace_.tensor_type(other);
      const bool fits = type != nullptr && same_layout(*type, *trace_.tensor_type(single_result(symbol)));
      if (fits && uses_.count(dense) == 1) return i;
    }
    return kNone;
  }

  void add_rows(const ir::BoundSymbol& sum, const ir::BoundSymbol& dense) {
    const ir::ValueId table =
        value_argument(sum, 0) == single_result(dense) ? value_argument(sum, 1) : value_argument(sum, 0);
    const ir::TensorType& row_type = *trace_.tensor_type(value_argument(dense, kGradient));
    const ir::TensorType& index_type = *trace_.tensor_type(value_argument(dense, kIndices));
    const ir::Dim count = product_of(index_type.sizes);
    const ir::Dim width = trace_.tensor_type(table)->sizes.back();
    location_ = dense.location;
    const ir::ValueId rows = as(value_argument(dense, kGradient), contiguous(row_type, {count, width}));
    const ir::ValueId indices = as(value_argument(dense, kIndices), contiguous(index_type, {count}));
    const ir::Argument given(without_padding(rows, indices, dense.arguments[kPaddingIndex]));
    ir::BoundSymbol add = sum;
    if (row_type.device.type == ir::DeviceType::kCuda) {
      add.op = find_operator_("aten::index_put", "");
      add.arguments = {ir::Argument(table), ir::Argument(ir::ArgumentList{ir::Argument(indices)}), given,
                       ir::Argument(/*accumulate=*/true)};
    } else {
      add.op = find_operator_("aten::index_add", "");
      add.arguments = {ir::Argument(table), ir::Argument(0), ir::Argument(indices), given, ir::Argument(1)};
    }
    result_.add(std::move(add));
  }

  ir::ValueId as(ir::ValueId value, const ir::TypePtr& type) {
    const ir::Dims& sizes = std::get<ir::TensorType>(*type).sizes;
    if (trace_.tensor_type(value)->sizes == sizes) return value;
    ir::ArgumentList shape;
    for (const ir::Dim& size : sizes) shape.emplace_back(size);
    return call(operators::kReshape, "", {ir::Argument(value), ir::Argument(std::move(shape))}, type);
  }

  /// Rows of zeros where the index is that of the padding.
  ir::ValueId without_padding(ir::ValueId rows, ir::ValueId indices, const ir::Argument& padding) {
    if (std::get<std::int64_t>(padding.content) < 0) return rows;
    ir::TensorType mask_type = *result_.tensor_type(indices);
    mask_type.dtype = ir::Dtype::kBool;
    const ir::Dim count = product_of(mask_type.sizes);
    const ir::ValueId mask =
        call("aten::eq", "Scalar", {ir::Argument(indices), padding}, contiguous(mask_type, {count}));
    const ir::ValueId column =
        call(operators::kUnsqueeze, "", {ir::Argument(mask), ir::Argument(1)}, contiguous(mask_type, {count, 1}));
    return call("aten::masked_fill", "Scalar", {ir::Argument(rows), ir::Argument(column), ir::Argument(0)},
                result_.value(rows).type);
  }

  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, const ir::TypePtr& type) {
    return ir::add_call(result_, *find_operator_(name, overload), std::move(arguments), type, {}, location_);
  }

  const ir::Trace& trace_;
  FindOperator find_operator_;
  AliasAnalysis aliases_;
  std::vector<std::uint32_t> dense_;  ///< value -> the symbol that made it as a dense gradient
  ir::Uses uses_;
  ir::Trace result_;
  ir::SourceLocation location_;
};

ir::Trace add_embedding_gradients(const ir::Trace& trace, FindOperator find_operator) {
  return Rewriter(trace, find_operator).run();
}

}  // namespace

/// Where the dense gradient of an embedding (`embedding_dense_backward`: zeros as large as the table, then its rows) is
/// added to another gradient, as for a table that is the output projection too, adds the rows to that one, which
/// `buffer_assignment` lets write to it: by `index_add` on the CPU, where it adds in order, and on a GPU by
/// `index_put`, which sorts the indices first and adds equal ones in order, where `index_add` goes by atomic
/// operations. In float32 and float64: in a lower precision, each row would be rounded to that of the sum. Tables
/// scaled by frequency stay as they are.
constexpr Pass kEmbeddingGradients{"embedding_gradients", &add_embedding_gradients};

}  // namespace thunder::passes
