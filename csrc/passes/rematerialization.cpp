#include "passes/rematerialization.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ir/substitution.h"
#include "ir/trace_sizes.h"
#include "operators/elements.h"
#include "operators/facts.h"
#include "operators/names.h"
#include "passes/alias_analysis.h"
#include "passes/max_flow.h"
#include "passes/random_draws.h"
#include "passes/saving_preferences.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// A result so many times smaller than what it is computed from is saved: reading all that again costs more.
constexpr std::int64_t kSmall = 4;
/// On a GPU, a value that could be recomputed is not in memory, but for being saved: among values of about the same
/// size, those are saved that libraries have written. The share of its bytes by which it counts more.
constexpr std::int64_t kWriting = 16;

/// The values of a forward trace as a flow network: each is two nodes, joined by an edge as wide as the bytes that
/// saving it takes.
class ForwardCut {
 public:
  ForwardCut(const ir::Trace& forward, const ir::Trace& backward, const RematerializationOptions& options)
      : forward_(forward),
        policy_(options.policy),
        aliases_(forward),
        uses_(forward),
        last_write_(forward.value_count(), 0),
        available_(forward.value_count(), false),
        returned_sets_(forward.value_count(), false),
        compared_(compared_values(forward, backward, options.output_count)),
        read_from_memory_(values_read_from_memory(forward, backward, options.policy, options.output_count)),
        in_memory_(values_in_memory(forward, uses_, options.policy)),
        gathered_(gathered_values(forward)),
        flow_(static_cast<std::uint32_t>(2 * forward.value_count() + 2)) {
    for (std::uint32_t i = 0; i < forward.symbols.size(); ++i) {
      for_each_written(forward.symbols[i], [&](ir::ValueId id) { last_write_[aliases_.set_of(id)] = i; });
    }
    const std::span saved = std::span(forward.outputs).subspan(options.output_count);
    find_available_inputs(saved);
    for (const ir::Argument& output : std::span(forward.outputs).first(options.output_count)) {
      ir::for_each_value(output, [&](ir::ValueId id) { returned_sets_[aliases_.set_of(id)] = true; });
    }
    for (const ir::ValueId input : forward.inputs) add_value(input);
    for (std::uint32_t i = 0; i < forward.symbols.size(); ++i) add_symbol(i);
    for (const ir::Argument& value : saved) {
      ir::for_each_value(value, [&](ir::ValueId id) { flow_.add_edge(out(id), sink(), MaxFlow::kInfinite); });
    }
    flow_.run(source(), sink());
    behind_cut_ = flow_.sink_side(sink());
  }

  /// The symbol by which the backward recomputes a value that it needs; null: the value is saved.
  [[nodiscard]] const ir::BoundSymbol* recomputed_by(ir::ValueId id) const {
    const std::uint32_t maker = uses_.maker(id);
    return maker != kNoPlace && behind_cut_[in(id)] ? &forward_.symbols[maker] : nullptr;
  }

 private:
  static std::uint32_t in(ir::ValueId id) { return 2 * ir::index_of(id); }
  static std::uint32_t out(ir::ValueId id) { return 2 * ir::index_of(id) + 1; }
  [[nodiscard]] std::uint32_t source() const { return static_cast<std::uint32_t>(2 * forward_.value_count()); }
  [[nodiscard]] std::uint32_t sink() const { return source() + 1; }

  void find_available_inputs(std::span<const ir::Argument> saved) {
    std::vector<bool> saved_sets(forward_.value_count(), false);
    for (const ir::Argument& value : saved) {
      ir::for_each_value(value, [&](ir::ValueId id) { saved_sets[aliases_.set_of(id)] = true; });
    }
    for (const ir::ValueId input : forward_.inputs) {
      const ir::TensorType* type = forward_.tensor_type(input);
      const bool is_parameter = policy_ >= Recompute::kFast && type != nullptr && type->requires_grad;
      available_[ir::index_of(input)] = saved_sets[aliases_.set_of(input)] || is_parameter;
    }
  }

