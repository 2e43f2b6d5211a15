#pragma once

namespace thunder::compile {

/// Says which exceptions are not ours to explain: those of Python code that operators run. Called while an exception is
/// handled; throws it on if it is one of them.
using RethrowForeign = void (*)();
void set_rethrow_foreign(RethrowForeign rethrow);
void rethrow_foreign();

}  // namespace thunder::compile
