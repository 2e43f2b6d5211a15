#include "tracer/operators.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/builder.h"
#include "tracer/functional_form.h"

namespace thunder::tracer {
namespace {

struct OperatorEntry {
  explicit OperatorEntry(c10::OperatorHandle op) : handle(std::move(op)) {
    if (!is_custom(handle)) return;
    schema = handle.schema();
    registration = c10::Dispatcher::singleton().registerName(handle.operator_name());
  }
  /// A custom operator may be defined anew under its name.
  [[nodiscard]] bool is_current(const c10::OperatorHandle& op) const { return !schema || *schema == op.schema(); }

  ir::Operator op;
  c10::OperatorHandle handle;
  std::optional<c10::FunctionSchema> schema;                ///< for a custom operator
  std::optional<c10::RegistrationHandleRAII> registration;  ///< keeps a custom operator when its library goes
};

struct Table {
  std::mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<OperatorEntry>> rows;
  std::vector<std::unique_ptr<OperatorEntry>> replaced;  ///< rows of operators that were defined anew
  std::unordered_map<const void*, std::optional<c10::OperatorHandle>> functional;
  std::unordered_map<std::string, std::vector<c10::OperatorHandle>> overloads;
};

Table& table() {
  static auto* const kTable = new Table;  // lives as long as the process: symbols point to its rows
  return *kTable;
}

const void* key_of(const c10::OperatorHandle& op) { return &op.operator_name(); }

bool takes_generator(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& a) { return a.name() == "generator"; });
}

/// Operators that are not PyTorch's own say so by a tag.
bool says_that_it_draws(const c10::OperatorHandle& handle) {
  return !handle.schema().name().starts_with("aten::") && handle.hasTag(at::Tag::nondeterministic_seeded);
}

/// Gives a number that data decides, by its tag. Results of custom operators are another matter (functional_form.h).
bool reads_data(const c10::OperatorHandle& handle) {
  return !is_custom(handle) && handle.hasTag(at::Tag::data_dependent_output);
}

/// Updates running statistics in place without an annotation in the schema.
bool writes_running_statistics(const c10::FunctionSchema& schema) {
  if (schema.name().ends_with("_functional")) return false;
  for (const auto& argument : schema.arguments()) {
    if (argument.name() == "running_mean") return schema.name().find("backward") == std::string::npos;
  }
  return false;
}

ir::SchemaValue schema_value(const c10::Argument& argument) {
  ir::SchemaValue value;
  value.name = argument.name();
  value.type = argument.real_type()->str();
  value.keyword_only = argument.kwarg_only();
  if (const auto* alias = argument.alias_info()) {
    value.mutated = alias->isWrite();
    // In a list (`Tensor(a)[]`) the elements have the alias set.
    const c10::AliasInfo& of_tensor = alias->containedTypes().empty() ? *alias : alias->containedTypes().front();
    for (const auto& set : of_tensor.beforeSets()) value.alias_set = set.toUnqualString();
  }
  if (argument.default_value().has_value()) {
    const bridge::ArgumentReader reader{[](const at::Tensor&) { return ir::Argument(); },
                                        [](const c10::IValue&) { return ir::Argument(); }};
    value.default_value = bridge::to_argument(*argument.default_value(), *argument.real_type(), reader);
  }
  return value;
}

std::unique_ptr<OperatorEntry> make_row(const c10::OperatorHandle& handle) {
  auto row = std::make_unique<OperatorEntry>(handle);
  const c10::FunctionSchema& schema = handle.schema();
  ir::Operator& op = row->op;
  op.name = schema.name();
  op.overload = schema.overload_name();
  for (const auto& argument : schema.arguments()) {
    op.parameters.push_back(schema_value(argument));
    op.mutates |= op.parameters.back().mutated;
  }
  for (const auto& result : schema.returns()) {
    op.results.push_back(schema_value(result));
    op.view |= !op.results.back().alias_set.empty() && !op.results.back().mutated;
  }
  if (is_custom(handle)) operators::add_facts(op, Fact::kOtherStrides | Fact::kIsUnknown);
  if (reads_data(handle)) operators::add_facts(op, Fact::kReadsData);
  op.random =
      takes_generator(schema) || operators::has_fact(op, Fact::kDrawsRandomNumbers) || says_that_it_draws(handle);
  op.effect = writes_running_statistics(schema) || schema.returns().empty();
  op.handle = &row->handle;
  return row;
}

using SchemaArguments = std::vector<const c10::Argument*>;

bool is_out(const c10::Argument& argument) { return argument.kwarg_only() && is_written_to(argument); }

