#pragma once

#include "compile/compilation.h"
#include "compile/pass_runner.h"

// Steps that decide what the forward saves, and what the backward reads of it.

namespace thunder::compile {

void eliminate_in_forward(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void drop_saved(Compilation& compilation, const PassRunner& runner);
void rematerialize(Compilation& compilation, const PassRunner& runner);
void drop_unread(const Compilation& compilation, TraceLine& line, const PassRunner& runner);

}  // namespace thunder::compile