  void add_value(ir::ValueId id) {
    const std::int64_t bytes = available_[ir::index_of(id)] ? 0 : size_in_bytes(forward_.tensor_type(id));
    flow_.add_edge(in(id), out(id), bytes);
    flow_.add_edge(source(), in(id), MaxFlow::kInfinite);
  }

  void add_symbol(std::uint32_t position) {
    const ir::BoundSymbol& symbol = forward_.symbols[position];
    if (const auto drawn = drawn_with_state(symbol)) return add_draw(symbol, *drawn);
    const bool again = may_recompute(symbol, policy_) && reads_what_stays(position);
    const bool is_view = operators::is_view(*symbol.op);
    std::int64_t read = 0;
    for_each_argument(symbol, [&](ir::ValueId id) { read += size_in_bytes(forward_.tensor_type(id)); });
    for_each_result(symbol, [&](ir::ValueId id) {
      const std::int64_t bytes = size_in_bytes(forward_.tensor_type(id));
      const std::size_t i = ir::index_of(id);
      const bool is_at_hand = !gathered_[i] && (read_from_memory_[i] || in_memory_[i]);
      const bool stays = !again || (!is_view && (compared_[i] || is_at_hand));
      if (stays || (!is_view && bytes * kSmall <= read)) return add_value(id);
      // A view is not saved itself: its memory is.
      flow_.add_edge(in(id), out(id), is_view ? MaxFlow::kInfinite : bytes + bytes_of_writing(id));
      for (const ir::ValueId argument : read_again(symbol)) flow_.add_edge(out(argument), in(id), MaxFlow::kInfinite);
    });
  }

  [[nodiscard]] std::int64_t bytes_of_writing(ir::ValueId id) const {
    const ir::TensorType* type = forward_.tensor_type(id);
    const bool is_written_anyway = returned_sets_[aliases_.set_of(id)];
    return policy_ == Recompute::kFast && is_on_gpu(type) && !is_written_anyway ? size_in_bytes(type) / kWriting : 0;
  }

  /// A draw can be repeated from the generator's state.
  void add_draw(const ir::BoundSymbol& symbol, const DrawnValue& drawn) {
    for_each_result(symbol, [&](ir::ValueId id) {
      if (id != drawn.value) add_value(id);
    });
    flow_.add_edge(in(drawn.value), out(drawn.value), size_in_bytes(forward_.tensor_type(drawn.value)));
    flow_.add_edge(out(drawn.state), in(drawn.value), MaxFlow::kInfinite);
  }

  /// Tensors, and nothing that is written to afterwards.
  [[nodiscard]] bool reads_what_stays(std::uint32_t position) const {
    const ir::BoundSymbol& symbol = forward_.symbols[position];
    bool stays = true;
    const auto check = [&](ir::ValueId id) {
      const bool changes = aliases_.is_written(id) && last_write_[aliases_.set_of(id)] > position;
      stays = stays && forward_.tensor_type(id) != nullptr && !changes;
    };
    std::ranges::for_each(read_again(symbol), check);
    for_each_result(symbol, check);
    return stays;
  }

  const ir::Trace& forward_;
  Recompute policy_;
  AliasAnalysis aliases_;
  ir::Uses uses_;
  std::vector<std::uint32_t> last_write_;  ///< by alias set: a symbol
  std::vector<bool> available_;            ///< inputs that saving costs nothing
  std::vector<bool> returned_sets_;        ///< memory that the caller is given
  std::vector<bool> compared_;             ///< values that are not recomputed
  std::vector<bool> read_from_memory_;     ///< others that are not
  std::vector<bool> in_memory_;            ///< and others
  std::vector<bool> gathered_;             ///< those that are, whoever reads them
  MaxFlow flow_;
  std::vector<bool> behind_cut_;
};

