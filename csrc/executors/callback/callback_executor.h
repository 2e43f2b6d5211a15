#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "executors/api/executor.h"
#include "executors/callback/call_site.h"

namespace thunder::executors::callback {

/// Calls a function that this layer knows nothing of, such as a Python object: it takes its arguments from the stack
/// and leaves its results there. The GIL, if the call needs it, is held for that long only.
using Call = void (*)(const void* function, const CallSite& site, std::vector<c10::IValue>& stack);
using Function = std::shared_ptr<const void>;

/// An executor's implementation of an operation of the program.
struct Implementation {
  /// Whether it implements this symbol; empty: always.
  std::function<bool(const ir::BoundSymbol& symbol, const ir::Trace& trace)> checker;
  /// See `Executor::expand`.
  std::function<ir::Trace(const ir::BoundSymbol& symbol, const ir::Trace& trace)> expand;
};

/// An executor that is put together at run time. Registration and use may overlap. Never destroyed: compiled programs
/// point to it.
class CallbackExecutor {
 public:
  using FusionPass = std::function<std::optional<ir::Trace>(const ir::Trace& trace)>;

  /// A new one, whose functions `call` calls.
  static CallbackExecutor& make(std::string name, Call call);

  [[nodiscard]] const Executor& row() const { return row_; }
  /// An operator of its own, which `function` computes.
  void add_operator(const ir::Operator* op, Function function);
  void add_implementation(const ir::Operator* operation, Implementation implementation);
  void set_fusion_pass(FusionPass pass);

 private:
  CallbackExecutor(std::string name, Call call);

  static const CallbackExecutor& of(const Executor& row) { return *static_cast<const CallbackExecutor*>(row.state); }
  static bool claim(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace);
  static void lower(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace,
                    runtime::ProgramBuilder& builder);
  static bool replaces(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace);
  static ir::Trace expand(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace);
  static std::optional<ir::Trace> fuse(const Executor& self, const ir::Trace& trace);

  [[nodiscard]] Function find_function(const ir::BoundSymbol& symbol, const ir::Trace& trace) const;
  [[nodiscard]] std::optional<Implementation> find_implementation(const ir::Operator* operation) const;

  std::string name_;
  Call call_;
  Executor row_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<const ir::Operator*, Function> operators_;
  std::unordered_map<const ir::Operator*, Implementation> implementations_;
  FusionPass fusion_pass_;
};

/// `prims.fusion(function, [tensors])`: operations that a fusion pass made one. Any callback executor runs it.
[[nodiscard]] const ir::Operator* fusion_operator();

/// `mine.linear.default`
[[nodiscard]] std::string printed_name(const ir::Operator& op);

}  // namespace thunder::executors::callback
