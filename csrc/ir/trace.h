#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/condition.h"
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

/// Kinds of object constants; their owners are known to the layer that adds them.
enum class ObjectKind : std::uint8_t {
  kPythonObject,     ///< `PyObject`: a type, a module, a function that an executor calls
  kTensor,           ///< `at::Tensor`
  kGenerator,        ///< `c10::IValue`
  kDispatcherValue,  ///< `c10::IValue`: what else an operator takes, such as a process group
  kCustomGradient,   ///< `tracer::CustomGradient`
  kPythonFunction,   ///< `tracer::PythonFunction`: the node of a `torch.autograd.Function`
};
[[nodiscard]] std::string_view to_string(ObjectKind kind);

/// Data that all traces of one compilation share: file names and object constants. The constants are opaque here;
/// the printer names them `object<i>`. Traces of one family may be built on several threads at once: `intern` and
/// `add_object` lock; `objects` is read when no thread adds.
struct TraceContext {
  const std::string* intern(std::string_view file);
  struct Object {
    ObjectKind kind = ObjectKind::kPythonObject;
    std::shared_ptr<void> owner;
    std::string description;  ///< for people
  };
  /// Names an object for the printed program; its owner keeps it alive. An owner of the same address gets the same
  /// name.
  ObjectConstant add_object(Object object);
  /// Described as its kind is.
  ObjectConstant add_object(ObjectKind kind, std::shared_ptr<void> owner);
  /// The owner of an object; throws InternalError unless it is one of this kind, and
  /// UserError where a stored trace lacks it.
  [[nodiscard]] const std::shared_ptr<void>& owner_of(ObjectConstant constant, ObjectKind kind) const;
  std::vector<Object> objects;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<const std::string>> files_;
  std::unordered_map<std::string_view, const std::string*> files_by_name_;
  std::unordered_map<const void*, ObjectConstant> objects_by_owner_;
};

/// Kinds of traces of a compiled program. Names of traces are for people.
enum class TraceKind : std::uint8_t {
  kPart,         ///< none of those below: a rule, a region, what was recorded or taken out by itself
  kPrologue,     ///< checks a call's arguments, and takes the inputs from them
  kComputation,  ///< as recorded: nothing is differentiated yet
  kForward,      ///< also gives what its backward reads
  kBackward,
  kEpilogue,  ///< stores what the program wrote, and builds its result
};
[[nodiscard]] std::string_view to_string(TraceKind kind);

/// A straight-line program: inputs, bound symbols in order of execution, outputs. A value type: passes take one and
/// return another.
class Trace {
 public:
  /// A part.
  Trace(std::string name, std::shared_ptr<TraceContext> context);
  /// Named after its kind: `backward`, and `backward_2` of the third segment of a program.
  Trace(TraceKind kind, std::shared_ptr<TraceContext> context, std::uint32_t segment = 0);

  [[nodiscard]] TraceKind kind() const { return kind_; }
  /// Which segment of a program that is cut in several; zero: the first, or the only one.
  [[nodiscard]] std::uint32_t segment() const { return segment_; }
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
  /// Null for kNoValue, and for a value that is no tensor.
  [[nodiscard]] const TensorType* tensor_type(ValueId id) const;
  /// The type of an argument or result that is one tensor; null for any other.
  [[nodiscard]] const TensorType* tensor_type(const Argument& argument) const;

  BoundSymbol& add(BoundSymbol symbol);

  /// An empty trace of the same kind, name and context, without history.
  [[nodiscard]] Trace blank() const;
  /// A trace with the same values, inputs, outputs and context, without symbols: what a pass fills.
  [[nodiscard]] Trace empty_copy(std::string step) const;

  std::vector<ValueId> inputs;
  /// For each input a number that it has in common with those that may lie in the same memory. Empty: each lies in
  /// memory of its own.
  std::vector<std::uint32_t> memory_of_inputs;
  /// Conditions on sizes of inputs, besides those that the types of inputs say.
  std::vector<Condition> conditions;
  std::vector<BoundSymbol> symbols;
  ArgumentList outputs;

 private:
  TraceKind kind_ = TraceKind::kPart;
  std::uint32_t segment_ = 0;
  std::string name_;
  std::shared_ptr<TraceContext> context_;
  std::vector<std::string> history_;
  std::vector<Value> values_;
};

}  // namespace thunder::ir
