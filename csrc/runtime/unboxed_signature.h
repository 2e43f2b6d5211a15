#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/instruction.h"
#include "runtime/unboxed_parameter.h"

namespace thunder::runtime {

using Registers = std::vector<ResultRegisters>;

/// How a C++ return type is called in schemas, and where its parts go.
template <typename T>
struct Returned;

template <>
struct Returned<at::Tensor> {
  static std::string name() { return "Tensor"; }
  static void store(const Registers& targets, at::Tensor&& tensor, Frame& frame) {
    runtime::store(frame, std::get<std::uint32_t>(targets[0]), c10::IValue(std::move(tensor)));
  }
};
template <>
struct Returned<at::Tensor&> {
  static std::string name() { return "Tensor!"; }
  static void store(const Registers& targets, const at::Tensor& tensor, Frame& frame) {
    runtime::store(frame, std::get<std::uint32_t>(targets[0]), c10::IValue(tensor));
  }
};
template <typename... Tensors>
struct Returned<std::tuple<Tensors...>> {
  static std::string name() {
    std::string names;
    for (std::size_t i = 0; i < sizeof...(Tensors); ++i) names += i == 0 ? "Tensor" : ",Tensor";
    return names;
  }
  static void store(const Registers& targets, std::tuple<Tensors...>&& tensors, Frame& frame) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (runtime::store(frame, std::get<std::uint32_t>(targets[i]), c10::IValue(std::get<i>(std::move(tensors)))), ...);
    }(std::index_sequence_for<Tensors...>());
  }
};
template <>
struct Returned<std::vector<at::Tensor>> {
  static std::string name() { return "Tensor[]"; }
  static void store(const Registers& targets, std::vector<at::Tensor>&& tensors, Frame& frame) {
    const auto& indices = std::get<std::vector<std::uint32_t>>(targets[0]);
    THUNDER_CHECK(tensors.size() == indices.size(), "runtime",
                  "an operator returned a list of another length than when it was traced");
    for (std::size_t i = 0; i < indices.size(); ++i) {
      runtime::store(frame, indices[i], c10::IValue(std::move(tensors[i])));
    }
  }
};

template <typename Signature>
struct Unboxed;

template <typename Return, typename... Arguments>
struct Unboxed<Return(Arguments...)> {
  c10::TypedOperatorHandle<Return(Arguments...)> op;
  std::tuple<Parameter<Arguments>...> parameters;
  Registers results;

  static std::string key() {
    std::string key;
    ((key += Parameter<Arguments>::name() + ","), ...);
    return key + "->" + Returned<Return>::name();
  }

  static void run(const void* state, Frame& frame) {
    const Unboxed& call = *static_cast<const Unboxed*>(state);
    std::apply(
        [&](const auto&... parameter) {
          Returned<Return>::store(call.results, call.op.call(parameter.load(frame)...), frame);
        },
        call.parameters);
  }

  [[gnu::cold]] static BoundFunction bind(const c10::OperatorHandle& op, const std::vector<ResolvedOperand>& operands,
                                          const Registers& results) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) -> BoundFunction {
      if (!(Parameter<Arguments>::accepts(operands[i]) && ...)) return {};
      return {&run, std::make_shared<const Unboxed>(
                        Unboxed{op.typed<Return(Arguments...)>(), {Parameter<Arguments>(operands[i])...}, results})};
    }(std::index_sequence_for<Arguments...>());
  }
};

using Bind = BoundFunction (*)(const c10::OperatorHandle&, const std::vector<ResolvedOperand>&, const Registers&);
/// By what the schema says of a signature. `Tensor[]` stands for two C++ types, so there may be several rows.
using Table = std::unordered_map<std::string, std::vector<Bind>>;

template <typename... Signatures>
void add_signatures(Table& table) {
  (table[Unboxed<Signatures>::key()].push_back(&Unboxed<Signatures>::bind), ...);
}

/// The rows, in several sources because each takes the compiler a while.
void add_pointwise_signatures(Table& table);
void add_model_signatures(Table& table);
void add_shape_signatures(Table& table);

/// Short names for the rows.
namespace signature {

using R = at::Tensor;
using R2 = std::tuple<R, R>;
using R3 = std::tuple<R, R, R>;
using RList = std::vector<R>;
using T = const at::Tensor&;
using OptT = const std::optional<at::Tensor>&;
using W = at::Tensor&;
using Indices = const c10::List<std::optional<at::Tensor>>&;
using S = const at::Scalar&;
using OptS = const std::optional<at::Scalar>&;
using I = std::int64_t;
using OptI = std::optional<std::int64_t>;
using Sym = c10::SymInt;
using OptSym = std::optional<c10::SymInt>;
using F = double;
using OptF = std::optional<double>;
using B = bool;
using OptB = std::optional<bool>;
using Text = std::string_view;
using Ints = at::IntArrayRef;
using OptInts = at::OptionalIntArrayRef;
using Syms = c10::SymIntArrayRef;
using OptSyms = at::OptionalSymIntArrayRef;
using Dt = at::ScalarType;
using OptDt = std::optional<at::ScalarType>;
using OptL = std::optional<at::Layout>;
using Dev = at::Device;
using OptD = std::optional<at::Device>;
using Mf = at::MemoryFormat;
using OptMf = std::optional<at::MemoryFormat>;
using Mask3 = std::array<bool, 3>;

}  // namespace signature
}  // namespace thunder::runtime
