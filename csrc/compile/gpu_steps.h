#pragma once

#include "compile/compilation.h"
#include "compile/pass_runner.h"

// Steps for traces on a GPU whose operations are fused.

namespace thunder::compile {

void save_statistics(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void group_attention(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void avoid_copies(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void convolve_gradients(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void align_matmuls(const Compilation& compilation, TraceLine& line, const PassRunner& runner);

}  // namespace thunder::compile