/// A cut that was made: what is not saved is computed again.
class FixedCut {
 public:
  FixedCut(const ir::Trace& forward, const std::vector<ir::ValueId>& saved)
      : forward_(forward), uses_(forward), saved_(forward.value_count(), false) {
    for (const ir::ValueId id : saved) saved_[ir::index_of(id)] = true;
  }

  [[nodiscard]] const ir::BoundSymbol* recomputed_by(ir::ValueId id) const {
    const std::uint32_t maker = uses_.maker(id);
    return saved_[ir::index_of(id)] || maker == kNoPlace ? nullptr : &forward_.symbols[maker];
  }

 private:
  const ir::Trace& forward_;
  ir::Uses uses_;
  std::vector<bool> saved_;
};

/// Values of a forward on a GPU that are saved for a library's kernels, and that elementwise operations of the backward
/// read, too: where they come from one value of their size that is saved as well, element by element, those operations
/// do better to recompute them. So the mask of a relu behind a norm comes from the norm's input, which the norm's
/// gradient reads besides.
class ReadTwice {
 public:
  ReadTwice(const ir::Trace& forward, std::size_t output_count)
      : forward_(forward), uses_(forward), aliases_(forward), is_saved_(forward.value_count(), false) {
    for (std::size_t i = output_count; i < forward.outputs.size(); ++i) {
      ir::for_each_value(forward.outputs[i], [&](ir::ValueId id) { is_saved_[ir::index_of(id)] = true; });
    }
  }

  /// Whether the value is one of these, for a symbol of the backward that reads it.
  [[nodiscard]] bool holds(ir::ValueId id, const ir::BoundSymbol& reader) const {
    const ir::TensorType* type = forward_.tensor_type(id);
    if (!is_on_gpu(type) || !is_elementwise(reader)) return false;
    std::vector<ir::ValueId> pending{id};
    std::vector<ir::ValueId> large;
    for (std::size_t next = 0; next < pending.size(); ++next) {
      const ir::ValueId value = pending[next];
      if (aliases_.is_written(value)) return false;
      if (value != id && is_read(value)) {
        if (!is_small(value, id) && std::ranges::find(large, value) == large.end()) large.push_back(value);
        continue;
      }
      const ir::BoundSymbol* maker = this->maker(value);
      if (maker == nullptr || !is_elementwise(*maker) || pending.size() > kMostValues) return false;
      for_each_argument(*maker, [&](ir::ValueId argument) { pending.push_back(argument); });
    }
    return large.size() == 1;
  }
  /// Whether a value on the way is read as it is: it is saved, or a parameter.
  [[nodiscard]] bool is_read(ir::ValueId id) const {
    const ir::TensorType* type = forward_.tensor_type(id);
    const bool is_parameter = maker(id) == nullptr && type != nullptr && type->requires_grad;
    return is_saved_[ir::index_of(id)] || is_parameter;
  }
  [[nodiscard]] const ir::BoundSymbol* maker(ir::ValueId id) const {
    const std::uint32_t maker = uses_.maker(id);
    return maker == kNoPlace ? nullptr : &forward_.symbols[maker];
  }

 private:
  static constexpr std::size_t kMostValues = 24;
  static constexpr std::int64_t kMuchSmaller = 64;

  static bool is_elementwise(const ir::BoundSymbol& symbol) {
    return is_pure(symbol) && operators::find_elements(*symbol.op) != nullptr && single_result(symbol) != ir::kNoValue;
  }
  [[nodiscard]] bool is_small(ir::ValueId value, ir::ValueId beside) const {
    return size_in_bytes(forward_.tensor_type(value)) * kMuchSmaller <= size_in_bytes(forward_.tensor_type(beside));
  }

  const ir::Trace& forward_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  std::vector<bool> is_saved_;
};

