#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/condition.h"
#include "ir/size.h"

namespace thunder::tracer {

/// Facts about a call of an operation that samples do not show, told before it runs.
struct SizeNotes {
  std::vector<ir::Condition> conditions;  ///< under which it does what it does at the sizes that are traced
  ir::Dims expressions;                   ///< sizes of results that are no sum, product or quotient of known ones
};

/// The sizes of a tensor as expressions; nullopt: they are not known.
using SizesOf = std::function<std::optional<ir::Dims>(const at::Tensor& tensor)>;

/// `traced`: the values of the symbols.
[[nodiscard]] SizeNotes notes_on(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                 const SizesOf& sizes_of, ir::SymbolValues traced);

/// Bounds of symbols which all samples in `fitting` meet, the first of which are the sizes that are traced, and no one
/// in `failing`; nullopt: there are none.
[[nodiscard]] std::optional<std::vector<ir::Condition>> bounds_between(std::span<const ir::SymbolValues> fitting,
                                                                       std::span<const ir::SymbolValues> failing);

/// That one of these expressions, which are not negative as they are traced, is not negative, where that tells the
/// samples apart likewise: `torch.zeros(20 - n)` fails for a larger `n`.
[[nodiscard]] std::optional<std::vector<ir::Condition>> signs_between(std::span<const ir::Dim> expressions,
                                                                      std::span<const ir::SymbolValues> fitting,
                                                                      std::span<const ir::SymbolValues> failing);

/// Equalities that tell the samples apart likewise, of sizes in `shapes` that are equal as they are traced: of those in
/// the same places, from the last one on, of the first and of a later shape; else of any two, as few as do.
[[nodiscard]] std::optional<std::vector<ir::Condition>> equalities_between(std::span<const ir::Dims> shapes,
                                                                           std::span<const ir::SymbolValues> fitting,
                                                                           std::span<const ir::SymbolValues> failing);

}  // namespace thunder::tracer
