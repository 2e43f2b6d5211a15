#include "interpreter/loop/context.h"

#include <utility>

#include "interpreter/loop/native_scope.h"

namespace thunder::interpreter {

thread_local Context* current_context = nullptr;

NativeFunctionScope::NativeFunctionScope(Treatment treatment) : saved_(current_context) {
  native_.outer = saved_->outer != nullptr ? saved_->outer : saved_;
  current_context = treatment == Treatment::kUnobserved ? nullptr : &native_;
}

NativeFunctionScope::~NativeFunctionScope() { current_context = saved_; }

NativeScope::NativeScope() : saved_(std::exchange(current_context, nullptr)) {}
NativeScope::~NativeScope() { current_context = static_cast<Context*>(saved_); }

}  // namespace thunder::interpreter
