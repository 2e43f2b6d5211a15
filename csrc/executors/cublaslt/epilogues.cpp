#include "executors/cublaslt/epilogues.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "ir/uses.h"
#include "operators/facts.h"
#include "operators/names.h"
#include "operators/reorderings.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cublaslt {
namespace {

using passes::kNoPlace;
using passes::single_result;
using passes::value_argument;

constexpr std::int64_t kVectorElements = 8;  ///< elements of 16 bits in 16 bytes

bool is_tanh(const ir::BoundSymbol& symbol, std::size_t argument) {
  return symbol.arguments.size() > argument && symbol.arguments[argument] == ir::Argument(std::string("tanh"));
}

/// A matmul whose result a function reads, perhaps reshaped in between.
struct Source {
  std::uint32_t matmul = kNoPlace;
  std::uint32_t reshape = kNoPlace;
};

class Taker {
 public:
  Taker(ir::Trace& trace, const EpilogueRule& rule, const char* executor)
      : trace_(trace), rule_(rule), executor_(executor), uses_(trace), aliases_(trace) {}

  bool run() {
    bool is_any = false;
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const ir::Operator* op = trace_.symbols[i].op;
      if (op == nullptr || op->style != ir::CallStyle::kTorchOperator) continue;
      if (op->name == "aten::gelu" && is_tanh(trace_.symbols[i], 1)) {
        is_any = take_gelu(i) || is_any;
      } else if (op->name == "aten::gelu_backward" && is_tanh(trace_.symbols[i], 2)) {
        is_any = take_gradient(i) || is_any;
      }
    }
    std::erase_if(trace_.symbols, [](const ir::BoundSymbol& symbol) { return symbol.op == nullptr; });
    return is_any;
  }

 private:
  [[nodiscard]] const ir::TensorType* type(ir::ValueId id) const { return trace_.tensor_type(id); }

  /// Whether the library reads and writes such a tensor, its last dimension as rows of a matrix.
  [[nodiscard]] bool is_readable(const ir::TensorType* type) const {
    return type != nullptr && type->device.type == rule_.device && !ir::has_symbols(*type) && !type->sizes.empty() &&
           ir::is_half(type->dtype);
  }
  [[nodiscard]] bool is_matrix(ir::ValueId id) const {
    const ir::TensorType* of = type(id);
    return is_readable(of) && passes::is_contiguous(*of) && of->sizes.back().hint % kVectorElements == 0;
  }

  /// The large matmul of two matrices that gives a value, or what it is a reshape of with rows as long.
  [[nodiscard]] std::optional<Source> source_of(ir::ValueId id) const {
    if (!is_matrix(id) || aliases_.is_written(id)) return std::nullopt;
    Source source{uses_.maker(id)};
    ir::ValueId multiplied = id;
    if (source.matmul != kNoPlace && trace_.symbols[source.matmul].op != nullptr &&
        operators::is_reshape(*trace_.symbols[source.matmul].op)) {
      multiplied = value_argument(trace_.symbols[source.matmul], 0);
      source = {is_matrix(multiplied) ? uses_.maker(multiplied) : kNoPlace, source.matmul};
    }
    if (source.matmul == kNoPlace) return std::nullopt;
    if (type(multiplied)->sizes.back() != type(id)->sizes.back()) return std::nullopt;
    const ir::BoundSymbol& symbol = trace_.symbols[source.matmul];
    const operators::Matmul* matmul = symbol.op == nullptr ? nullptr : operators::find_matmul(*symbol.op);
    return matmul != nullptr && multiplies(symbol, *matmul) ? std::make_optional(source) : std::nullopt;
  }

