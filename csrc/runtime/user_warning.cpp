#include "runtime/user_warning.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace thunder::runtime {
namespace {

std::atomic<WarnUser> installed_warning = nullptr;

}  // namespace

void warn_user(const std::string& text) {
  if (const WarnUser warn = installed_warning) return warn(text);
  TORCH_WARN(text);
}

void set_warn_user(WarnUser warn) { installed_warning = warn; }

}  // namespace thunder::runtime
