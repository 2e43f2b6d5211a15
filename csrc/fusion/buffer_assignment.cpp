#include "fusion/buffer_assignment.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fusion/block_results.h"
#include "fusion/operations.h"
#include "fusion/placements.h"
#include "fusion/region.h"
#include "ir/substitution.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

using Result = FusionRole::Result;

/// The parameters of `aten::copy_`.
enum CopyArgument : std::size_t { kTarget, kSource };

bool is_number(const Dim& dim) { return dim.is_concrete(); }

/// Whether parts hide no other one, and do not reach out of the result.
bool are_apart(const Placements& placements, const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType& result = *result_type(symbol, trace);
  Dim count = 0;
  for (const Placement& part : placements.parts) {
    count += product_of(trace.tensor_type(part.value)->sizes);
    for (std::size_t i = 0; i < part.sizes.size(); ++i) {
      const Dim end = part.start[i] + part.sizes[i];
      if (part.start[i] == Dim(0) && end == result.sizes[i]) continue;
      if (!placements.fill) continue;  // one part behind the other
      if (!is_number(part.start[i]) || !is_number(end) || !is_number(result.sizes[i])) return false;
      if (part.start[i].hint < 0 || end.hint > result.sizes[i].hint) return false;
    }
  }
  return count == product_of(result.sizes) || (placements.fill && placements.parts.size() == 1);
}

/// Whether running the symbol may raise an error: an operation that does for data, or code that is not PyTorch's.
bool may_raise(const Trace& trace, const BoundSymbol& symbol) {
  const bool is_call = symbol.op->style == ir::CallStyle::kTorchOperator;
  return (is_call && !symbol.op->name.starts_with("aten::")) || operators::may_raise_for_data(trace, symbol) ||
         std::ranges::any_of(symbol.nested, [&](const BoundSymbol& part) { return may_raise(trace, part); });
}

class BufferAssignment {
 public:
  BufferAssignment(const Trace& trace, std::string_view executor, const Target& target,
                   passes::FindOperator find_operator)
      : trace_(trace),
        executor_(executor),
        target_(target),
        find_operator_(find_operator),
        uses_(trace),
        result_(trace.empty_copy(kBufferAssignment)),
        symbols_(trace.symbols),
        before_(trace.symbols.size()),
        after_(trace.symbols.size()),
        is_removed_(trace.symbols.size(), false),
        replaced_(trace.value_count()) {}

  std::optional<Trace> run() {
    for (std::size_t i = 0; i < trace_.symbols.size(); ++i) {
      const BoundSymbol& symbol = trace_.symbols[i];
      if (symbol.op->style != ir::CallStyle::kTorchOperator) continue;
      if (is_copy(symbol)) {
        write_to_caller(i);
      } else if (const auto placements = placements_of(symbol, trace_)) {
        if (!slice(i)) put_together(i, *placements);
      }
    }
    if (std::ranges::find(is_removed_, true) == is_removed_.end()) return std::nullopt;
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      for (BoundSymbol& symbol : before_[i]) result_.add(std::move(symbol));
      replaced_.apply(symbols_[i].arguments);
      for (BoundSymbol& nested : symbols_[i].nested) replaced_.apply(nested.arguments);
      if (!is_removed_[i]) result_.add(std::move(symbols_[i]));
      for (BoundSymbol& symbol : after_[i]) {
        replaced_.apply(symbol.arguments);
        result_.add(std::move(symbol));
      }
    }
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  /// The fusion that gives a value which only one operation reads; kNoPlace: there is none.
  [[nodiscard]] std::uint32_t fusion_of(ir::ValueId value) const {
    const std::uint32_t maker = uses_.maker(value);
    if (maker == passes::kNoPlace || uses_.count(value) != 1) return passes::kNoPlace;
    return is_kernel_of(trace_.symbols[maker], executor_) ? maker : passes::kNoPlace;
  }

  /// Whether a value that a fusion gives is known element by element, not when all is done.
  [[nodiscard]] bool is_of_elements(ir::ValueId value, const BoundSymbol& fused) const {
    for (const BoundSymbol& symbol : fused.nested) {
      const FusionRole role = role_of(symbol, trace_, target_);
      std::size_t k = 0;
      bool found = false;
      passes::for_each_result(symbol, [&](ir::ValueId id) {
        found = found || (id == value && role.results.at(k) == Result::kElements);
        ++k;
      });
      if (found) return true;
    }
    return false;
  }

  // --- copies to memory of the caller

  void write_to_caller(std::size_t i) {
    const BoundSymbol& copy = trace_.symbols[i];
    const ir::ValueId target = passes::value_argument(copy, kTarget);
    const ir::ValueId value = passes::value_argument(copy, kSource);
    const std::uint32_t place = value == ir::kNoValue ? passes::kNoPlace : fusion_of(value);
    if (place == passes::kNoPlace || target == ir::kNoValue) return;
    const BoundSymbol& fused = trace_.symbols[place];
    if (!passes::same_layout(*trace_.tensor_type(target), *trace_.tensor_type(value))) return;
    const std::vector<ir::ValueId> inputs = ir::distinct_values(fused.arguments);
    if (std::ranges::find(inputs, target) == inputs.end() || !is_free(target, place, i)) return;
    symbols_[place].nested.push_back(copy);
    drop_result(place, value);
    remove(i, target);
  }

