#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/operator.h"
#include "ir/type.h"

namespace thunder::ir {

/// A line of the user's program. `file` points into the trace family's string table.
struct SourceLocation {
  const std::string* file = nullptr;
  std::int32_t line = 0;
  friend bool operator==(const SourceLocation&, const SourceLocation&) = default;
};

struct Value {
  TypePtr type;
  std::string name;  ///< hint from the program (`weight`, `input_ids`); empty: `t<id>`
};

/// An operator applied to arguments.
struct BoundSymbol {
  const Operator* op = nullptr;
  ArgumentList arguments;  ///< one for each parameter of the operator, defaults filled in
  ArgumentList results;    ///< one for each result: ValueId, None, or a list of them
  SourceLocation location;
  std::string comment;              ///< printed behind the call: who recomputes it, which rule made it, …
  std::vector<BoundSymbol> nested;  ///< the operations that it consists of; may be empty
};

/// Data that all traces of one compilation share: file names and Python constants. The constants are opaque here;
/// `context` in the printer names them `object<i>`. Traces of one family may be built on several threads at once:
/// `intern` and `add_object` lock; `objects` is read when no thread adds.
struct TraceContext {
  const std::string* intern(std::string_view file);
  /// Names an object for the printed program; `owner` keeps it alive and is meaningful to the layer that added it.
  /// An owner of the same address gets the same name.
  ObjectConstant add_object(std::shared_ptr<void> owner, std::string description);

  struct Object {
    std::shared_ptr<void> owner;
    std::string description;
  };
  std::vector<Object> objects;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<const std::string>> files_;
  std::unordered_map<std::string_view, const std::string*> files_by_name_;
  std::unordered_map<const void*, ObjectConstant> objects_by_owner_;
};

/// A straight-line program: inputs, bound symbols in order of execution, outputs. A value type: passes take one and
/// return another.
class Trace {
 public:
  Trace(std::string name, std::shared_ptr<TraceContext> context);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::shared_ptr<TraceContext>& context() const { return context_; }
  /// The passes and transforms that made this trace from the recorded one, oldest first.
  [[nodiscard]] const std::vector<std::string>& history() const { return history_; }
  void add_history(std::string step) { history_.push_back(std::move(step)); }

  ValueId add_value(TypePtr type, std::string name = {});
  ValueId add_input(TypePtr type, std::string name = {});
  [[nodiscard]] const Value& value(ValueId id) const { return values_[index_of(id)]; }
  [[nodiscard]] std::size_t value_count() const { return values_.size(); }
  void set_type(ValueId id, TypePtr type) { values_[index_of(id)].type = std::move(type); }
  [[nodiscard]] const TensorType* tensor_type(ValueId id) const;

  BoundSymbol& add(BoundSymbol symbol);

  /// A trace with the same values, inputs, outputs and context, without symbols: what a pass fills.
  [[nodiscard]] Trace empty_copy(std::string step) const;

  std::vector<ValueId> inputs;
  /// For each input a number that it has in common with those that may lie in the same memory. Empty: each lies in
  /// memory of its own.
  std::vector<std::uint32_t> memory_of_inputs;
  std::vector<BoundSymbol> symbols;
  ArgumentList outputs;

 private:
  std::string name_;
  std::shared_ptr<TraceContext> context_;
  std::vector<std::string> history_;
  std::vector<Value> values_;
};

}  // namespace thunder::ir