/// Writes the backward anew, with what it recomputes.
template <typename Cut>
class Rewriter {
 public:
  /// `saved`: what is saved in any case, first.
  Rewriter(const ir::Trace& forward, const ir::Trace& backward, std::size_t output_count, Cut cut,
           FindOperator find_operator, const std::vector<ir::ValueId>& saved = {},
           const ReadTwice* read_twice = nullptr)
      : forward_(forward),
        cut_(std::move(cut)),
        output_count_(output_count),
        find_operator_(find_operator),
        read_twice_(read_twice),
        result_(backward.empty_copy(kRematerialization)),
        in_backward_(forward.value_count(), ir::kNoValue),
        replaced_(backward.value_count()),
        saved_before_(forward.outputs.size() - output_count),
        is_saved_(forward.value_count(), false) {
    for (const ir::ValueId id : saved) value_of(id);
  }

  /// `plain` is the forward whose draws do not give states.
  std::pair<ir::Trace, ir::Trace> run(const ir::Trace& plain, const ir::Trace& backward) {
    std::vector<ir::ValueId> forward_of(backward.value_count(), ir::kNoValue);
    for (std::size_t i = 0; i < saved_before_; ++i) {
      const auto* id = forward_.outputs[output_count_ + i].get<ir::ValueId>();
      if (id == nullptr && saved_.empty()) return {plain, backward};
      if (id == nullptr) {
        replaced_.set(backward.inputs[i], forward_.outputs[output_count_ + i]);
        continue;
      }
      forward_of[ir::index_of(backward.inputs[i])] = *id;
      if (cut_.recomputed_by(*id) == nullptr && in_backward_[ir::index_of(*id)] == ir::kNoValue) {
        in_backward_[ir::index_of(*id)] = backward.inputs[i];
      }
    }
    const auto bring = [&](ir::ValueId id) {
      if (ir::index_of(id) >= forward_of.size() || forward_of[ir::index_of(id)] == ir::kNoValue) return;
      const ir::ValueId value = value_of(forward_of[ir::index_of(id)]);
      if (value != id) replaced_.set(id, value);
    };
    for (const ir::BoundSymbol& symbol : backward.symbols) {
      const ir::BoundSymbol reading = with_recomputed_operands(symbol, forward_of);
      for_each_argument(reading, bring);
      replaced_.apply(result_.add(reading));
    }
    for (ir::Argument& output : result_.outputs) ir::for_each_value(std::as_const(output), bring);
    replaced_.apply(result_.outputs);

    ir::Trace new_forward = forward_.empty_copy(kRematerialization);
    new_forward.symbols = forward_.symbols;
    for (std::size_t i = 0; i < plain.symbols.size(); ++i) {
      ir::BoundSymbol& symbol = new_forward.symbols[i];
      const auto drawn = drawn_with_state(symbol);
      if (drawn && !is_saved(drawn->state)) symbol = plain.symbols[i];
    }
    new_forward.outputs.resize(output_count_);
    result_.inputs.clear();
    for (const ir::ValueId id : saved_) {
      new_forward.outputs.emplace_back(id);
      result_.inputs.push_back(in_backward_[ir::index_of(id)]);
    }
    result_.inputs.insert(result_.inputs.end(), backward.inputs.begin() + static_cast<std::ptrdiff_t>(saved_before_),
                          backward.inputs.end());
    return {std::move(new_forward), std::move(result_)};
  }

 private:
  /// A symbol of the backward, which recomputes saved values that it does better not to read.
  ir::BoundSymbol with_recomputed_operands(const ir::BoundSymbol& symbol, const std::vector<ir::ValueId>& forward_of) {
    ir::BoundSymbol made = symbol;
    for (ir::Argument& argument : made.arguments) {
      ir::for_each_value(argument, [&](ir::ValueId& id) {
        const ir::ValueId origin = ir::index_of(id) < forward_of.size() ? forward_of[ir::index_of(id)] : ir::kNoValue;
        if (read_twice_ == nullptr || origin == ir::kNoValue || cut_.recomputed_by(origin) != nullptr) return;
        if (read_twice_->holds(origin, symbol)) id = recomputed_operand(origin);
      });
    }
    return made;
  }