  /// Whether nobody looks at the target's memory between a fusion and the copy.
  [[nodiscard]] bool is_free(ir::ValueId target, std::size_t fused, std::size_t copy) {
    if (!aliases_) aliases_.emplace(trace_);
    bool is_free = !may_raise(trace_, trace_.symbols[fused]);
    for (const BoundSymbol& symbol : std::span(trace_.symbols).subspan(fused + 1, copy - fused - 1)) {
      // A number that is not as it was has the program run again, from its start.
      is_free = is_free && symbol.op->style != ir::CallStyle::kPrimitive;
      // A program that raises an error runs again in eager, from what the inputs held.
      is_free = is_free && !may_raise(trace_, symbol);
      // An asynchronous operation that began before the fusion may read the target until it is waited for.
      is_free = is_free && !operators::communicates(*symbol.op);
      passes::for_each_argument(symbol, [&](ir::ValueId id) { is_free = is_free && !aliases_->may_alias(id, target); });
    }
    for (const ir::ValueId id : ir::distinct_values(trace_.symbols[fused].arguments)) {
      is_free = is_free && (id == target || !aliases_->may_alias(id, target));
    }
    return is_free;
  }

  // --- slices

  /// A fusion ends with the operation, if that takes a slice of its result of which nothing else is read.
  bool slice(std::size_t i) {
    const BoundSymbol& symbol = trace_.symbols[i];
    const auto start = slice_start(symbol, trace_);
    const ir::ValueId value = passes::value_argument(symbol, 0);
    const std::uint32_t place = start ? fusion_of(value) : passes::kNoPlace;
    if (place == passes::kNoPlace || !is_of_elements(value, trace_.symbols[place])) return false;
    const ir::Dims& of_result = trace_.tensor_type(value)->sizes;
    const ir::Dims& sizes = result_type(symbol, trace_)->sizes;
    std::int64_t run = 1;  // elements that follow one another in the result, too
    for (std::size_t d = sizes.size(); d-- > 0;) {
      run *= sizes[d].hint;
      if (sizes[d] != of_result[d]) break;
    }
    if (run < target_.least_run) return false;
    symbols_[place].nested.push_back(symbol);
    drop_result(place, value);
    std::get<ir::ArgumentList>(symbols_[place].results[0].content).emplace_back(passes::single_result(symbol));
    is_removed_[i] = true;
    return true;
  }

  // --- results that are parts of larger ones

  void put_together(std::size_t i, const Placements& placements) {
    const BoundSymbol& symbol = trace_.symbols[i];
    const ir::TensorType& type = *result_type(symbol, trace_);
    if (!passes::is_dense(type) || !are_apart(placements, symbol, trace_)) return;
    std::vector<std::uint32_t> places;  // fusions that compute parts in their final memory
    std::uint32_t first = passes::kNoPlace;
    for (const Placement& part : placements.parts) {
      places.push_back(can_stand(part, type) ? fusion_of(part.value) : passes::kNoPlace);
      first = std::min(first, places.back());
    }
    if (first == passes::kNoPlace) return;
    location_ = symbol.location;
    const ir::ValueId buffer = add_buffer(type, first);
    for (std::size_t k = 0; k < placements.parts.size(); ++k) {
      const Placement& part = placements.parts[k];
      std::vector<BoundSymbol>& where = places[k] == passes::kNoPlace ? after_[i] : before_[first];
      const ir::ValueId slice = add_slice(buffer, part, where);
      BoundSymbol copy = write("aten::copy_", "", {slice, part.value, false});
      if (places[k] == passes::kNoPlace) {
        after_[i].push_back(std::move(copy));
      } else {
        std::get<ir::ArgumentList>(symbols_[places[k]].arguments[1].content).emplace_back(slice);
        symbols_[places[k]].nested.push_back(std::move(copy));
        drop_result(places[k], part.value);
      }
    }
    if (placements.fill) fill_around(buffer, placements.parts[0], *placements.fill, after_[i]);
    remove(i, buffer);
  }

  /// Whether a part's elements follow one another in the buffer as they would in a tensor of their own.
  [[nodiscard]] bool can_stand(const Placement& part, const ir::TensorType& buffer) const {
    const std::uint32_t place = fusion_of(part.value);
    if (place == passes::kNoPlace || !is_of_elements(part.value, trace_.symbols[place])) return false;
    const ir::TensorType& type = *trace_.tensor_type(part.value);
    const std::vector<std::size_t> order = memory_order(type);
    ir::TensorType there = type;
    there.strides = strides_in(part, buffer);
    return passes::is_dense(type) && memory_order(there) == order && !order.empty() &&
           there.strides[order.back()] == Dim(1);
  }

