#include "tracer/custom_gradient.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/substitution.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"
#include "tracer/gradients_at_sizes.h"

namespace thunder::tracer {
std::vector<ir::ValueId> free_values(const CustomGradient& gradient) {
  std::unordered_set<std::uint32_t> known{index_of(ir::kNoValue)};
  for (const ir::ValueId cotangent : gradient.cotangents) known.insert(index_of(cotangent));
  std::vector<ir::ValueId> result;
  const auto use = [&](ir::ValueId id) {
    if (known.insert(index_of(id)).second) result.push_back(id);
  };
  for (const ir::BoundSymbol& symbol : gradient.symbols) {
    for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, use);
    for (const ir::Argument& made : symbol.results) {
      ir::for_each_value(made, [&](ir::ValueId id) { known.insert(index_of(id)); });
    }
  }
  std::ranges::for_each(gradient.gradients, use);
  return result;
}

const ir::Operator* custom_gradient_operator() {
  static const ir::Operator* const kRow = new ir::Operator(
      ir::parse_operator("prims::custom_gradient(Tensor[] values, Tensor[] reads, object gradient) -> Tensor[]",
                         ir::CallStyle::kPrimitive));
  return kRow;
}

std::optional<ir::Trace> without_custom_gradients(const ir::Trace& trace) {
  const auto is_custom = [](const ir::BoundSymbol& symbol) { return symbol.op == custom_gradient_operator(); };
  if (std::ranges::none_of(trace.symbols, is_custom)) return std::nullopt;
  ir::Trace result = trace.empty_copy("drop_custom_gradients");
  ir::Substitution values(trace.value_count());
  for (ir::BoundSymbol symbol : trace.symbols) {
    values.apply(symbol);
    if (!is_custom(symbol)) {
      result.add(std::move(symbol));
      continue;
    }
    for_each_handed_on(symbol, [&](ir::ValueId from, ir::ValueId to) { values.set(from, to); });
  }
  values.apply(result.outputs);
  return result;
}

namespace {

std::vector<std::size_t> places_of_gradients(const ir::Trace& trace) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) {
    if (trace.symbols[i].op == custom_gradient_operator()) places.push_back(i);
  }
  return places;
}

/// The operations of all custom gradients of a trace, in order, as a trace with its values.
ir::Trace operations_of_gradients(const ir::Trace& trace) {
  ir::Trace result = trace.empty_copy("custom_gradients");
  result.outputs.clear();
  for (const std::size_t place : places_of_gradients(trace)) {
    const std::vector<ir::BoundSymbol>& symbols = custom_gradient_of(trace.symbols[place], trace).symbols;
    result.symbols.insert(result.symbols.end(), symbols.begin(), symbols.end());
  }
  if (places_of_gradients(result).empty()) return result;
  throw UserError(ErrorKind::kNotImplemented,
                  "expected backwards without backwards of their own where sizes are symbols");
}

/// Gives the custom gradients of a trace these operations, as many to each as it has.
void set_operations(ir::Trace& trace, ir::Trace operations) {
  auto next = std::make_move_iterator(operations.symbols.begin());
  for (const std::size_t place : places_of_gradients(trace)) {
    auto gradient = std::make_shared<CustomGradient>(custom_gradient_of(trace.symbols[place], trace));
    const auto end = next + std::ssize(gradient->symbols);
    gradient->symbols.assign(next, end);
    next = end;
    trace.symbols[place].arguments.at(2) =
        ir::Argument(trace.context()->add_object(ir::ObjectKind::kCustomGradient, std::move(gradient)));
  }
}

bool have_equal_lengths(const ir::Trace& left, const ir::Trace& right) {
  return std::ranges::all_of(places_of_gradients(left), [&](std::size_t place) {
    return custom_gradient_of(left.symbols[place], left).symbols.size() ==
           custom_gradient_of(right.symbols[place], right).symbols.size();
  });
}

}  // namespace

ir::Trace at_sizes_with_gradients(const ir::Trace& trace, ir::SymbolValues symbols) {
  ir::Trace result = ir::at_sizes(trace, symbols);
  if (!places_of_gradients(trace).empty())
    set_operations(result, ir::at_sizes(operations_of_gradients(trace), symbols));
  return result;
}

