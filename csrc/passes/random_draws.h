#pragma once

#include <optional>

#include "ir/trace.h"
#include "passes/pass.h"

// Zeros and ones drawn at random (the masks of dropout) need not be saved for a backward: from the state that the
// generator had, some kilobytes whatever their number, the same ones can be drawn again (`bridge/bernoulli.h`,
// `bridge/dropout.h`).

namespace thunder::passes {

/// `aten::bernoulli_` of fresh memory, `aten::bernoulli` and `aten::native_dropout` become operations whose last result
/// is the generator's state before. Symbols keep their places.
[[nodiscard]] ir::Trace with_generator_states(const ir::Trace& trace, FindOperator find_operator);

struct DrawnValue {
  ir::ValueId value;
  ir::ValueId state;  ///< from which `value` can be drawn again
};
/// The value that a symbol made by `with_generator_states` draws, and its state; none for other symbols.
[[nodiscard]] std::optional<DrawnValue> drawn_with_state(const ir::BoundSymbol& symbol);

/// The draw of such a symbol repeated: it reads the state and gives the value.
[[nodiscard]] ir::BoundSymbol drawn_again(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                          FindOperator find_operator);

}  // namespace thunder::passes
