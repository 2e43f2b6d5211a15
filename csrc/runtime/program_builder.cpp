#include "runtime/program_builder.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "runtime/boxed_call.h"
#include "runtime/program_code.h"
#include "runtime/unboxed_call.h"

namespace thunder::runtime {
namespace {

template <typename Visitor>
void for_each_slot(const Operand& operand, const Visitor& visit) {
  if (const auto* slot = std::get_if<Slot>(&operand.content)) {
    visit(*slot);
  } else if (const auto* list = std::get_if<ListOperand>(&operand.content)) {
    for (const Operand& element : list->elements) for_each_slot(element, visit);
  }
}

template <typename Visitor>
void for_each_slot(const ResultSlots& result, const Visitor& visit) {
  if (const auto* slot = std::get_if<Slot>(&result)) {
    if (*slot != kNoSlot) visit(*slot);
  } else {
    for (const Slot slot_of_element : std::get<std::vector<Slot>>(result)) {
      if (slot_of_element != kNoSlot) visit(slot_of_element);
    }
  }
}

/// Gives slots registers, and takes them back after the last use.
class RegisterAssignment {
 public:
  RegisterAssignment(const std::vector<Slot>& inputs, const std::vector<ProgramCall>& calls,
                     const std::vector<Operand>& outputs) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto use = [&](Slot slot) { last_use_[slot] = i; };
      for (const Operand& operand : calls[i].operands) for_each_slot(operand, use);
      std::ranges::for_each(calls[i].written, use);
    }
    for (const Operand& output : outputs) for_each_slot(output, [&](Slot slot) { last_use_[slot] = calls.size(); });
    for (const Slot input : inputs) {
      THUNDER_CHECK(registers_.emplace(input, count_++).second, "runtime", "a slot is two inputs");
    }
  }

  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] bool used(Slot slot) const { return last_use_.contains(slot); }
  [[nodiscard]] bool dies(Slot slot, std::size_t instruction) const { return last_use_.at(slot) == instruction; }
  [[nodiscard]] std::uint32_t register_of(Slot slot) const {
    const auto found = registers_.find(slot);
    THUNDER_CHECK(found != registers_.end(), "runtime",
                  "slot " + std::to_string(static_cast<std::uint32_t>(slot)) + " is used before it is defined");
    return found->second;
  }
  std::uint32_t define(Slot slot) {
    if (slot == kNoSlot || !used(slot)) return kNoRegister;
    std::uint32_t index = count_;
    if (free_.empty()) {
      ++count_;
    } else {
      index = free_.back();
      free_.pop_back();
    }
    THUNDER_CHECK(registers_.emplace(slot, index).second, "runtime", "a slot is defined twice");
    return index;
  }
  void release(std::uint32_t index) { free_.push_back(index); }

 private:
  std::unordered_map<Slot, std::size_t> last_use_;
  std::unordered_map<Slot, std::uint32_t> registers_;
  std::vector<std::uint32_t> free_;
  std::uint32_t count_ = 0;
};

/// Resolves one call after another; keeps what dies with the call at hand.
class CallResolver {
 public:
  CallResolver(RegisterAssignment& registers, const ProgramCall& call, std::size_t index)
      : registers_(registers), call_(call), index_(index) {
    const auto count = [&](Slot slot) { ++uses_[slot]; };
    for (const Operand& operand : call.operands) for_each_slot(operand, count);
    std::ranges::for_each(call.written, count);
  }

  [[nodiscard]] std::vector<ResolvedOperand> operands() const {
    std::vector<ResolvedOperand> resolved;
    for (const Operand& operand : call_.operands) resolved.push_back(resolve(operand));
    return resolved;
  }
  [[nodiscard]] std::vector<ResultRegisters> results() const {
    std::vector<ResultRegisters> resolved;
    for (const ResultSlots& result : call_.results) {
      if (const auto* slot = std::get_if<Slot>(&result)) {
        resolved.emplace_back(registers_.define(*slot));
        continue;
      }
      std::vector<std::uint32_t> elements;
      for (const Slot slot : std::get<std::vector<Slot>>(result)) elements.push_back(registers_.define(slot));
      resolved.emplace_back(std::move(elements));
    }
    return resolved;
  }
  /// Registers whose last use this call is, in ascending order.
  [[nodiscard]] std::vector<std::uint32_t> dying() const {
    std::vector<std::uint32_t> dying;
    for (const auto& [slot, count] : uses_) {
      if (registers_.dies(slot, index_)) dying.push_back(registers_.register_of(slot));
    }
    std::ranges::sort(dying);
    return dying;
  }

