#include "fusion/buffer_assignment.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fusion/block_results.h"
#include "fusion/buffer_regions.h"
#include "fusion/buffer_symbols.h"
#include "fusion/lowering.h"
#include "fusion/operations.h"
#include "fusion/region.h"
#include "ir/builder.h"
#include "ir/substitution.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "operators/row_copies.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

using Result = FusionRole::Result;

/// The parameters of `aten::copy_`.
enum CopyArgument : std::size_t { kTarget, kSource };

/// Smaller results get memory of their own: for them the allocator is faster than the pages are worth.
constexpr std::int64_t kLeastInPlace = 4096;

bool is_number(const Dim& dim) { return dim.is_concrete(); }

/// Whether parts hide no other one, and do not reach out of the result.
bool are_apart(const BufferRegions& regions, const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType& result = *result_type(symbol, trace);
  Dim count = 0;
  for (const BufferRegion& part : regions.parts) {
    count += product_of(trace.tensor_type(part.value)->sizes);
    for (std::size_t i = 0; i < part.sizes.size(); ++i) {
      const Dim end = part.start[i] + part.sizes[i];
      if (part.start[i] == Dim(0) && end == result.sizes[i]) continue;
      if (!regions.fill) continue;  // one part behind the other
      if (!is_number(part.start[i]) || !is_number(end) || !is_number(result.sizes[i])) return false;
      if (part.start[i].hint < 0 || end.hint > result.sizes[i].hint) return false;
    }
  }
  return count == product_of(result.sizes) || (regions.fill && regions.parts.size() == 1);
}

/// `a + b` is `b + a` unless the second one is scaled.
bool may_swap(const BoundSymbol& symbol) {
  return symbol.arguments.size() == 2 || symbol.arguments[2] == ir::Argument(1);
}

class BufferAssignment {
 public:
  BufferAssignment(const Trace& trace, FindTarget find_target, passes::FindOperator find_operator)
      : trace_(trace),
        find_target_(find_target),
        find_operator_(find_operator),
        uses_(trace),
        aliases_(trace),
        last_use_(aliases_.last_uses(trace)),
        bytes_(trace.value_count(), 0),
        result_(trace.empty_copy(kBufferAssignment)),
        symbols_(trace.symbols),
        before_(trace.symbols.size()),
        after_(trace.symbols.size()),
        is_removed_(trace.symbols.size(), false),
        replaced_(trace.value_count()) {
    for (const BoundSymbol& symbol : trace.symbols) {
      // The first value of a set has all of its memory.
      passes::for_each_result(symbol, [&](ir::ValueId id) {
        std::int64_t& bytes = bytes_[aliases_.set_of(id)];
        if (bytes == 0) bytes = passes::size_in_bytes(trace.tensor_type(id));
      });
    }
  }

