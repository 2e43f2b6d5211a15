#include "ir/trace.h"

#include "base/error.h"

namespace thunder::ir {

std::string_view to_string(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kPythonObject:
      return "object";
    case ObjectKind::kTensor:
      return "torch.Tensor";
    case ObjectKind::kGenerator:
      return "Generator";
    case ObjectKind::kDispatcherValue:
      return "value";
    case ObjectKind::kCustomGradient:
      return "custom gradient";
    case ObjectKind::kPythonFunction:
      return "autograd function";
  }
  return "object";
}

const std::string* TraceContext::intern(std::string_view file) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = files_by_name_.find(file); found != files_by_name_.end()) return found->second;
  const std::string* interned = files_.emplace_back(std::make_unique<const std::string>(file)).get();
  files_by_name_.emplace(*interned, interned);
  return interned;
}

ObjectConstant TraceContext::add_object(Object object) {
  const std::scoped_lock lock(mutex_);
  const ObjectConstant next{static_cast<std::uint32_t>(objects.size())};
  if (object.owner != nullptr) {
    const auto [known, added] = objects_by_owner_.emplace(object.owner.get(), next);
    if (!added) return known->second;
  }
  objects.push_back(std::move(object));
  return next;
}

ObjectConstant TraceContext::add_object(ObjectKind kind, std::shared_ptr<void> owner) {
  return add_object({kind, std::move(owner), std::string(to_string(kind))});
}

const std::shared_ptr<void>& TraceContext::owner_of(ObjectConstant constant, ObjectKind kind) const {
  const Object& object = objects.at(constant.index);
  THUNDER_CHECK(object.kind == kind, "ir/trace",
                "object" + std::to_string(constant.index) + ": expected a " + std::string(to_string(kind)) +
                    ", got a " + std::string(to_string(object.kind)));
  if (object.owner != nullptr) return object.owner;
  throw UserError(ErrorKind::kValue, "object" + std::to_string(constant.index) + " (" + object.description +
                                         ") was not stored with its trace; give it when the trace is loaded");
}

std::string_view to_string(TraceKind kind) {
  switch (kind) {
    case TraceKind::kPart:
      return "part";
    case TraceKind::kPrologue:
      return "prologue";
    case TraceKind::kComputation:
      return "computation";
    case TraceKind::kForward:
      return "forward";
    case TraceKind::kBackward:
      return "backward";
    case TraceKind::kEpilogue:
      return "epilogue";
  }
  return "trace";
}

Trace::Trace(std::string name, std::shared_ptr<TraceContext> context)
    : name_(std::move(name)), context_(std::move(context)) {
  THUNDER_CHECK(context_ != nullptr, "ir/trace", "trace " + name_ + " has no context");
}

Trace::Trace(TraceKind kind, std::shared_ptr<TraceContext> context, std::uint32_t segment)
    : Trace(std::string(to_string(kind)), std::move(context)) {
  kind_ = kind;
  segment_ = segment;
  if (segment != 0) name_ += "_" + std::to_string(segment);
}

ValueId Trace::add_value(TypePtr type, std::string name) {
  const ValueId id{static_cast<std::uint32_t>(values_.size())};
  values_.push_back({std::move(type), std::move(name)});
  return id;
}

ValueId Trace::add_input(TypePtr type, std::string name) {
  return inputs.emplace_back(add_value(std::move(type), std::move(name)));
}

const TensorType* Trace::tensor_type(ValueId id) const {
  if (id == kNoValue) return nullptr;
  const TypePtr& type = value(id).type;
  return type == nullptr ? nullptr : std::get_if<TensorType>(type.get());
}

const TensorType* Trace::tensor_type(const Argument& argument) const {
  const auto* id = argument.get<ValueId>();
  return id == nullptr ? nullptr : tensor_type(*id);
}

BoundSymbol& Trace::add(BoundSymbol symbol) { return symbols.emplace_back(std::move(symbol)); }

Trace Trace::blank() const {
  Trace blank(name_, context_);
  blank.kind_ = kind_;
  blank.segment_ = segment_;
  return blank;
}

Trace Trace::empty_copy(std::string step) const {
  Trace copy = blank();
  copy.history_ = history_;
  copy.history_.push_back(std::move(step));
  copy.values_ = values_;
  copy.inputs = inputs;
  copy.memory_of_inputs = memory_of_inputs;
  copy.conditions = conditions;
  copy.outputs = outputs;
  return copy;
}

}  // namespace thunder::ir