 private:
  [[nodiscard]] ResolvedOperand resolve(const Operand& operand) const {
    if (const auto* slot = std::get_if<Slot>(&operand.content)) {
      return {RegisterOperand{registers_.register_of(*slot), registers_.dies(*slot, index_) && uses_.at(*slot) == 1}};
    }
    if (const auto* constant = std::get_if<c10::IValue>(&operand.content)) return {*constant};
    if (const auto* size = std::get_if<SizeOperand>(&operand.content)) return {*size};
    const auto& list = std::get<ListOperand>(operand.content);
    ResolvedList resolved{list.element_type, {}};
    for (const Operand& element : list.elements) resolved.elements.push_back(resolve(element));
    return {std::move(resolved)};
  }

  RegisterAssignment& registers_;
  const ProgramCall& call_;
  std::size_t index_;
  std::unordered_map<Slot, int> uses_;
};

}  // namespace

void ProgramBuilder::add_input(Slot slot) { inputs_.push_back(slot); }

void ProgramBuilder::add_symbol(std::uint32_t symbol, Slot input, std::uint32_t dim, std::int64_t factor) {
  symbols_.push_back({symbol, input, dim, factor});
}

void ProgramBuilder::add_size(Slot input, std::uint32_t dim, SizeOperand size) {
  sizes_.emplace_back(input, InputSize{0, dim, std::move(size)});
}

void ProgramBuilder::add_condition(SizeOperand holds, std::string text) {
  conditions_.push_back({std::move(holds), std::move(text)});
}

void ProgramBuilder::add_constant(Slot slot, c10::IValue value) { constants_.emplace(slot, std::move(value)); }

void ProgramBuilder::put_constants(std::vector<Operand>& operands) const {
  if (constants_.empty()) return;
  for (Operand& operand : operands) {
    if (const auto* slot = std::get_if<Slot>(&operand.content)) {
      const auto found = constants_.find(*slot);
      if (found != constants_.end()) operand.content = found->second;
    } else if (auto* list = std::get_if<ListOperand>(&operand.content)) {
      put_constants(list->elements);
    }
  }
}

void ProgramBuilder::require_symbols_of(const Operand& operand, const std::string& of) const {
  if (const auto* list = std::get_if<ListOperand>(&operand.content)) {
    for (const Operand& element : list->elements) require_symbols_of(element, of);
  }
  const auto* size = std::get_if<SizeOperand>(&operand.content);
  if (size == nullptr) return;
  for (const std::uint32_t symbol : size->symbols) {
    THUNDER_CHECK(std::ranges::find(symbols_, symbol, &Symbol::symbol) != symbols_.end(), "runtime",
                  of + " needs s" + std::to_string(symbol) + ", which is the size of no input");
  }
}

void ProgramBuilder::call(const c10::OperatorHandle& op, std::vector<Operand> operands,
                          std::vector<ResultSlots> results, Location location, bool is_small) {
  const c10::FunctionSchema& schema = op.schema();
  THUNDER_CHECK(operands.size() == schema.arguments().size() && results.size() == schema.returns().size(), "runtime",
                schema.name() + ": the call's arguments and results do not match the schema");
  ProgramCall call{op,
                   c10::toString(op.operator_name()),
                   nullptr,
                   nullptr,
                   std::move(operands),
                   std::move(results),
                   {},
                   std::move(location),
                   is_small};
  put_constants(call.operands);
  follow_aliases(schema, call);
  calls_.push_back(std::move(call));
}

void ProgramBuilder::call(std::string name, Kernel kernel, std::shared_ptr<const void> state,
                          std::vector<Operand> operands, std::vector<ResultSlots> results, Location location,
                          std::span<const Slot> written) {
  put_constants(operands);
  calls_.push_back({std::nullopt,
                    std::move(name),
                    kernel,
                    std::move(state),
                    std::move(operands),
                    std::move(results),
                    {},
                    std::move(location)});
  for (const Slot slot : written) note_write(slot, calls_.back());
}

void ProgramBuilder::call(const c10::OperatorHandle& op, Kernel kernel, std::shared_ptr<const void> state,
                          std::vector<Operand> operands, std::vector<ResultSlots> results, Location location) {
  call(c10::toString(op.operator_name()), kernel, std::move(state), std::move(operands), std::move(results),
       std::move(location));
  follow_aliases(op.schema(), calls_.back());
}

void ProgramBuilder::launches_by(const std::function<std::shared_ptr<LaunchQueue>()>& make_queue) {
  if (queue_ == nullptr) queue_ = make_queue();
  calls_.back().launches = queue_ == nullptr ? Launches::kItself : Launches::kQueue;
}