  ir::ValueId recomputed_operand(ir::ValueId id) {
    if (const auto known = again_.find(id); known != again_.end()) return known->second;
    ir::BoundSymbol symbol = recomputed(*read_twice_->maker(id), forward_, find_operator_);
    for (ir::Argument& argument : symbol.arguments) {
      ir::for_each_value(argument, [&](ir::ValueId& argument_id) {
        argument_id = read_twice_->is_read(argument_id) ? value_of(argument_id) : recomputed_operand(argument_id);
      });
    }
    const ir::ValueId made = add_value(id);
    symbol.results = {ir::Argument(made)};
    result_.add(std::move(symbol));
    again_.emplace(id, made);
    return made;
  }

  /// The backward's value for one of the forward, saved or computed again here. What a value is computed from comes
  /// before it, by a list rather than by recursion: a chain of operations may be longer than the stack is deep.
  ir::ValueId value_of(ir::ValueId id) {
    std::deque<ir::BoundSymbol> pending;  // recomputed when their arguments are there
    const auto is_missing = [&](ir::ValueId value) {
      const ir::BoundSymbol* maker = cut_.recomputed_by(value);
      if (maker == nullptr && !is_saved(value)) save(value);
      if (maker == nullptr || in_backward_[ir::index_of(value)] != ir::kNoValue) return false;
      THUNDER_CHECK(may_recompute(*maker, Recompute::kMemory), kRematerialization,
                    "a value is neither saved nor cheap");
      pending.push_back(recomputed(*maker, forward_, find_operator_));
      return true;
    };
    is_missing(id);
    while (!pending.empty()) {
      bool waits = false;
      for (const ir::Argument& argument : pending.back().arguments) {
        ir::for_each_value(argument, [&](ir::ValueId value) { waits = waits || is_missing(value); });
        if (waits) break;
      }
      if (waits) continue;
      recompute(std::move(pending.back()));
      pending.pop_back();
    }
    return in_backward_[ir::index_of(id)];
  }

  void save(ir::ValueId id) {
    ir::ValueId& value = in_backward_[ir::index_of(id)];
    if (value == ir::kNoValue) value = add_value(id);
    saved_.push_back(id);
    is_saved_[ir::index_of(id)] = true;
  }

  void recompute(ir::BoundSymbol symbol) {
    for (ir::Argument& argument : symbol.arguments) {
      ir::for_each_value(argument, [&](ir::ValueId& id) { id = in_backward_[ir::index_of(id)]; });
    }
    for (ir::Argument& result : symbol.results) {
      ir::for_each_value(result, [&](ir::ValueId& id) {
        const ir::ValueId again = add_value(id);
        // One that is saved besides stays the saved one.
        if (cut_.recomputed_by(id) != nullptr) in_backward_[ir::index_of(id)] = again;
        id = again;
      });
    }
    result_.add(std::move(symbol));
  }

  ir::ValueId add_value(ir::ValueId id) { return result_.add_value(forward_.value(id).type, forward_.value(id).name); }

  [[nodiscard]] bool is_saved(ir::ValueId id) const { return is_saved_[ir::index_of(id)]; }

  const ir::Trace& forward_;
  Cut cut_;
  std::size_t output_count_;
  FindOperator find_operator_;
  const ReadTwice* read_twice_;
  ir::Trace result_;
  std::map<ir::ValueId, ir::ValueId> again_;  ///< value of the forward -> one of the backward that replaces reading it
  std::vector<ir::ValueId> in_backward_;      ///< value of the forward -> of the backward
  ir::Substitution replaced_;
  std::size_t saved_before_;
  std::vector<ir::ValueId> saved_;
  std::vector<bool> is_saved_;
};