ir::Trace generalize_with_gradients(std::span<const ir::Trace> traces, ir::SizeFit& fit,
                                    const ir::AreAlike& are_alike) {
  const ir::TraceContext& context = *traces[0].context();
  const auto is_gradient = [&](ir::ObjectConstant object) {
    return context.objects[object.index].kind == ir::ObjectKind::kCustomGradient;
  };
  ir::Trace result = ir::generalize(traces, fit, [&](ir::ObjectConstant left, ir::ObjectConstant right) {
    return (is_gradient(left) && is_gradient(right)) || are_alike(left, right);
  });
  if (places_of_gradients(result).empty()) return result;
  std::vector<ir::Trace> gradients;
  for (const ir::Trace& trace : traces) {
    if (!have_equal_lengths(traces[0], trace)) {
      throw UserError(ErrorKind::kNotImplemented, "expected the same backward at all sizes");
    }
    gradients.push_back(operations_of_gradients(trace));
  }
  set_operations(result, ir::generalize(gradients, fit, are_alike));
  return result;
}

std::vector<std::uint32_t> symbols_with_gradients(const ir::Trace& trace) {
  const std::vector<std::size_t> places = places_of_gradients(trace);
  if (places.empty()) return ir::symbols_of(trace);
  ir::Trace all = trace;
  for (const std::size_t place : places) {
    const std::vector<ir::BoundSymbol>& symbols = custom_gradient_of(trace.symbols[place], trace).symbols;
    all.symbols.insert(all.symbols.end(), symbols.begin(), symbols.end());
  }
  return ir::symbols_of(all);
}

ir::Trace trace_of_gradient(const CustomGradient& gradient, const ir::Trace& trace) {
  ir::Trace part = trace.empty_copy("custom_gradient");
  part.memory_of_inputs.clear();
  part.conditions.clear();
  std::unordered_set<std::uint32_t> known;
  for (const ir::ValueId id : part.inputs) known.insert(index_of(id));
  const auto add = [&](ir::ValueId id) {
    if (known.insert(index_of(id)).second) part.inputs.push_back(id);
  };
  for (const ir::BoundSymbol& symbol : trace.symbols) {  // their sizes may be symbols of the gradient
    for (const ir::ValueId id : ir::flat_results(symbol)) {
      if (const ir::TensorType* type = trace.tensor_type(id); type != nullptr && ir::has_symbols(*type)) add(id);
    }
  }
  for (const std::vector<ir::ValueId>* list : {&gradient.cotangents, &gradient.reads, &gradient.inputs}) {
    std::ranges::for_each(*list, add);
  }
  part.symbols = gradient.symbols;
  part.outputs.clear();
  for (const std::vector<ir::ValueId>* list :
       {&gradient.cotangents, &gradient.reads, &gradient.inputs, &gradient.gradients}) {
    ir::ArgumentList values;
    for (const ir::ValueId id : *list) values.push_back(id == ir::kNoValue ? ir::Argument() : ir::Argument(id));
    part.outputs.emplace_back(std::move(values));
  }
  return part;
}

CustomGradient gradient_of_trace(const ir::Trace& part) {
  constexpr const char* kNoGradient = "a trace is no gradient";
  CustomGradient gradient;
  gradient.symbols = part.symbols;
  const std::array lists{&gradient.cotangents, &gradient.reads, &gradient.inputs, &gradient.gradients};
  THUNDER_CHECK(part.outputs.size() == lists.size(), "tracer", kNoGradient);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const auto* values = part.outputs[i].get<ir::ArgumentList>();
    THUNDER_CHECK(values != nullptr, "tracer", kNoGradient);
    for (const ir::Argument& value : *values) {
      const auto* id = value.get<ir::ValueId>();
      lists[i]->push_back(id == nullptr ? ir::kNoValue : *id);
    }
  }
  const bool has_all = std::ranges::none_of(std::span(lists).first(3), [](const std::vector<ir::ValueId>* list) {
    return std::ranges::find(*list, ir::kNoValue) != list->end();
  });
  THUNDER_CHECK(has_all && gradient.inputs.size() == gradient.gradients.size(), "tracer", kNoGradient);
  return gradient;
}

const CustomGradient& custom_gradient_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto object = std::get<ir::ObjectConstant>(symbol.arguments.at(2).content);
  return *static_cast<const CustomGradient*>(trace.context()->owner_of(object, ir::ObjectKind::kCustomGradient).get());
}

}  // namespace thunder::tracer
