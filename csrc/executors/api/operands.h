#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors {

// Symbols of a trace as calls of a program: values are slots, constants are IValues.

[[nodiscard]] inline runtime::Slot slot_of(ir::ValueId id) { return runtime::Slot{ir::index_of(id)}; }

/// A size, as each run computes it.
[[nodiscard]] runtime::SizeOperand size_operand(const ir::Dim& dim);
/// The values of these symbols, as a list of integers, for a kernel that depends on them.
[[nodiscard]] runtime::Operand symbols_operand(const std::vector<std::uint32_t>& symbols);
/// Takes the values of `symbols_operand` from the end of the stack; the result is indexed by symbol.
[[nodiscard]] std::vector<std::int64_t> take_symbols(std::vector<c10::IValue>& stack,
                                                     const std::vector<std::uint32_t>& symbols);
/// A block, as one call of a kernel: it takes the distinct values that the block reads and, if there are some, the
/// values of `symbols`, and gives the block's results. `written` are places among those values.
void lower_block(const ir::BoundSymbol& block, runtime::Kernel kernel, std::shared_ptr<const void> state,
                 const std::vector<std::uint32_t>& symbols, std::span<const std::size_t> written,
                 runtime::ProgramBuilder& builder);
/// A constant argument for a parameter of the schema type `type`.
[[nodiscard]] c10::IValue operand_constant(const ir::Argument& argument, const c10::TypePtr& type,
                                           const ir::Trace& trace);
/// An argument for a parameter of the schema type `type`.
[[nodiscard]] runtime::Operand operand_of(const ir::Argument& argument, const c10::TypePtr& type,
                                          const ir::Trace& trace);
[[nodiscard]] std::vector<runtime::ResultSlots> result_slots(const ir::BoundSymbol& symbol);
[[nodiscard]] runtime::Location location_of(const ir::BoundSymbol& symbol);

/// The arguments of a dispatcher operator's symbol, in the order of its schema.
[[nodiscard]] std::vector<runtime::Operand> operands_of(const ir::BoundSymbol& symbol, const ir::Trace& trace);
/// A symbol of a dispatcher operator, as a call of it; `is_small` as in ProgramBuilder::call.
void lower_operator(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder,
                    bool is_small = false);

}  // namespace thunder::executors