SchemaArguments inputs_of(const c10::FunctionSchema& schema) {
  SchemaArguments result;
  for (const auto& argument : schema.arguments()) {
    if (!is_out(argument)) result.push_back(&argument);
  }
  return result;
}

bool same_types(const SchemaArguments& left, const SchemaArguments& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i]->real_type()->str() != right[i]->real_type()->str()) return false;
  }
  return true;
}

/// `add_` -> `add`, `__ior__` -> `__or__`; an `out=` variant keeps its name.
std::string functional_name(const std::string& name) {
  const std::size_t colons = name.find("::") + 2;
  if (name.compare(colons, 3, "__i") == 0 && name.ends_with("__"))
    return name.substr(0, colons) + "__" + name.substr(colons + 3);
  return name.ends_with("_") && !name.ends_with("__") ? name.substr(0, name.size() - 1) : name;
}

const std::vector<c10::OperatorHandle>& overloads_of(const std::string& name) {
  auto& overloads = table().overloads;
  if (overloads.empty()) {
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& candidate : dispatcher.getAllOpNames()) {
      if (auto handle = dispatcher.findSchema(candidate)) overloads[candidate.name].push_back(*handle);
    }
  }
  return overloads[name];
}

/// Whether two schemas have the same names and types, perhaps in another order (`polygamma`).
bool same_names(const SchemaArguments& left, const SchemaArguments& right) {
  return left.size() == right.size() && std::ranges::all_of(left, [&](const c10::Argument* argument) {
           return std::ranges::any_of(right, [&](const c10::Argument* other) {
             return other->name() == argument->name() && other->real_type()->str() == argument->real_type()->str();
           });
         });
}

/// A function that makes a tensor says in options what `out=` says by itself.
SchemaArguments without_options(SchemaArguments arguments) {
  std::erase_if(arguments, [](const c10::Argument* argument) { return is_factory_option(argument->name()); });
  return arguments;
}

std::optional<c10::OperatorHandle> search_functional_counterpart(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const SchemaArguments inputs = inputs_of(schema);
  std::optional<c10::OperatorHandle> found;
  const std::string base = functional_name(schema.name());
  for (const std::string& name : {base, schema.name() + "_functional", base + "_functional"}) {
    for (const c10::OperatorHandle& candidate : overloads_of(name)) {
      const c10::FunctionSchema& other = candidate.schema();
      const bool is_factory = schema.overload_name().ends_with("out") && other.argumentIndexWithName("pin_memory");
      const SchemaArguments others = is_factory ? without_options(inputs_of(other)) : inputs_of(other);
      if (other.is_mutable() || !(same_types(inputs, others) || same_names(inputs, others))) continue;
      if (other.overload_name() == schema.overload_name()) return candidate;
      if (!found) found = candidate;
    }
  }
  return found;
}

}  // namespace

bool is_factory_option(std::string_view name) {
  return name == "dtype" || name == "layout" || name == "device" || name == "pin_memory";
}

const ir::Operator* operator_for(const c10::OperatorHandle& op) {
  const std::scoped_lock lock(table().mutex);
  std::unique_ptr<OperatorEntry>& row = table().rows[key_of(op)];
  if (row && !row->is_current(op)) table().replaced.push_back(std::move(row));
  if (!row) row = make_row(op);
  return &row->op;
}

const ir::Operator* find_operator(const std::string& name, const std::string& overload) {
  auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  return handle ? operator_for(*handle) : nullptr;
}

bool has_fact(const c10::OperatorHandle& op, Fact fact) { return operators::has_fact(*operator_for(op), fact); }

const c10::OperatorHandle& handle_of(const ir::Operator& op) {
  return *static_cast<const c10::OperatorHandle*>(op.handle);
}

bool is_composite(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  const bool has_own =
      op.hasKernelForDispatchKey(DispatchKey::CPU) && op.hasKernelForDispatchKey(DispatchKey::Autograd);
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) && !has_own;
}

const ir::Operator* tensor_constant_operator() {
  static const ir::Operator* const kRow =
      new ir::Operator(ir::parse_operator("prims::tensor_constant(Tensor value) -> Tensor", ir::CallStyle::kPrimitive));
  return kRow;
}

std::optional<c10::OperatorHandle> functional_counterpart(const c10::OperatorHandle& op) {
  if (is_custom(op)) return functional_form(op);
  const std::scoped_lock lock(table().mutex);
  auto [entry, is_new] = table().functional.try_emplace(key_of(op));
  if (is_new) entry->second = search_functional_counterpart(op);
  return entry->second;
}

void refuse(const c10::OperatorHandle& op, const std::string& reason) {
  throw UserError(ErrorKind::kNotImplemented, op.schema().name() + ": " + reason);
}

}  // namespace thunder::tracer