bool ProgramBuilder::is_queue_worth_it() const {
  constexpr std::size_t kLeast = 6;
  std::size_t length = 0;
  std::size_t longest = 0;
  for (const ProgramCall& call : calls_) {
    if (call.launches == Launches::kItself) length = 0;
    if (call.launches == Launches::kQueue) longest = std::max(longest, ++length);
  }
  return longest >= kLeast;
}

void ProgramBuilder::set_outputs(std::vector<Operand> outputs) {
  outputs_ = std::move(outputs);
  put_constants(outputs_);
}

Slot ProgramBuilder::root_of(Slot slot) const {
  const auto found = roots_.find(slot);
  return found == roots_.end() ? slot : found->second;
}

void ProgramBuilder::note_write(Slot slot, ProgramCall& call) const {
  const Slot root = root_of(slot);
  if (std::ranges::find(inputs_, root) != inputs_.end()) call.written.push_back(root);
}

void ProgramBuilder::follow_aliases(const c10::FunctionSchema& schema, ProgramCall& call) {
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr) continue;
    for_each_slot(call.operands[i], [&](Slot slot) {
      const Slot root = root_of(slot);
      if (alias->isWrite()) note_write(slot, call);
      for (std::size_t k = 0; k < call.results.size(); ++k) {
        const c10::AliasInfo* result_alias = schema.returns()[k].alias_info();
        if (result_alias == nullptr || result_alias->beforeSets() != alias->beforeSets()) continue;
        for_each_slot(call.results[k], [&](Slot result) { roots_.emplace(result, root); });
      }
    });
  }
}

Program ProgramBuilder::build() {
  Program program;
  ProgramCode& code = *program.code_;
  RegisterAssignment registers(inputs_, calls_, outputs_);
  code.input_count = static_cast<std::uint32_t>(inputs_.size());
  for (const Slot input : inputs_) {
    if (registers.used(input)) continue;
    code.unused_inputs.push_back(registers.register_of(input));
    registers.release(registers.register_of(input));
  }

  for (const Symbol& symbol : symbols_) {
    code.symbols.push_back({symbol.symbol, registers.register_of(symbol.input), symbol.dim, symbol.factor});
    code.symbol_count = std::max(code.symbol_count, symbol.symbol + 1);
  }
  for (auto& [input, size] : sizes_) {
    require_symbols_of({size.expected}, "the size of an input");
    size.index = registers.register_of(input);
    code.input_sizes.push_back(std::move(size));
  }
  for (const SizeCondition& condition : conditions_) require_symbols_of({condition.holds}, condition.text);
  code.conditions = std::move(conditions_);
  code.pending = std::move(pending_);
  if (is_queue_worth_it()) code.queue = std::move(queue_);

  for (std::size_t i = 0; i < calls_.size(); ++i) {
    ProgramCall& call = calls_[i];
    for (const Operand& operand : call.operands) require_symbols_of(operand, call.name);
    const CallResolver resolver(registers, call, i);
    std::vector<ResolvedOperand> operands = resolver.operands();
    std::vector<ResultRegisters> results = resolver.results();
    for (const Slot slot : call.written) code.writes.push_back(registers.register_of(slot));
    for (const std::uint32_t index : resolver.dying()) {
      code.releases.push_back(index);
      registers.release(index);
    }

    BoundFunction bound;
    if (call.op) bound = bind_unboxed(*call.op, operands, results);
    code.unboxed_count += bound.function != nullptr ? 1 : 0;
    if (bound.function == nullptr) bound = bind_boxed(call, std::move(operands), std::move(results));
    code.instructions.push_back({bound.function, bound.state.get(), static_cast<std::uint32_t>(code.releases.size()),
                                 static_cast<std::uint32_t>(code.writes.size()), call.is_small});
    code.states.push_back(std::move(bound.state));
    code.launches_itself.push_back(call.launches == Launches::kItself);
    code.origins.push_back({std::move(call.name), std::move(call.location)});
  }

  std::unordered_map<std::uint32_t, std::size_t> last_reader;
  for (const Operand& output : outputs_) {
    require_symbols_of(output, "an output");
    const auto* slot = std::get_if<Slot>(&output.content);
    OutputSource source;
    if (slot != nullptr) {
      source.index = registers.register_of(*slot);
      last_reader[source.index] = code.outputs.size();
    } else if (const auto* size = std::get_if<SizeOperand>(&output.content)) {
      source.size = *size;
    } else {
      source.constant = std::get<c10::IValue>(output.content);
    }
    code.outputs.push_back(std::move(source));
  }
  for (const auto& [index, reader] : last_reader) code.outputs[reader].last = true;
  code.register_count = registers.count();
  return program;
}

}  // namespace thunder::runtime