  /// `mm`, `addmm` of a row, or `linear`, whose input may have more dimensions.
  [[nodiscard]] bool multiplies(const ir::BoundSymbol& symbol, const operators::Matmul& matmul) const {
    if (matmul.is_batched || !symbol.op->overload.empty()) return false;
    const ir::TensorType* left = type(value_argument(symbol, matmul.left));
    const ir::TensorType* right = type(value_argument(symbol, matmul.right));
    const ir::TensorType* result = type(single_result(symbol));
    if (!is_readable(left) || !is_readable(right) || left->dtype != result->dtype) return false;
    const bool is_rows = left->sizes.size() == 2 || (matmul.takes_transposed && passes::is_contiguous(*left));
    if (!is_rows || left->sizes.size() != result->sizes.size() || right->sizes.size() != 2) return false;
    const std::int64_t inner = left->sizes.back().hint;
    const double multiplications = static_cast<double>(passes::element_count(*result)) * static_cast<double>(inner);
    if (multiplications < rule_.least_multiplications || inner % kVectorElements != 0) return false;
    return !matmul.bias || adds_row(symbol, matmul, *result);
  }

  /// Whether a matmul adds a row to each of its result, or nothing, and scales neither.
  [[nodiscard]] bool adds_row(const ir::BoundSymbol& symbol, const operators::Matmul& matmul,
                              const ir::TensorType& result) const {
    if (symbol.arguments[*matmul.bias].is<ir::None>()) return true;
    const ir::TensorType* bias = type(value_argument(symbol, *matmul.bias));
    const auto is_one = [](const ir::Argument& argument) {
      return argument == ir::Argument(std::int64_t{1}) || argument == ir::Argument(1.0);
    };
    const auto factors = symbol.arguments.begin() + static_cast<std::ptrdiff_t>(matmul.factors);
    return bias != nullptr && bias->sizes == ir::Dims{result.sizes.back()} && passes::is_contiguous(*bias) &&
           bias->dtype == result.dtype && (matmul.factors == 0 || std::all_of(factors, symbol.arguments.end(), is_one));
  }

  /// The block stands where the matmul stood. Who reads the matmul's result besides goes on reading it.
  bool take_gelu(std::uint32_t place) {
    const ir::BoundSymbol gelu = trace_.symbols[place];
    const ir::ValueId input = value_argument(gelu, 0);
    const auto source = source_of(input);
    if (!source || !is_matrix(single_result(gelu)) || type(single_result(gelu))->dtype != type(input)->dtype)
      return false;
    std::vector<ir::BoundSymbol> inside{trace_.symbols[source->matmul]};
    const ir::ValueId multiplied = single_result(inside.front());
    bool is_kept = uses_.count(multiplied) > 1 || uses_.is_output(multiplied);
    if (source->reshape != kNoPlace) {
      ir::BoundSymbol reshape = trace_.symbols[source->reshape];
      const bool is_read = uses_.count(input) > 1 || uses_.is_output(input);
      if (!is_read) trace_.symbols[source->reshape].op = nullptr;
      is_kept = is_kept || is_read;
      const ir::ValueId reshaped = trace_.add_value(trace_.value(input).type);
      reshape.results = {ir::Argument(reshaped)};
      inside.push_back(std::move(reshape));
      inside.push_back(gelu);
      inside.back().arguments[0] = ir::Argument(reshaped);
    } else {
      inside.push_back(gelu);
    }
    ir::ArgumentList gives{ir::Argument(single_result(gelu))};
    if (is_kept) gives.emplace_back(multiplied);
    trace_.symbols[source->matmul] =
        block(kGelu, "a matmul and its GELU, by cuBLASLt", std::move(gives), std::move(inside));
    trace_.symbols[place].op = nullptr;
    return true;
  }

