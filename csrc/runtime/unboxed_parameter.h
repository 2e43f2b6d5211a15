#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/instruction.h"

namespace thunder::runtime {

// Functions that run once, when a program is built, are not inlined: each signature would have a copy of them.

/// How a constant for a C++ parameter of an operator is kept.
template <typename T>
struct Constant;

#define THUNDER_CONSTANT(Type, Storage, read_expression)                                       \
  template <>                                                                                  \
  struct Constant<Type> {                                                                      \
    using Stored = Storage;                                                                    \
    [[gnu::noinline]] static Stored read(const c10::IValue& value) { return read_expression; } \
  };

THUNDER_CONSTANT(bool, bool, value.toBool())
THUNDER_CONSTANT(std::int64_t, std::int64_t, value.toInt())
THUNDER_CONSTANT(c10::SymInt, c10::SymInt, c10::SymInt(value.toInt()))
THUNDER_CONSTANT(double, double, value.toDouble())
THUNDER_CONSTANT(at::Scalar, at::Scalar, value.toScalar())
THUNDER_CONSTANT(std::string_view, std::string, value.toStringRef())
THUNDER_CONSTANT(at::ScalarType, at::ScalarType, value.toScalarType())
THUNDER_CONSTANT(at::Layout, at::Layout, value.toLayout())
THUNDER_CONSTANT(at::Device, at::Device, value.toDevice())
THUNDER_CONSTANT(at::MemoryFormat, at::MemoryFormat, value.toMemoryFormat())
THUNDER_CONSTANT(at::Generator, at::Generator, value.toGenerator())
THUNDER_CONSTANT(at::IntArrayRef, std::vector<std::int64_t>, value.toIntVector())
THUNDER_CONSTANT(c10::SymIntArrayRef, std::vector<c10::SymInt>, value.toSymIntVector())
THUNDER_CONSTANT(at::ArrayRef<double>, std::vector<double>, value.toDoubleVector())
#undef THUNDER_CONSTANT

template <>
struct Constant<const at::Scalar&> : Constant<at::Scalar> {};

template <typename T>
struct Constant<std::optional<T>> {
  using Stored = std::optional<typename Constant<T>::Stored>;
  static Stored read(const c10::IValue& value) { return value.isNone() ? Stored() : Stored(Constant<T>::read(value)); }
};
template <>
struct Constant<const std::optional<at::Scalar>&> : Constant<std::optional<at::Scalar>> {};
template <>
struct Constant<at::OptionalIntArrayRef> : Constant<std::optional<at::IntArrayRef>> {};
template <>
struct Constant<at::OptionalSymIntArrayRef> : Constant<std::optional<c10::SymIntArrayRef>> {};

template <std::size_t count>
struct Constant<std::array<bool, count>> {
  using Stored = std::array<bool, count>;
  static Stored read(const c10::IValue& value) {
    const c10::List<bool> list = value.toBoolList();
    Stored stored{};
    for (std::size_t i = 0; i < count; ++i) stored[i] = list.get(i);
    return stored;
  }
};

/// One parameter of an unboxed call: `load` gives what the C++ function takes. `accepts` says whether an operand can be
/// bound. This primary template is a constant.
template <typename T>
class Parameter {
 public:
  static bool accepts(const ResolvedOperand& operand) { return std::holds_alternative<c10::IValue>(operand.content); }
  explicit Parameter(const ResolvedOperand& operand)
      : stored_(Constant<T>::read(std::get<c10::IValue>(operand.content))) {}

  decltype(auto) load(Frame& /*frame*/) const {
    if constexpr (std::same_as<T, std::optional<c10::SymIntArrayRef>> || std::same_as<T, at::OptionalIntArrayRef> ||
                  std::same_as<T, at::OptionalSymIntArrayRef> || std::same_as<T, std::optional<at::ArrayRef<double>>> ||
                  std::same_as<T, std::optional<std::string_view>>) {
      return stored_ ? T(*stored_) : T();
    } else {
      return static_cast<const typename Constant<T>::Stored&>(stored_);
    }
  }