  /// The strides of a part where it stands.
  static ir::Dims strides_in(const Placement& part, const ir::TensorType& buffer) {
    ir::Dims strides = buffer.strides;
    if (part.missing_dim) strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(*part.missing_dim));
    return strides;
  }

  ir::ValueId add_buffer(const ir::TensorType& type, std::uint32_t place) {
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
    before_[place].push_back(std::move(made));
    return buffer;
  }

  /// Views of the buffer that end in the place of the part.
  ir::ValueId add_slice(ir::ValueId buffer, const Placement& part, std::vector<BoundSymbol>& where) {
    ir::ValueId view = buffer;
    for (std::size_t d = 0; d < part.start.size(); ++d) {
      if (part.missing_dim != d) view = narrow(view, d, part.start[d], part.start[d] + part.sizes[d], where);
    }
    if (!part.missing_dim) return view;
    const std::size_t dim = *part.missing_dim;
    ir::TensorType type = *result_.tensor_type(view);
    type.storage_offset += part.start[dim] * type.strides[dim];
    type.sizes.erase(type.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
    type.strides.erase(type.strides.begin() + static_cast<std::ptrdiff_t>(dim));
    where.push_back(call("aten::select", "int", {view, dim, ir::Argument(part.start[dim])}, ir::make_type(type)));
    return passes::single_result(where.back());
  }

  ir::ValueId narrow(ir::ValueId view, std::size_t dim, const Dim& start, const Dim& end,
                     std::vector<BoundSymbol>& where) {
    ir::TensorType type = *result_.tensor_type(view);
    if (start == Dim(0) && end == type.sizes[dim]) return view;
    type.storage_offset += start * type.strides[dim];
    type.sizes[dim] = end - start;
    where.push_back(call("aten::slice", "Tensor", {view, dim, ir::Argument(start), ir::Argument(end), 1},
                         ir::make_type(std::move(type))));
    return passes::single_result(where.back());
  }

  /// Fills the elements on both sides of the part, along one dimension after the other.
  void fill_around(ir::ValueId buffer, const Placement& part, double number, std::vector<BoundSymbol>& where) {
    ir::ValueId view = buffer;
    std::optional<std::size_t> filled;  // the last dimension, of which `view` still has all
    for (std::size_t d = 0; d < part.start.size(); ++d) {
      const Dim end = part.start[d] + part.sizes[d];
      const Dim size = result_.tensor_type(buffer)->sizes[d];
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

  // --- changes

  /// A call that gives one new value.
  BoundSymbol call(const char* name, const char* overload, ir::ArgumentList arguments, const ir::TypePtr& type) {
    BoundSymbol symbol;
    symbol.op = find_operator_(name, overload);
    symbol.arguments = std::move(arguments);
    symbol.results = {ir::Argument(result_.add_value(type))};
    symbol.location = location_;
    return symbol;
  }

  /// A call that writes to its first argument, and of whose result nobody reads anything.
  BoundSymbol write(const char* name, const char* overload, ir::ArgumentList arguments) const {
    BoundSymbol symbol;
    symbol.op = find_operator_(name, overload);
    symbol.arguments = std::move(arguments);
    symbol.results = {ir::Argument()};
    symbol.location = location_;
    return symbol;
  }

  /// A fusion no longer gives a value, which it writes somewhere itself.
  void drop_result(std::uint32_t place, ir::ValueId value) {
    std::erase(std::get<ir::ArgumentList>(symbols_[place].results[0].content), ir::Argument(value));
  }

  /// Who reads the result of symbol `i` reads `value`.
  void remove(std::size_t i, ir::ValueId value) {
    is_removed_[i] = true;
    const ir::ValueId gone = passes::single_result(trace_.symbols[i]);
    const ir::Argument* replacement = replaced_.find(value);
    if (gone != ir::kNoValue) replaced_.set(gone, replacement == nullptr ? ir::Argument(value) : *replacement);
  }

  const Trace& trace_;
  std::string_view executor_;
  const Target& target_;
  passes::FindOperator find_operator_;
  ir::Uses uses_;
  std::optional<passes::AliasAnalysis> aliases_;
  Trace result_;
  std::vector<BoundSymbol> symbols_;              ///< those of the trace, as they will be
  std::vector<std::vector<BoundSymbol>> before_;  ///< by position
  std::vector<std::vector<BoundSymbol>> after_;
  std::vector<bool> is_removed_;
  ir::Substitution replaced_;
  ir::SourceLocation location_;
};

}  // namespace

std::optional<Trace> assign_buffers(const Trace& trace, std::string_view executor, const Target& target,
                                    passes::FindOperator find_operator) {
  const auto is_fused = [&](const BoundSymbol& symbol) { return is_kernel_of(symbol, executor); };
  if (std::ranges::none_of(trace.symbols, is_fused)) return std::nullopt;
  return BufferAssignment(trace, executor, target, find_operator).run();
}

}  // namespace thunder::fusion