  /// The block stands where the gradient stood: what the GELU was of may be made after the matmul.
  bool take_gradient(std::uint32_t place) {
    const ir::BoundSymbol gradient = trace_.symbols[place];
    const ir::ValueId incoming = value_argument(gradient, 0);
    const ir::ValueId input = value_argument(gradient, 1);
    const ir::ValueId result = single_result(gradient);
    const auto source = source_of(incoming);
    if (!source || !is_matrix(input) || !is_matrix(result) || aliases_.is_written(input)) return false;
    if (type(input)->sizes != type(incoming)->sizes || type(input)->dtype != type(incoming)->dtype) return false;
    const ir::BoundSymbol& matmul = trace_.symbols[source->matmul];
    const bool is_alone = uses_.count(incoming) == 1 && uses_.count(single_result(matmul)) == 1;
    if (!is_alone || operators::find_matmul(*matmul.op)->bias || reads_written(matmul)) return false;
    std::vector<ir::BoundSymbol> inside{matmul};
    if (source->reshape != kNoPlace) inside.push_back(trace_.symbols[source->reshape]);
    inside.push_back(gradient);
    ir::ArgumentList gives{ir::Argument(result)};
    if (const std::uint32_t sum = sum_of_columns(result); sum != kNoPlace) {
      inside.push_back(trace_.symbols[sum]);
      gives.emplace_back(single_result(trace_.symbols[sum]));
      trace_.symbols[sum].op = nullptr;
    }
    trace_.symbols[source->matmul].op = nullptr;
    if (source->reshape != kNoPlace) trace_.symbols[source->reshape].op = nullptr;
    trace_.symbols[place] = block(kGeluGradient, "a matmul, times the derivative of a GELU, by cuBLASLt",
                                  std::move(gives), std::move(inside));
    return true;
  }

  [[nodiscard]] bool reads_written(const ir::BoundSymbol& symbol) const {
    bool reads = false;
    passes::for_each_argument(symbol, [&](ir::ValueId id) { reads = reads || aliases_.is_written(id); });
    return reads;
  }

  /// The symbol that sums a value over all dimensions but the last one.
  [[nodiscard]] std::uint32_t sum_of_columns(ir::ValueId id) const {
    const std::size_t rank = type(id)->sizes.size();
    for (const std::uint32_t reader : uses_.readers(id)) {
      const ir::BoundSymbol& symbol = trace_.symbols[reader];
      if (symbol.op == nullptr || symbol.op->name != operators::kSum || symbol.op->overload != "dim_IntList") continue;
      const auto* dims = symbol.arguments[1].get<ir::ArgumentList>();
      const ir::TensorType* result = type(single_result(symbol));
      if (dims == nullptr || dims->size() != rank - 1 || result->dtype != type(id)->dtype) continue;
      const bool keeps_last = std::ranges::all_of(*dims, [&](const ir::Argument& dim) {
        const auto* number = dim.get<std::int64_t>();
        return number != nullptr && passes::wrap_dim(*number, rank) + 1 < rank;
      });
      if (keeps_last) return reader;
    }
    return kNoPlace;
  }

  /// A block that reads what its operations read of others.
  [[nodiscard]] ir::BoundSymbol block(std::string_view kind, const char* comment, ir::ArgumentList gives,
                                      std::vector<ir::BoundSymbol> inside) const {
    std::vector<ir::ValueId> made;
    std::vector<ir::ValueId> read;
    for (ir::BoundSymbol& symbol : inside) {
      symbol.nested.clear();
      for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) {
        const bool is_known = std::ranges::find(made, id) != made.end() || std::ranges::find(read, id) != read.end();
        if (!is_known) read.push_back(id);
      }
      passes::for_each_result(symbol, [&](ir::ValueId id) { made.push_back(id); });
    }
    ir::ArgumentList reads(read.begin(), read.end());
    ir::BoundSymbol made_block =
        fusion::make_block(executor_, kind, std::move(reads), std::move(gives), std::move(inside));
    made_block.comment = comment;
    return made_block;
  }

  ir::Trace& trace_;
  EpilogueRule rule_;
  const char* executor_;
  ir::Uses uses_;
  passes::AliasAnalysis aliases_;
};

}  // namespace

bool take_epilogues(ir::Trace& trace, const EpilogueRule& rule, const char* executor) {
  return Taker(trace, rule, executor).run();
}

}  // namespace thunder::executors::cublaslt
