#pragma once

#include "ir/trace.h"
#include "passes/pass.h"

// Zeros and ones drawn at random (the masks of dropout) need not be saved for a backward: from the state that the
// generator had, some kilobytes whatever their number, the same ones can be drawn again (`bridge/bernoulli.h`).

namespace thunder::passes {

/// `aten::bernoulli_` of fresh memory and `aten::bernoulli` become `thunder::bernoulli_with_state`, whose second result
/// is the generator's state before. Symbols keep their places.
[[nodiscard]] ir::Trace with_generator_states(const ir::Trace& trace, FindOperator find_operator);

/// A symbol that `with_generator_states` made: its results are what was drawn, and the state.
[[nodiscard]] bool gives_generator_state(const ir::BoundSymbol& symbol);

/// The draw repeated, `thunder::bernoulli_from_state`: it reads the state.
[[nodiscard]] ir::BoundSymbol drawn_again(const ir::BoundSymbol& symbol, FindOperator find_operator);

}  // namespace thunder::passes
