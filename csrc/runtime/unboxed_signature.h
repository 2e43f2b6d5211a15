#pragma once

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/instruction.h"
#include "runtime/unboxed_parameter.h"

namespace thunder::runtime {

using Operands = std::vector<ResolvedOperand>;
using Registers = std::vector<ResultRegisters>;

[[nodiscard]] inline bool is_list(const ResultRegisters& registers) {
  return std::holds_alternative<std::vector<std::uint32_t>>(registers);
}

/// Where the parts of what an operator returns go.
template <typename T>
struct Returned;

template <>
struct Returned<at::Tensor> {
  static bool accepts(const Registers& targets) { return targets.size() == 1 && !is_list(targets[0]); }
  static void store(const Registers& targets, at::Tensor&& tensor, Frame& frame) {
    runtime::store(frame, std::get<std::uint32_t>(targets[0]), c10::IValue(std::move(tensor)));
  }
};
template <>
struct Returned<at::Tensor&> : Returned<at::Tensor> {
  static void store(const Registers& targets, const at::Tensor& tensor, Frame& frame) {
    Returned<at::Tensor>::store(targets, at::Tensor(tensor), frame);
  }
};
template <typename... Tensors>
struct Returned<std::tuple<Tensors...>> {
  static bool accepts(const Registers& targets) {
    return targets.size() == sizeof...(Tensors) && std::ranges::none_of(targets, &is_list);
  }
  static void store(const Registers& targets, std::tuple<Tensors...>&& tensors, Frame& frame) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (runtime::store(frame, std::get<std::uint32_t>(targets[i]), c10::IValue(std::get<i>(std::move(tensors)))), ...);
    }(std::index_sequence_for<Tensors...>());
  }
};
template <>
struct Returned<std::vector<at::Tensor>> {
  static bool accepts(const Registers& targets) { return targets.size() == 1 && is_list(targets[0]); }
  static void store(const Registers& targets, std::vector<at::Tensor>&& tensors, Frame& frame) {
    const auto& indices = std::get<std::vector<std::uint32_t>>(targets[0]);
    THUNDER_CHECK(tensors.size() == indices.size(), "runtime",
                  "an operator returned a list of another length than when it was traced");
    for (std::size_t i = 0; i < indices.size(); ++i) {
      runtime::store(frame, indices[i], c10::IValue(std::move(tensors[i])));
    }
  }
};

/// A call of a C++ function with this signature. One instantiation is for all operators that have it.
template <typename Signature>
struct Unboxed;

template <typename Return, typename... Arguments>
struct Unboxed<Return(Arguments...)> {
  Return (*function)(Arguments...);
  std::tuple<Parameter<Arguments>...> parameters;
  Registers results;

  static void run(const void* state, Frame& frame) {
    const Unboxed& call = *static_cast<const Unboxed*>(state);
    std::apply(
        [&](const auto&... parameter) {
          Returned<Return>::store(call.results, call.function(parameter.load(frame)...), frame);
        },
        call.parameters);
  }

  /// No function when an operand or a result is of a kind that the signature has no place for.
  [[gnu::cold]] static BoundFunction bind(Return (*function)(Arguments...), const Operands& operands,
                                          const Registers& results) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) -> BoundFunction {
      if (operands.size() != sizeof...(Arguments) || !Returned<Return>::accepts(results)) return {};
      if (!(Parameter<Arguments>::accepts(operands[i]) && ...)) return {};
      return {&run,
              std::make_shared<const Unboxed>(Unboxed{function, {Parameter<Arguments>(operands[i])...}, results})};
    }(std::index_sequence_for<Arguments...>());
  }
};

}  // namespace thunder::runtime
