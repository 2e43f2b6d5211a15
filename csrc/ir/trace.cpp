#include "ir/trace.h"

#include "base/error.h"

namespace thunder::ir {

const std::string* TraceContext::intern(std::string_view file) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = files_by_name_.find(file); found != files_by_name_.end()) return found->second;
  const std::string* interned = files_.emplace_back(std::make_unique<const std::string>(file)).get();
  files_by_name_.emplace(*interned, interned);
  return interned;
}

ObjectConstant TraceContext::add_object(std::shared_ptr<void> owner, std::string description) {
  const std::scoped_lock lock(mutex_);
  const ObjectConstant next{static_cast<std::uint32_t>(objects.size())};
  if (owner != nullptr) {
    const auto [known, added] = objects_by_owner_.emplace(owner.get(), next);
    if (!added) return known->second;
  }
  objects.push_back({std::move(owner), std::move(description)});
  return next;
}

Trace::Trace(std::string name, std::shared_ptr<TraceContext> context)
    : name_(std::move(name)), context_(std::move(context)) {
  THUNDER_CHECK(context_ != nullptr, "ir/trace", "trace " + name_ + " has no context");
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
  const TypePtr& type = value(id).type;
  return type == nullptr ? nullptr : std::get_if<TensorType>(type.get());
}

BoundSymbol& Trace::add(BoundSymbol symbol) { return symbols.emplace_back(std::move(symbol)); }

Trace Trace::empty_copy(std::string step) const {
  Trace copy(name_, context_);
  copy.history_ = history_;
  copy.history_.push_back(std::move(step));
  copy.values_ = values_;
  copy.inputs = inputs;
  copy.memory_of_inputs = memory_of_inputs;
  copy.outputs = outputs;
  return copy;
}

}  // namespace thunder::ir
