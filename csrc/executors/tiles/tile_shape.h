#pragma once

#include <vector>

#include "executors/tiles/tile_builder.h"
#include "executors/tiles/tile_program.h"

namespace thunder::executors::cpu {

/// Chooses how large the tiles of a program are, and cuts its work into units and tasks. Column sums get places for
/// what each task adds.
void set_shape(const TileDomain& domain, std::vector<Sum>& column_sums, TileProgram& program);

}  // namespace thunder::executors::cpu
