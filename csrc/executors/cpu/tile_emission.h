#pragma once

#include <optional>

#include "executors/tiles/tile_program.h"
#include "fusion/kernel_graph.h"
#include "fusion/target.h"

namespace thunder::executors::cpu {

/// The abilities and the cost model of the CPU's kernels.
extern const fusion::Target kTarget;

/// How memory holds a dtype; nullopt: no kernel reads it.
[[nodiscard]] std::optional<Storage> storage_of(ir::Dtype dtype);

/// The kernel as a tile program; nullopt: no vector kernel has one of its operations.
[[nodiscard]] std::optional<TileProgram> emit_tiles(const fusion::SizedKernel& kernel);

}  // namespace thunder::executors::cpu