/// The saved values from whose sizes the backward reads its symbols.
std::vector<ir::ValueId> values_with_symbols(const ir::Trace& forward, const ir::Trace& backward,
                                             std::size_t output_count) {
  const std::vector<bool> gives_symbols = ir::gives_symbols(backward);
  std::vector<ir::ValueId> values;
  for (std::size_t i = output_count; i < forward.outputs.size(); ++i) {
    const auto* id = forward.outputs[i].get<ir::ValueId>();
    if (id != nullptr && gives_symbols[i - output_count]) values.push_back(*id);
  }
  return values;
}

/// The bytes that a forward keeps for its backward, besides its inputs.
std::int64_t saved_bytes(const ir::Trace& forward, std::size_t output_count) {
  const AliasAnalysis aliases(forward);
  std::int64_t bytes = 0;
  for (std::size_t i = output_count; i < forward.outputs.size(); ++i) {
    const auto* id = forward.outputs[i].get<ir::ValueId>();
    if (id != nullptr && aliases.is_own_memory(*id)) bytes += size_in_bytes(forward.tensor_type(*id));
  }
  return bytes;
}

}  // namespace

std::pair<ir::Trace, ir::Trace> rematerialize(const ir::Trace& forward, const ir::Trace& backward,
                                              const RematerializationOptions& options, FindOperator find_operator) {
  const std::vector<ir::ValueId> saved = values_with_symbols(forward, backward, options.output_count);
  const auto cut = [&](const ir::Trace& recomputing) {
    std::optional<ReadTwice> read_twice;
    if (options.policy >= Recompute::kFast) read_twice.emplace(recomputing, options.output_count);
    return Rewriter(recomputing, backward, options.output_count, ForwardCut(recomputing, backward, options),
                    find_operator, saved, read_twice ? &*read_twice : nullptr)
        .run(forward, backward);
  };
  auto made = options.policy >= Recompute::kFast ? cut(with_generator_states(forward, find_operator)) : cut(forward);
  const bool has_limit = options.policy == Recompute::kFast && options.most_saved;
  if (!has_limit || saved_bytes(made.first, options.output_count) <= *options.most_saved) return made;
  return rematerialize(forward, backward, {Recompute::kMemory, options.output_count}, find_operator);
}

ir::Trace read_saved_values(const ir::Trace& plain, const ir::Trace& backward, std::size_t output_count,
                            std::span<const ir::Argument> saved, FindOperator find_operator) {
  // The cut may have chosen states, which have the same values each time that they are added.
  const ir::Trace forward = with_generator_states(plain, find_operator);
  std::vector<ir::ValueId> values;
  std::vector<bool> is_first;
  for (const ir::Argument& argument : saved) {
    const auto* id = argument.get<ir::ValueId>();
    is_first.push_back(id != nullptr && std::ranges::find(values, *id) == values.end());
    if (is_first.back()) values.push_back(*id);
  }
  ir::Trace result = Rewriter(forward, backward, output_count, FixedCut(forward, values), find_operator, values)
                         .run(plain, backward)
                         .second;
  const std::size_t cotangent_count = backward.inputs.size() - (forward.outputs.size() - output_count);
  THUNDER_CHECK(result.inputs.size() == values.size() + cotangent_count, kRematerialization,
                "a backward reads an input of the forward that is not saved");
  // A value that is saved twice is read from its first position: the other one becomes an input that nobody reads.
  for (std::size_t i = 0; i < is_first.size(); ++i) {
    if (is_first[i]) continue;
    const auto* id = saved[i].get<ir::ValueId>();
    const ir::TypePtr type = id == nullptr ? ir::make_type(ir::ObjectType{"constant"}) : forward.value(*id).type;
    result.inputs.insert(result.inputs.begin() + static_cast<std::ptrdiff_t>(i), result.add_value(type));
  }
  return result;
}

}  // namespace thunder::passes
