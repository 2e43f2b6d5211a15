#include "interpreter/loop/context.h"

#include <utility>

#include "interpreter/loop/native_scope.h"

namespace thunder::interpreter {

thread_local Context* current_context = nullptr;

NativeScope::NativeScope() : saved_(std::exchange(current_context, nullptr)) {}
NativeScope::~NativeScope() { current_context = static_cast<Context*>(saved_); }

}  // namespace thunder::interpreter
