#include "tracer/functional_form.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tracer/map_tensors.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

constexpr std::string_view kNamespace = "thunder_functional";

bool is_number_result(const c10::Argument& result) {
  const c10::TypeKind kind = result.type()->kind();
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType;
}

bool is_tensor_or_list(const c10::Argument& result) {
  const c10::Type& type = *result.type();
  return type.isSubtypeOf(*c10::TensorType::get()) || type.isSubtypeOf(*c10::ListType::ofTensors());
}

/// Whether a parameter takes an object of C++ (a process group), which a program cannot be given another time.
bool is_object(const c10::Argument& argument) {
  const c10::TypeKind kind = argument.type()->kind();
  return kind == c10::TypeKind::ClassType || kind == c10::TypeKind::AnyType;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_non_overlapping_and_dense()) return tensor.clone(at::MemoryFormat::Contiguous);
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).copy_(tensor);
}

/// The kernel of a functional form.
class CopyingCall final : public c10::OperatorKernel {
 public:
  explicit CopyingCall(c10::OperatorHandle op) : op_(std::move(op)) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) const {
    const auto& parameters = op_.schema().arguments();
    std::vector<IValue> written;
    torch::jit::Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(parameters.size()), stack->end());
    torch::jit::drop(*stack, parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (is_written_to(parameters[i])) written.push_back(arguments[i] = map_tensors(arguments[i], &copy_of));
    }
    if (!is_known_without_call(arguments)) call(std::move(arguments), *stack);
    std::ranges::move(written, std::back_inserter(*stack));
  }

 private:
  /// Tensors without data, and no results but what is written.
  [[nodiscard]] bool is_known_without_call(const torch::jit::Stack& arguments) const {
    const auto tensors = tensors_of(arguments);
    return std::ranges::all_of(op_.schema().returns(), &is_written_to) &&
           std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return tensor.is_meta(); });
  }

  void call(torch::jit::Stack arguments, torch::jit::Stack& results) const {
    op_.callBoxed(arguments);
    const auto& returns = op_.schema().returns();
    for (std::size_t i = 0; i < returns.size(); ++i) {
      if (is_written_to(returns[i])) continue;
      results.push_back(is_number_result(returns[i]) ? IValue(tensor_of(arguments[i])) : std::move(arguments[i]));
    }
  }

  static at::Tensor tensor_of(const IValue& number) {
    const c10::Scalar value = number.toScalar();
    return at::scalar_tensor(value, at::dtype(value.type()));
  }

  c10::OperatorHandle op_;
};

c10::Argument without_alias(const c10::Argument& argument) {
  return {argument.name(),          argument.type(),       argument.real_type(), argument.N(),
          argument.default_value(), argument.kwarg_only(), std::nullopt};
}

std::vector<c10::Argument> results_of_form(const c10::FunctionSchema& schema) {
  std::vector<c10::Argument> results;
  for (const c10::Argument& result : schema.returns()) {
    if (is_written_to(result)) continue;
    results.push_back(is_number_result(result) ? c10::Argument("", c10::TensorType::get()) : without_alias(result));
  }
  for (const c10::Argument& argument : schema.arguments()) {
    if (is_written_to(argument)) results.emplace_back("", argument.type(), argument.real_type(), argument.N());
  }
  return results;
}

/// The name of an operator's functional form: equal for equal schemas, and another one for an operator defined anew.
std::string name_of_form(const c10::FunctionSchema& schema) {
  std::string name = schema.name();
  name.replace(name.find("::"), 2, "__");
  const std::size_t hash = std::hash<std::string>{}(c10::toString(schema));
  constexpr std::size_t kReadable = 0xffffff;
  return std::string(kNamespace) + "::" + name + "_" + std::to_string(hash & kReadable);
}

bool has_form(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const auto is_usable = [](const c10::Argument& result) {
    if (is_written_to(result)) return true;
    return result.alias_info() == nullptr && (is_number_result(result) || is_tensor_or_list(result));
  };
  return is_custom(op) && std::ranges::all_of(schema.returns(), is_usable) &&
         std::ranges::none_of(schema.arguments(), &is_object);
}

}  // namespace

bool is_custom(const c10::OperatorHandle& op) {
  static constexpr std::string_view kOthers[] = {"aten", "prim", "prims", "profiler", "thunder", kNamespace};
  const std::string& name = op.operator_name().name;
  return std::ranges::find(kOthers, std::string_view(name).substr(0, name.find("::"))) == std::end(kOthers);
}

bool gives_numbers(const c10::OperatorHandle& op) {
  return is_custom(op) && std::ranges::any_of(op.schema().returns(), &is_number_result);
}

bool is_functional_form(const c10::OperatorHandle& op) { return op.operator_name().name.starts_with(kNamespace); }

std::optional<c10::OperatorHandle> functional_form(const c10::OperatorHandle& op) {
  if (!has_form(op)) return std::nullopt;
  const c10::FunctionSchema& schema = op.schema();
  const c10::OperatorName name{name_of_form(schema), schema.overload_name()};
  if (const auto known = c10::Dispatcher::singleton().findSchema(name)) return known;
  const std::vector<at::Tag> tags = op.getTags().vec();
  std::vector<c10::Argument> arguments;
  for (const c10::Argument& argument : schema.arguments()) arguments.push_back(without_alias(argument));
  // Lives as long as the process: traces point to its operators.
  static auto* const kLibrary =
      new torch::Library(torch::Library::FRAGMENT, std::string(kNamespace), std::nullopt, __FILE__, __LINE__);
  kLibrary->def(c10::FunctionSchema(name.name, name.overload_name, std::move(arguments), results_of_form(schema)),
                tags);
  const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  kLibrary->impl(full.c_str(),
                 torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CopyingCall>(op))));
  return c10::Dispatcher::singleton().findSchema(name);
}

}  // namespace thunder::tracer
