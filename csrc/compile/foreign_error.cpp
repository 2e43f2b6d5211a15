#include "compile/foreign_error.h"

#include <atomic>

namespace thunder::compile {
namespace {

std::atomic<RethrowForeign> installed = nullptr;

}  // namespace

void set_rethrow_foreign(RethrowForeign rethrow) { installed = rethrow; }

void rethrow_foreign() {
  if (const RethrowForeign rethrow = installed) rethrow();
}

}  // namespace thunder::compile
