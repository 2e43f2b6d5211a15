#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/trace.h"

namespace thunder::operators {

/// What neither an operator's schema nor its tags in PyTorch's dispatcher say.
enum class Fact : std::uint8_t {
  kDrawsRandomNumbers = 1,  ///< from a generator that is no parameter
  kIsCheap = 2,             ///< a few passes over the data: recomputed rather than kept
  kMayReturnArgument = 4,   ///< a result may be the memory of an argument
  kRaisesForData = 8,       ///< for what tensors hold, not only for their sizes and dtypes
  kRaisesForZero = 16,      ///< for a divisor of zero, of integers
};

/// Facts hold for all overloads.
[[nodiscard]] bool has_fact(const ir::Operator& op, Fact fact);

/// Whether an operation may raise an error that depends on the data of its arguments: `linalg.inv`, an index out of
/// bounds, integers divided by zero.
[[nodiscard]] bool may_raise_for_data(const ir::Trace& trace, const ir::BoundSymbol& symbol);

/// The overload that writes its result into memory that it is given, the last parameter. It reads each element of its
/// first parameters, and what of its row it needs besides, before it writes it: so the memory may be one of theirs.
struct OutForm {
  const char* overload;
  std::size_t candidates;  ///< of the parameters that may give their memory
};
/// Only where there is no in-place overload.
[[nodiscard]] std::optional<OutForm> out_form(const ir::Operator& op);

/// The parameter whose last dimension a matmul sums over; nullopt: the operator is no matmul.
[[nodiscard]] std::optional<std::size_t> matmul_operand(const ir::Operator& op);

/// Whether the first two parameters may change places.
[[nodiscard]] bool is_commutative(const ir::Operator& op);

}  // namespace thunder::operators
