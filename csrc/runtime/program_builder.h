#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/launch_queue.h"
#include "runtime/pending_kernels.h"
#include "runtime/program.h"
#include "runtime/program_call.h"

namespace thunder::runtime {

/// Puts a Program together: instructions in order of execution, then `build`, which assigns registers, and frees or
/// moves each value at its last use.
class ProgramBuilder {
 public:
  /// `waits`: runs of the program wait for kernels that are compiled in the background, in place of doing without them.
  explicit ProgramBuilder(bool waits = false) : waits_(waits) {}
  [[nodiscard]] bool waits() const { return waits_; }

  void add_input(Slot slot);
  /// The size of dimension `dim` of an input is `factor` times symbol `symbol`, which is at least two.
  void add_symbol(std::uint32_t symbol, Slot input, std::uint32_t dim, std::int64_t factor);
  /// Dimension `dim` of an input has that size in every run.
  void add_size(Slot input, std::uint32_t dim, SizeOperand size);
  /// A number that is not zero in any run; `text` is for error messages.
  void add_condition(SizeOperand holds, std::string text);
  /// A slot that has the same value in every run.
  void add_constant(Slot slot, c10::IValue value);
  /// Calls a dispatcher operator, unboxed where the table in `unboxed_calls.cpp` has its signature; on one thread where
  /// it `is_small`.
  void call(const c10::OperatorHandle& op, std::vector<Operand> operands, std::vector<ResultSlots> results,
            Location location = {}, bool is_small = false);
  /// Calls an executor's kernel. `name` is for error messages; `written` are operands whose memory it may write to.
  void call(std::string name, Kernel kernel, std::shared_ptr<const void> state, std::vector<Operand> operands,
            std::vector<ResultSlots> results, Location location = {}, std::span<const Slot> written = {});
  /// Calls an executor's kernel for a dispatcher operator, whose schema says which operands it writes to.
  void call(const c10::OperatorHandle& op, Kernel kernel, std::shared_ptr<const void> state,
            std::vector<Operand> operands, std::vector<ResultSlots> results, Location location = {});
  /// The last call launches nothing, as a view does.
  void launches_nothing() { calls_.back().launches = Launches::kNobody; }
  /// Kernels of the last call may wait in the queue while calls follow that launch none by themselves. There is one for
  /// a program, that of the first call.
  void launches_by(const std::function<std::shared_ptr<LaunchQueue>()>& make_queue);
  /// Kernels that `Program::wait` waits for.
  void add_pending(std::shared_ptr<const PendingKernels> kernels) { pending_.push_back(std::move(kernels)); }
  void set_outputs(std::vector<Operand> outputs);

  /// An object that an executor needs again and again while the program is built, made at the first request. `key` is
  /// an address of the executor's own.
  template <typename Make>
  const auto& once(const void* key, const Make& make) {
    using Made = decltype(make());
    std::shared_ptr<void>& made = made_once_[key];
    if (made == nullptr) made = std::make_shared<Made>(make());
    return *static_cast<const Made*>(made.get());
  }

  [[nodiscard]] Program build();

 private:
  void put_constants(std::vector<Operand>& operands) const;
  /// Sizes are computed of symbols that inputs have, and no others. `of` is for error messages.
  void require_symbols_of(const Operand& operand, const std::string& of) const;
  void follow_aliases(const c10::FunctionSchema& schema, ProgramCall& call);
  /// Notes that the call writes to the memory of `slot`, where that is an input's.
  void note_write(Slot slot, ProgramCall& call) const;
  /// The slot whose memory `slot` may share, as far as the schemas say; itself for a slot with its own.
  [[nodiscard]] Slot root_of(Slot slot) const;

  struct Symbol {
    std::uint32_t symbol;
    Slot input;
    std::uint32_t dim;
    std::int64_t factor;
  };

  /// Whether so many kernels follow one another in the queue that it pays.
  [[nodiscard]] bool is_queue_worth_it() const;

  const bool waits_;
  std::shared_ptr<LaunchQueue> queue_;
  std::vector<std::shared_ptr<const PendingKernels>> pending_;
  std::vector<Slot> inputs_;
  std::vector<Symbol> symbols_;
  std::vector<std::pair<Slot, InputSize>> sizes_;
  std::vector<SizeCondition> conditions_;
  std::vector<ProgramCall> calls_;
  std::vector<Operand> outputs_;
  std::unordered_map<Slot, Slot> roots_;
  std::unordered_map<Slot, c10::IValue> constants_;
  std::unordered_map<const void*, std::shared_ptr<void>> made_once_;
};

}  // namespace thunder::runtime