  Trace run() {
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const BoundSymbol& symbol = trace_.symbols[i];
      if (symbol.op->style != ir::CallStyle::kTorchOperator) continue;
      if (is_copy(symbol)) {
        if (write_in_place(i)) {
          write_rows_from_fusion(uses_.maker(passes::value_argument(symbol, kSource)));
        } else {
          write_to_caller(i);
        }
      } else if (const auto regions = buffer_regions_of(symbol, trace_)) {
        if (!slice(i)) put_together(i, *regions);
      } else {
        overwrite_operand(i);
      }
      if (operators::has_fact(*symbol.op, operators::Fact::kAsynchronous)) keep_until_wait(i);
    }
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      add_all(before_[i]);
      if (!is_removed_[i]) add(std::move(symbols_[i]));
      add_all(after_[i]);
    }
    add_all(at_end_);
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  void add(BoundSymbol symbol) {
    replaced_.apply(symbol.arguments);
    for (BoundSymbol& nested : symbol.nested) replaced_.apply(nested.arguments);
    result_.add(std::move(symbol));
  }
  void add_all(std::vector<BoundSymbol>& symbols) {
    for (BoundSymbol& symbol : symbols) add(std::move(symbol));
  }

  /// Null: the symbol is no fusion of a target's kernels.
  [[nodiscard]] const Target* target_of(const BoundSymbol& symbol) const {
    return is_kernel(symbol) ? find_target_(std::get<std::string>(symbol.arguments[0].content)) : nullptr;
  }

  /// The fusion that gives a value which only one operation reads; kNoPlace: there is none.
  [[nodiscard]] std::uint32_t fusion_of(ir::ValueId value) const {
    const std::uint32_t maker = uses_.maker(value);
    if (maker == passes::kNoPlace || uses_.count(value) != 1) return passes::kNoPlace;
    return target_of(trace_.symbols[maker]) == nullptr ? passes::kNoPlace : maker;
  }

  /// Whether a value that a fusion gives is known element by element, not when all is done.
  [[nodiscard]] bool is_of_elements(ir::ValueId value, const BoundSymbol& fused) const {
    for (const BoundSymbol& symbol : fused.nested) {
      const FusionRole role = role_of(symbol, trace_, *target_of(fused));
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

  // --- asynchronous operations

  /// Reads once more, behind the wait, what an asynchronous operation reads and gives: so nobody frees it before.
  void keep_until_wait(std::uint32_t i) {
    const BoundSymbol& symbol = trace_.symbols[i];
    const std::uint32_t wait = aliases_.wait_for(trace_, i);
    ir::ArgumentList kept;
    const auto keep = [&](ir::ValueId id) {
      if (!uses_.is_output(id) && uses_.last_use(id) < wait) kept.emplace_back(id);
    };
    passes::for_each_argument(symbol, keep);
    passes::for_each_result(symbol, keep);
    if (kept.empty()) return;
    BoundSymbol reader;
    reader.op = keep_operator();
    reader.arguments = {ir::Argument(std::move(kept))};
    (wait == passes::kNoPlace ? at_end_ : after_[wait]).push_back(std::move(reader));
  }

  // --- results in the place of operands

  void overwrite_operand(std::size_t i) {
    const BoundSymbol& symbol = trace_.symbols[i];
    const ir::ValueId result = passes::single_result(symbol);
    if (result == ir::kNoValue || !passes::is_pure(symbol) || aliases_.is_written(result)) return;
    const ir::TensorType* type = trace_.tensor_type(result);
    if (passes::size_in_bytes(type) < kLeastInPlace || !passes::is_dense(*type)) return;
    const operators::InPlaceForm& form = in_place_form(symbol);
    for (std::size_t k = 0; form.op != nullptr && k < form.candidates; ++k) {
      if (!gives_memory(symbol, k, *type, i) || (k != 0 && !form.is_out && !may_swap(symbol))) continue;
      write_into(i, k, form);
      return;
    }
  }

  const operators::InPlaceForm& in_place_form(const BoundSymbol& symbol) {
    const auto [entry, is_new] = forms_.try_emplace(symbol.op);
    if (is_new) entry->second = operators::in_place_form(*symbol.op, find_operator_);
    return entry->second;
  }

  /// Whether argument `k` of symbol `i` dies there, alone in memory that is just right for the result.
  [[nodiscard]] bool gives_memory(const BoundSymbol& symbol, std::size_t k, const ir::TensorType& type,
                                  std::size_t i) const {
    const ir::ValueId target = passes::value_argument(symbol, k);
    const ir::TensorType* target_type = trace_.tensor_type(target);
    if (target_type == nullptr || !passes::same_layout(*target_type, type)) return false;
    const std::uint32_t set = aliases_.set_of(target);
    if (!aliases_.is_own_memory(target) || last_use_[set] != i || bytes_[set] != passes::size_in_bytes(&type))
      return false;
    return is_read_once(symbol, target);
  }

  /// Whether one argument only has memory of the target's.
  [[nodiscard]] bool is_read_once(const BoundSymbol& symbol, ir::ValueId target) const {
    std::size_t uses = 0;
    passes::for_each_argument(symbol, [&](ir::ValueId id) { uses += aliases_.may_alias(id, target) ? 1 : 0; });
    return uses == 1;
  }

  void write_into(std::size_t i, std::size_t k, const operators::InPlaceForm& form) {
    BoundSymbol& symbol = symbols_[i];
    const ir::ValueId target = passes::value_argument(symbol, k);
    const ir::ValueId result = passes::single_result(symbol);
    symbol.op = form.op;
    if (form.is_out) {
      symbol.arguments.emplace_back(target);
    } else if (k != 0) {
      std::swap(symbol.arguments[0], symbol.arguments[k]);
    }
    const std::uint32_t last_use = last_use_[aliases_.set_of(result)];
    const std::int64_t bytes = bytes_[aliases_.set_of(result)];
    aliases_.join(target, result);
    last_use_[aliases_.set_of(result)] = last_use;
    bytes_[aliases_.set_of(result)] = bytes;
  }

  // --- copies to memory of the caller

  /// The operation that made what is copied writes to the copy's target, which is its first argument.
  bool write_in_place(std::size_t i) {
    const ir::ValueId target = passes::value_argument(trace_.symbols[i], kTarget);
    const ir::ValueId value = passes::value_argument(trace_.symbols[i], kSource);
    const std::uint32_t place = uses_.maker(value);
    if (place == passes::kNoPlace || target == ir::kNoValue) return false;
    const BoundSymbol& maker = trace_.symbols[place];
    const ir::TensorType& type = *trace_.tensor_type(target);
    const bool is_call = maker.op->style == ir::CallStyle::kTorchOperator && passes::is_pure(maker) &&
                         symbols_[place].op == maker.op && passes::single_result(maker) == value;
    if (!is_call || passes::value_argument(maker, 0) != target || !is_read_once(maker, target)) return false;
    if (!passes::is_dense(type) || !passes::same_layout(type, *trace_.tensor_type(value))) return false;
    if (aliases_.is_written(value) || aliases_.touches_output(value) || !is_free(target, place, i)) return false;
    const operators::InPlaceForm& form = in_place_form(maker);
    if (form.op == nullptr || form.is_out) return false;
    symbols_[place].op = form.op;
    aliases_.join(target, value);
    remove(i, target);
    return true;
  }

  /// A value that a fusion hands, perhaps through views, to an operation that writes rows of the caller's memory.
  struct RowSource {
    std::uint32_t fusion = passes::kNoPlace;
    ir::ValueId value = ir::kNoValue;
    std::vector<std::uint32_t> views;  ///< places, in order
  };
  [[nodiscard]] RowSource row_source_of(ir::ValueId source) const {
    RowSource found;
    found.value = source;
    while (found.value != ir::kNoValue && uses_.count(found.value) == 1) {
      const std::uint32_t place = uses_.maker(found.value);
      if (place == passes::kNoPlace || is_removed_[place]) break;
      if (target_of(trace_.symbols[place]) != nullptr) {
        found.fusion = place;
        break;
      }
      if (!operators::is_view(*trace_.symbols[place].op)) break;
      found.views.insert(found.views.begin(), place);
      found.value = passes::value_argument(trace_.symbols[place], 0);
    }
    return found;
  }

  /// The fusion that makes what operation `i` copies to rows of the caller's memory writes it there itself.
  void write_rows_from_fusion(std::uint32_t i) {
    const operators::RowCopy* places = operators::find_row_copy(*symbols_[i].op);
    if (places == nullptr) return;
    const ir::ValueId target = passes::value_argument(symbols_[i], places->target);
    if (trace_.tensor_type(target)->sizes.empty()) return;
    const ir::ValueId index = passes::value_argument(symbols_[i], places->index);
    const RowSource source = row_source_of(passes::value_argument(symbols_[i], places->source));
    const std::uint32_t place = source.fusion;
    if (place == passes::kNoPlace || index == ir::kNoValue || !target_of(trace_.symbols[place])->stores_rows) return;
    const bool has_index = uses_.maker(index) == passes::kNoPlace || uses_.maker(index) < place;
    if (!has_index || aliases_.is_written(index) || !is_free(target, place, i)) return;
    BoundSymbol fused = with_rows_written(source, i, {target, index});
    if (!has_kernel(fused)) return;
    const ir::ValueId written = passes::single_result(symbols_[i]);
    symbols_[place] = std::move(fused);
    for (const std::uint32_t view : source.views) is_removed_[view] = true;
    is_removed_[i] = true;
    const ir::Argument* replacement = replaced_.find(target);
    replaced_.set(written, replacement == nullptr ? ir::Argument(target) : *replacement);
  }

  /// The fusion of a source with the views, and with operation `i` at its end, which reads these values, too.
  [[nodiscard]] BoundSymbol with_rows_written(const RowSource& source, std::uint32_t i,
                                              std::initializer_list<ir::ValueId> reads) const {
    BoundSymbol fused = symbols_[source.fusion];
    auto& tensors = std::get<ir::ArgumentList>(fused.arguments[1].content);
    for (const ir::ValueId id : reads) {
      if (std::ranges::find(tensors, ir::Argument(id)) == tensors.end()) tensors.emplace_back(id);
    }
    for (const std::uint32_t view : source.views) fused.nested.push_back(trace_.symbols[view]);
    fused.nested.push_back(symbols_[i]);
    fused.nested.back().results = {ir::Argument()};
    std::erase(std::get<ir::ArgumentList>(fused.results[0].content), ir::Argument(source.value));
    return fused;
  }

  [[nodiscard]] bool has_kernel(const BoundSymbol& fused) const {
    const Trace region = region_of(fused, trace_);
    return Lowering::lower(region.symbols[0], region, traced_strides(region), *target_of(fused)).has_value();
  }

  void write_to_caller(std::size_t i) {
    const BoundSymbol& copy = trace_.symbols[i];
    const ir::ValueId target = passes::value_argument(copy, kTarget);
    const ir::ValueId value = passes::value_argument(copy, kSource);
    const std::uint32_t place = fusion_of(value);
    if (place == passes::kNoPlace || target == ir::kNoValue) return;
    const BoundSymbol& fused = trace_.symbols[place];
    if (!passes::same_layout(*trace_.tensor_type(target), *trace_.tensor_type(value))) return;
    const std::vector<ir::ValueId> inputs = ir::distinct_values(fused.arguments);
    if (std::ranges::find(inputs, target) == inputs.end() || !is_free(target, place, i)) return;
    symbols_[place].nested.push_back(copy);
    drop_result(place, value);
    remove(i, target);
  }

  /// Whether nobody looks at the target's memory between a fusion, or an operation, and the copy.
  [[nodiscard]] bool is_free(ir::ValueId target, std::size_t fused, std::size_t copy) const {
    bool is_free = !passes::may_raise(trace_, trace_.symbols[fused]);
    for (const BoundSymbol& symbol : std::span(trace_.symbols).subspan(fused + 1, copy - fused - 1)) {
      // A number that is not as it was has the program run again, from its start.
      is_free = is_free && (symbol.op->style != ir::CallStyle::kPrimitive || passes::is_constant(symbol));
      // A program that raises an error runs again in eager, from what the inputs held.
      is_free = is_free && !passes::may_raise(trace_, symbol);
      // An asynchronous operation that began before the fusion may read the target until it is waited for.
      is_free = is_free && !operators::communicates(*symbol.op);
      passes::for_each_argument(symbol, [&](ir::ValueId id) { is_free = is_free && !aliases_.may_alias(id, target); });
    }
    for (const ir::ValueId id : ir::distinct_values(trace_.symbols[fused].arguments)) {
      is_free = is_free && (id == target || !aliases_.may_alias(id, target));
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
    if (run < target_of(trace_.symbols[place])->least_run) return false;
    symbols_[place].nested.push_back(symbol);
    drop_result(place, value);
    std::get<ir::ArgumentList>(symbols_[place].results[0].content).emplace_back(passes::single_result(symbol));
    is_removed_[i] = true;
    return true;
  }

  // --- results that are parts of larger ones

  void put_together(std::size_t i, const BufferRegions& regions) {
    const BoundSymbol& symbol = trace_.symbols[i];
    const ir::TensorType& type = *result_type(symbol, trace_);
    if (!passes::is_dense(type) || !are_apart(regions, symbol, trace_)) return;
    std::vector<std::uint32_t> places;  // fusions that compute parts in their final memory
    std::uint32_t first = passes::kNoPlace;
    for (const BufferRegion& part : regions.parts) {
      places.push_back(can_stand(part, type) ? fusion_of(part.value) : passes::kNoPlace);
      first = std::min(first, places.back());
    }
    if (first == passes::kNoPlace || is_mostly_copied(regions, places, first)) return;
    BufferSymbols symbols(result_, find_operator_, symbol.location);
    const ir::ValueId buffer = symbols.add_buffer(type, before_[first]);
    for (std::size_t k = 0; k < regions.parts.size(); ++k) {
      const BufferRegion& part = regions.parts[k];
      std::vector<BoundSymbol>& where = places[k] == passes::kNoPlace ? after_[i] : before_[first];
      const ir::ValueId slice = symbols.add_slice(buffer, part, where);
      BoundSymbol copy = symbols.copy(slice, part.value);
      if (places[k] == passes::kNoPlace) {
        after_[i].push_back(std::move(copy));
      } else {
        std::get<ir::ArgumentList>(symbols_[places[k]].arguments[1].content).emplace_back(slice);
        symbols_[places[k]].nested.push_back(std::move(copy));
        drop_result(places[k], part.value);
      }
    }
    if (regions.fill) symbols.fill_around(buffer, regions.parts[0], *regions.fill, after_[i]);
    remove(i, buffer);
  }

  /// Whether fusions make so little of a tensor, such as the last row of a cache that grows, that one kernel which
  /// copies all parts takes less time than the launches for the other parts alone. Only a target that batches kernels
  /// has one.
  [[nodiscard]] bool is_mostly_copied(const BufferRegions& regions, const std::vector<std::uint32_t>& places,
                                      std::uint32_t fused) const {
    constexpr std::int64_t kMuch = 4;
    if (target_of(trace_.symbols[fused])->largest_in_batch == 0) return false;
    std::int64_t made = 0;
    std::int64_t copied = 0;
    for (std::size_t k = 0; k < places.size(); ++k) {
      const std::int64_t bytes = passes::size_in_bytes(trace_.tensor_type(regions.parts[k].value));
      (places[k] == passes::kNoPlace ? copied : made) += bytes;
    }
    return copied > kMuch * made;
  }

  /// Whether a part's elements follow one another in the buffer as they would in a tensor of their own.
  [[nodiscard]] bool can_stand(const BufferRegion& part, const ir::TensorType& buffer) const {
    const std::uint32_t place = fusion_of(part.value);
    if (place == passes::kNoPlace || !is_of_elements(part.value, trace_.symbols[place])) return false;
    const ir::TensorType& type = *trace_.tensor_type(part.value);
    const std::vector<std::size_t> order = memory_order(type);
    ir::TensorType there = type;
    there.strides = strides_in(part, buffer);
    return passes::is_dense(type) && memory_order(there) == order && !order.empty() &&
           there.strides[order.back()] == Dim(1);
  }

  // --- changes

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
  FindTarget find_target_;
  passes::FindOperator find_operator_;
  ir::Uses uses_;
  passes::AliasAnalysis aliases_;
  std::vector<std::uint32_t> last_use_;  ///< by alias set
  std::vector<std::int64_t> bytes_;      ///< by alias set
  std::unordered_map<const ir::Operator*, operators::InPlaceForm> forms_;
  Trace result_;
  std::vector<BoundSymbol> symbols_;              ///< those of the trace, as they will be
  std::vector<std::vector<BoundSymbol>> before_;  ///< by position
  std::vector<std::vector<BoundSymbol>> after_;
  std::vector<BoundSymbol> at_end_;
  std::vector<bool> is_removed_;
  ir::Substitution replaced_;
};

}  // namespace

const ir::Operator* keep_operator() {
  static const ir::Operator* const kRow =
      new ir::Operator(ir::parse_operator("prims::keep(Tensor[] tensors) -> ()", ir::CallStyle::kPrimitive));
  return kRow;
}

Trace assign_buffers(const Trace& trace, FindTarget find_target, passes::FindOperator find_operator) {
  return BufferAssignment(trace, find_target, find_operator).run();
}

}  // namespace thunder::fusion
