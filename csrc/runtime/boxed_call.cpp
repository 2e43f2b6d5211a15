#include "runtime/boxed_call.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"

namespace thunder::runtime {
namespace {

struct Boxed {
  std::vector<ResolvedOperand> operands;
  std::vector<ResultRegisters> results;
};
struct BoxedOperator : Boxed {
  c10::OperatorHandle op;
};
struct BoxedCollective : BoxedOperator {
  std::string group;
};
struct BoxedKernel : Boxed {
  Kernel kernel;
  std::shared_ptr<const void> state;
};

c10::IValue load(const ResolvedOperand& operand, Frame& frame) {
  if (const auto* reg = std::get_if<RegisterOperand>(&operand.content)) {
    c10::IValue& value = frame.registers[reg->index];
    return reg->takes ? std::move(value) : value;
  }
  if (const auto* constant = std::get_if<c10::IValue>(&operand.content)) return *constant;
  if (const auto* size = std::get_if<SizeOperand>(&operand.content)) {
    const std::int64_t number = size->compute(size->state.get(), frame.symbols);
    if (!size->is_tensor) return number;
    at::Tensor tensor = c10::scalar_to_tensor(number);
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  }
  const auto& list = std::get<ResolvedList>(operand.content);
  c10::impl::GenericList elements(list.element_type);
  elements.reserve(list.elements.size());
  for (const ResolvedOperand& element : list.elements) elements.push_back(load(element, frame));
  return elements;
}

void store(const ResultRegisters& target, c10::IValue&& value, Frame& frame) {
  if (const auto* index = std::get_if<std::uint32_t>(&target)) {
    store(frame, *index, std::move(value));
    return;
  }
  const auto& indices = std::get<std::vector<std::uint32_t>>(target);
  const c10::ArrayRef<c10::IValue> elements = value.toListRef();
  THUNDER_CHECK(elements.size() == indices.size(), "runtime",
                "an operator returned a list of another length than when it was traced");
  for (std::size_t i = 0; i < indices.size(); ++i) store(frame, indices[i], c10::IValue(elements[i]));
}

void wait_for(const c10::IValue& result) {
  static const auto kWait = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
                                .typed<at::Tensor(const at::Tensor&)>();
  if (result.isTensor()) static_cast<void>(kWait.call(result.toTensor()));
  if (!result.isTensorList()) return;
  for (const at::Tensor& tensor : result.toTensorVector()) wait_for(tensor);
}

/// PyTorch's gloo keeps the name of the last collective that ended in a string that its threads write without a lock:
/// two that end at one time free it twice. So only one is under way.
void wait_for_gloo(const std::string& group, const std::vector<c10::IValue>& results) {
  const at::Tensor any =
      results.front().isTensor() ? results.front().toTensor() : results.front().toTensorVector().at(0);
  const auto backend = c10d::resolve_process_group(group)->getBackend(any.device().type());
  if (backend->getBackendName() == "gloo") std::ranges::for_each(results, &wait_for);
}

/// The group by which processes talk in a call; none where it does not start a collective.
std::optional<std::string> group_of(const c10::OperatorHandle& op, const std::vector<ResolvedOperand>& operands) {
  const c10::FunctionSchema& schema = op.schema();
  const std::optional<int> position = schema.argumentIndexWithName("group_name");
  if (!position || !schema.name().starts_with("_c10d_functional::")) return std::nullopt;
  const auto* group = std::get_if<c10::IValue>(&operands[*position].content);
  if (group == nullptr || !group->isString()) return std::nullopt;
  return group->toStringRef();
}

template <typename State>
void run(const void* pointer, Frame& frame) {
  const State& call = *static_cast<const State*>(pointer);
  std::vector<c10::IValue>& stack = *frame.stack;
  for (const ResolvedOperand& operand : call.operands) stack.push_back(load(operand, frame));
  if constexpr (std::is_base_of_v<BoxedOperator, State>) {
    call.op.callBoxed(stack);
    if constexpr (std::is_same_v<State, BoxedCollective>) wait_for_gloo(call.group, stack);
  } else {
    call.kernel(call.state.get(), stack);
  }
  THUNDER_CHECK(stack.size() == call.results.size(), "runtime",
                "a kernel left another number of results than expected");
  for (std::size_t i = 0; i < call.results.size(); ++i) store(call.results[i], std::move(stack[i]), frame);
  stack.clear();
}

bool is_marked_number(const ResolvedOperand& operand) {
  const auto* constant = std::get_if<c10::IValue>(&operand.content);
  return constant != nullptr && constant->isTensor() && constant->toTensor().defined() &&
         constant->toTensor().unsafeGetTensorImpl()->is_wrapped_number();
}

bool takes_one_tensor(const c10::FunctionSchema& schema) {
  return std::ranges::count_if(schema.arguments(), [](const c10::Argument& argument) {
           return argument.type()->str().find("Tensor") != std::string::npos;
         }) == 1;
}

/// A dispatch mode gets numbers in the place of tensors that are marked as such, which operators of one tensor refuse.
/// Nothing else depends on the mark there: it says which of several tensors decide the dtype.
void unmark_number(const c10::FunctionSchema& schema, std::vector<ResolvedOperand>& operands) {
  const auto number = std::ranges::find_if(operands, is_marked_number);
  if (number == operands.end() || !takes_one_tensor(schema)) return;
  c10::IValue& constant = std::get<c10::IValue>(number->content);
  const c10::TensorImpl* impl = constant.toTensor().unsafeGetTensorImpl();
  at::Tensor unmarked(impl->shallow_copy_and_detach(c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
  unmarked.unsafeGetTensorImpl()->set_wrapped_number(false);
  constant = std::move(unmarked);
}

}  // namespace

BoundFunction bind_boxed(const ProgramCall& call, std::vector<ResolvedOperand> operands,
                         std::vector<ResultRegisters> results) {
  if (call.op) unmark_number(call.op->schema(), operands);
  std::optional<std::string> group = call.op ? group_of(*call.op, operands) : std::nullopt;
  Boxed boxed{std::move(operands), std::move(results)};
  if (group) {
    return {&run<BoxedCollective>,
            std::make_shared<const BoxedCollective>(BoxedCollective{{std::move(boxed), *call.op}, *std::move(group)})};
  }
  if (call.op) {
    return {&run<BoxedOperator>, std::make_shared<const BoxedOperator>(BoxedOperator{std::move(boxed), *call.op})};
  }
  return {&run<BoxedKernel>,
          std::make_shared<const BoxedKernel>(BoxedKernel{std::move(boxed), call.kernel, call.state})};
}

}  // namespace thunder::runtime
