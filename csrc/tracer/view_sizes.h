#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ir/generalization.h"
#include "ir/size.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {

/// An integer among the arguments of a call, or in a list among them, that depends on symbols.
struct SizeInCall {
  std::size_t argument = 0;
  std::optional<std::size_t> element{};
  ir::Dim dim;
};

/// Whether both are one number, or None.
[[nodiscard]] bool is_equal_value(const c10::IValue& left, const c10::IValue& right);

/// The integers that depend on symbols in each of these views of the program, the first of which gave a tensor, the
/// next one what that shows, and so on; `shown` is that tensor at each sample of `fit` behind the first. nullopt: they
/// are no expressions of the symbols.
[[nodiscard]] std::optional<std::vector<std::vector<SizeInCall>>> sizes_in_views(std::span<const ViewOf* const> views,
                                                                                 std::vector<at::Tensor> shown,
                                                                                 ir::SizeFit& fit);

}  // namespace thunder::tracer
