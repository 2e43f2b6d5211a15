#include "tracer/kept_errors.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/location.h"
#include "ir/symbol_values.h"
#include "operators/elements.h"
#include "operators/facts.h"
#include "tracer/functional_form.h"
#include "tracer/operators.h"
#include "tracer/probe.h"
#include "tracer/recording_scopes.h"
#include "tracer/symbol_call.h"
#include "tracer/symbols.h"

namespace thunder::tracer {
namespace {

/// Most elements that operators are tried with which do not work element by element.
constexpr std::int64_t kMostTried = 1 << 16;

/// Zeros of such a type, for `is_refused_by_kernel`; undefined: these would be too many.
at::Tensor zeros_for(const ir::TensorType& type, bool is_pointwise) {
  std::vector<std::int64_t> sizes = bridge::hints(type.sizes);
  std::int64_t count = 1;
  for (std::int64_t& size : sizes) {
    if (is_pointwise) size = std::min<std::int64_t>(size, 1);
    count *= size;
    if (count > kMostTried) return {};
  }
  return at::empty(sizes, at::TensorOptions(bridge::to_torch(type.dtype)).device(bridge::to_torch(type.device)));
}

/// Whether a fusion may run it in the place of its kernel.
bool has_arithmetic(const ir::BoundSymbol& symbol) {
  using enum operators::ElementDomain;
  const operators::Elements* elements = operators::find_elements(*symbol.op);
  return elements != nullptr && elements->domain != kExpansion && elements->domain != kCopy &&
         elements->domain != kView;
}

/// Whether tensors of several floating-point dtypes meet in one of PyTorch's operations, which many kernels refuse and
/// few meta kernels do. A custom operator, a random draw and a collective cannot be tried; one that writes can, as the
/// tensors that it is tried with are made for that.
bool mixes_dtypes(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  const ir::Operator& op = *symbol.op;
  if (op.handle == nullptr || operators::may_draw(op) || operators::communicates(op) || is_custom(handle_of(op)))
    return false;
  std::optional<ir::Dtype> first;
  bool is_mixed = false;
  const auto look_at = [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    if (type == nullptr || !ir::is_floating_point(type->dtype)) return;
    is_mixed = is_mixed || (first && *first != type->dtype);
    first = type->dtype;
  };
  for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, look_at);
  return is_mixed;
}

std::string message_of(const std::exception& error) {
  const auto* of_pytorch = dynamic_cast<const c10::Error*>(&error);
  return of_pytorch == nullptr ? error.what() : of_pytorch->what_without_backtrace();
}

/// Throws UserError where the kernel raises an error for such constants and types of tensors, of which the meta kernel
/// knows nothing: `gcd` of floats, `gelu` with an unknown `approximate`.
void require_accepted_by_kernel(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  if (symbol.op->handle == nullptr || symbol.op->view) return;
  const c10::OperatorHandle& op = handle_of(*symbol.op);
  const bool is_pointwise = op.hasTag(at::Tag::pointwise) || has_arithmetic(symbol);
  bool is_tried = true;
  const auto value_of = [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    const at::Tensor zeros = type == nullptr ? at::Tensor() : zeros_for(*type, is_pointwise);
    is_tried = is_tried && zeros.defined();
    return c10::IValue(zeros);
  };
  const SuspendRecording suspended;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  try {
    const torch::jit::Stack arguments = arguments_of(symbol, op, make_writer(*trace.context(), value_of));
    if (is_tried) raise_as_kernel(op, arguments);
  } catch (const std::exception& error) {
    throw UserError(ErrorKind::kNotImplemented, std::string(symbol.op->name) +
                                                    ": its kernel raises an error for such arguments: " +
                                                    message_of(error) + ir::describe_line(symbol.location, "\n  in "));
  }
}

/// The first tensor among results; kNoValue: there is none.
ir::ValueId first_tensor(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  for (const ir::ValueId id : ir::flat_results(symbol)) {
    if (trace.tensor_type(id) != nullptr) return id;
  }
  return ir::kNoValue;
}

ir::BoundSymbol need(ir::ValueId value, const ir::SourceLocation& location) {
  ir::BoundSymbol symbol = need_symbol(value);
  symbol.location = location;
  symbol.comment = "it may raise an error";
  return symbol;
}

}  // namespace

void keep_errors(ir::Trace& trace) {
  std::vector<bool> needed(trace.value_count(), false);
  const auto add_needs = [&](const ir::ArgumentList& arguments) {
    for (const ir::Argument& argument : arguments) {
      ir::for_each_value(argument, [&](ir::ValueId id) { needed[ir::index_of(id)] = true; });
    }
  };
  const auto is_needed = [&](ir::ValueId id) { return id != ir::kNoValue && needed[ir::index_of(id)]; };
  add_needs(trace.outputs);
  std::vector<ir::ValueId> kept(trace.symbols.size(), ir::kNoValue);
  bool has_kept = false;
  for (std::size_t i = trace.symbols.size(); i-- > 0;) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    bool runs = symbol.op->mutates || symbol.op->effect || std::ranges::any_of(ir::flat_results(symbol), is_needed);
    if (!runs) {
      const ir::ValueId result = first_tensor(trace, symbol);
      runs = result != ir::kNoValue && operators::may_raise_for_data(trace, symbol);
      if (!runs && result != ir::kNoValue) require_accepted_by_kernel(trace, symbol);
      if (runs) kept[i] = result;
      has_kept |= runs;
    } else if (has_arithmetic(symbol) || mixes_dtypes(trace, symbol)) {
      require_accepted_by_kernel(trace, symbol);
    }
    if (runs) add_needs(symbol.arguments);
  }
  if (!has_kept) return;
  std::vector<ir::BoundSymbol> symbols = std::exchange(trace.symbols, {});
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const ir::SourceLocation location = symbols[i].location;
    trace.add(std::move(symbols[i]));
    if (kept[i] != ir::kNoValue) trace.add(need(kept[i], location));
  }
}

}  // namespace thunder::tracer