 private:
  typename Constant<T>::Stored stored_;
};

/// A tensor in a register, or a constant: a wrapped number, or an undefined tensor for None.
class TensorSource {
 public:
  [[gnu::noinline]] static bool accepts(const ResolvedOperand& operand) {
    const auto* constant = std::get_if<c10::IValue>(&operand.content);
    return std::holds_alternative<RegisterOperand>(operand.content) ||
           (constant != nullptr && (constant->isTensor() || constant->isNone()));
  }
  [[gnu::noinline]] explicit TensorSource(const ResolvedOperand& operand) {
    if (const auto* constant = std::get_if<c10::IValue>(&operand.content)) {
      if (constant->isTensor()) constant_ = constant->toTensor();
    } else {
      register_ = std::get<RegisterOperand>(operand.content);
    }
  }
  [[nodiscard]] const at::Tensor& borrow(const Frame& frame) const {
    if (register_.index == kNoRegister) return constant_;
    const c10::IValue& value = frame.registers[register_.index];
    return value.isNone() ? constant_ : value.toTensor();
  }
  [[nodiscard]] at::Tensor take(Frame& frame) const {
    if (!register_.takes || frame.registers[register_.index].isNone()) return borrow(frame);
    return std::move(frame.registers[register_.index]).toTensor();
  }

 private:
  RegisterOperand register_;
  at::Tensor constant_;
};

template <>
class Parameter<const at::Tensor&> {
 public:
  static bool accepts(const ResolvedOperand& operand) { return TensorSource::accepts(operand); }
  explicit Parameter(const ResolvedOperand& operand) : source_(operand) {}
  const at::Tensor& load(Frame& frame) const { return source_.borrow(frame); }

 private:
  TensorSource source_;
};

template <>
class Parameter<at::Tensor&> {
 public:
  static bool accepts(const ResolvedOperand& operand) {
    return std::holds_alternative<RegisterOperand>(operand.content);
  }
  explicit Parameter(const ResolvedOperand& operand) : index_(std::get<RegisterOperand>(operand.content).index) {}
  at::Tensor& load(Frame& frame) const { return frame.registers[index_].toTensor(); }

 private:
  std::uint32_t index_;
};

template <>
class Parameter<const std::optional<at::Tensor>&> {
 public:
  static bool accepts(const ResolvedOperand& operand) { return TensorSource::accepts(operand); }
  explicit Parameter(const ResolvedOperand& operand) : source_(operand) {}
  std::optional<at::Tensor> load(Frame& frame) const {
    at::Tensor tensor = source_.take(frame);
    return tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt;
  }

 private:
  TensorSource source_;
};

/// The elements of a list operand; also of a constant list, which then holds no slots.
class TensorSources {
 public:
  [[gnu::noinline]] static bool accepts(const ResolvedOperand& operand) {
    const auto* list = std::get_if<ResolvedList>(&operand.content);
    return list != nullptr && std::all_of(list->elements.begin(), list->elements.end(), &TensorSource::accepts);
  }
  [[gnu::noinline]] explicit TensorSources(const ResolvedOperand& operand) {
    for (const ResolvedOperand& element : std::get<ResolvedList>(operand.content).elements) {
      sources_.emplace_back(element);
    }
  }
  [[nodiscard]] const std::vector<TensorSource>& sources() const { return sources_; }

 private:
  std::vector<TensorSource> sources_;
};

/// Tensors for the length of one call, converting to the list types that kernels take.
struct LoadedTensors {
  c10::SmallVector<at::Tensor, 8> tensors;
  at::ITensorListRef reference;
  LoadedTensors(const TensorSources& sources, Frame& frame) {
    for (const TensorSource& source : sources.sources()) tensors.push_back(source.take(frame));
    reference = at::ITensorListRef(at::TensorList(tensors));
  }
  LoadedTensors(const LoadedTensors&) = delete;
  LoadedTensors& operator=(const LoadedTensors&) = delete;
  operator at::TensorList() const { return tensors; }               // NOLINT(google-explicit-constructor)
  operator const at::ITensorListRef&() const { return reference; }  // NOLINT(google-explicit-constructor)
};

template <typename T>
  requires std::same_as<T, at::TensorList> || std::same_as<T, const at::ITensorListRef&>
class Parameter<T> {
 public:
  static bool accepts(const ResolvedOperand& operand) { return TensorSources::accepts(operand); }
  explicit Parameter(const ResolvedOperand& operand) : sources_(operand) {}
  LoadedTensors load(Frame& frame) const { return LoadedTensors(sources_, frame); }

 private:
  TensorSources sources_;
};

template <>
class Parameter<const c10::List<std::optional<at::Tensor>>&> {
 public:
  static bool accepts(const ResolvedOperand& operand) { return TensorSources::accepts(operand); }
  explicit Parameter(const ResolvedOperand& operand) : sources_(operand) {}
  c10::List<std::optional<at::Tensor>> load(Frame& frame) const {
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(sources_.sources().size());
    for (const TensorSource& source : sources_.sources()) {
      at::Tensor tensor = source.take(frame);
      list.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
    }
    return list;
  }

 private:
  TensorSources sources_;
};

}  // namespace thunder::runtime
