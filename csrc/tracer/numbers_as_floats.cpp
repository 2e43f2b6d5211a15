#include "tracer/numbers_as_floats.h"

#include <torch/library.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace thunder::tracer {
namespace {

using c10::IValue;

constexpr const char* kNamespace = "thunder_numbers";

/// The kernel of an operator that takes floats as tensors: it reads them, and calls the one that takes floats.
class CallWithFloats final : public c10::OperatorKernel {
 public:
  explicit CallWithFloats(c10::OperatorHandle op) : op_(std::move(op)) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) const {
    const std::vector<std::int64_t> places = torch::jit::pop(*stack).toIntVector();
    const std::vector<at::Tensor> numbers = torch::jit::pop(*stack).toTensorVector();
    const std::size_t begin = stack->size() - op_.schema().arguments().size();
    for (std::size_t i = 0; i < places.size(); ++i) {
      (*stack)[begin + static_cast<std::size_t>(places[i])] = numbers[i].item<double>();
    }
    op_.callBoxed(*stack);
  }

 private:
  c10::OperatorHandle op_;
};

/// The operator that takes the floats at some places as tensors: `op` with two parameters more. Made at first use.
c10::OperatorHandle with_tensors(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  std::string name = schema.name();
  name.replace(0, name.find("::"), kNamespace);
  if (const auto known = c10::Dispatcher::singleton().findSchema({name, schema.overload_name()})) return *known;
  std::vector<c10::Argument> arguments = schema.arguments();
  const auto add = [&](const char* parameter, const c10::TypePtr& type) {
    arguments.emplace_back(parameter, type, std::nullopt, std::nullopt, /*kwarg_only=*/true);
  };
  add("numbers", c10::ListType::ofTensors());
  add("places", c10::ListType::ofInts());
  // Lives as long as the process: traces point to its operators.
  static auto* const kLibrary =
      new torch::Library(torch::Library::FRAGMENT, kNamespace, std::nullopt, __FILE__, __LINE__);
  kLibrary->def(c10::FunctionSchema(name, schema.overload_name(), std::move(arguments), schema.returns()));
  const std::string full = schema.overload_name().empty() ? name : name + "." + schema.overload_name();
  kLibrary->impl(full.c_str(),
                 torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CallWithFloats>(op))));
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), schema.overload_name().c_str());
}

}  // namespace

std::optional<c10::OperatorHandle> NumbersAsFloats::put_into(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  NumbersAsFloats* const given = of(op);
  if (given == nullptr) return std::nullopt;
  c10::List<at::Tensor> numbers;
  c10::List<std::int64_t> places;
  for (const auto& [name, number] : given->numbers_) {
    const auto place = op.schema().argumentIndexWithName(name);
    if (!place || op.schema().arguments()[*place].type()->kind() != c10::TypeKind::FloatType) return std::nullopt;
    numbers.push_back(number);
    places.push_back(*place);
  }
  given->take();
  stack.emplace_back(std::move(numbers));
  stack.emplace_back(std::move(places));
  return with_tensors(op);
}

}  // namespace thunder::tracer
