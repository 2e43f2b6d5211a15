#pragma once

#include "compile/compilation.h"
#include "compile/pass_runner.h"

// Steps that work on the recorded computation, the last of which differentiates it.

namespace thunder::compile {

void assume_sizes(Compilation& compilation, const PassRunner& runner);
void fold_constants(Compilation& compilation, const PassRunner& runner);
void simplify_masks(Compilation& compilation, const PassRunner& runner);
void group_keys(Compilation& compilation, const PassRunner& runner);
void make_patches(Compilation& compilation, const PassRunner& runner);
void keep_channels_last(Compilation& compilation, const PassRunner& runner);
void recognize_gelus(Compilation& compilation, const PassRunner& runner);
/// Executors and transforms of the user look for the layers of the program, and those that let processes talk for the
/// gradient of each weight.
void merge_linears(Compilation& compilation, const PassRunner& runner);
void differentiate(Compilation& compilation, const PassRunner& runner);

}  // namespace thunder::compile
