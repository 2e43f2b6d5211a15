#include "tracer/custom_gradient.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <unordered_set>
#include <utility>

#include "bridge/convert.h"
#include "ir/builder.h"
#include "tracer/backward_graph.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

/// The values that `symbols` reads but does not make, in order, without `cotangent`.
std::vector<ir::ValueId> free_values(const std::vector<ir::BoundSymbol>& symbols, ir::ValueId cotangent) {
  std::unordered_set<std::uint32_t> known{index_of(cotangent)};
  std::vector<ir::ValueId> result;
  for (const ir::BoundSymbol& symbol : symbols) {
    for (const ir::Argument& argument : symbol.arguments) {
      ir::for_each_value(argument, [&](ir::ValueId id) {
        if (known.insert(index_of(id)).second) result.push_back(id);
      });
    }
    for (const ir::Argument& made : symbol.results) {
      ir::for_each_value(made, [&](ir::ValueId id) { known.insert(index_of(id)); });
    }
  }
  return result;
}

/// Takes the symbols from `begin` on out of the trace. Constants stay: the program may use them again.
std::vector<ir::BoundSymbol> cut(ir::Trace& trace, std::size_t begin) {
  const auto first = trace.symbols.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto middle = std::stable_partition(first, trace.symbols.end(), [](const ir::BoundSymbol& symbol) {
    return symbol.op == tensor_constant_operator();
  });
  std::vector<ir::BoundSymbol> symbols(std::make_move_iterator(middle), std::make_move_iterator(trace.symbols.end()));
  trace.symbols.erase(middle, trace.symbols.end());
  return symbols;
}

}  // namespace

const ir::Operator* custom_gradient_operator() {
  static const ir::Operator* const kRow = new ir::Operator(ir::parse_operator(
      "prims::custom_gradient(Tensor value, Tensor[] reads, object gradient) -> Tensor", ir::CallStyle::kPrimitive));
  return kRow;
}

const CustomGradient& custom_gradient_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto object = std::get<ir::ObjectConstant>(symbol.arguments.at(2).content);
  return *static_cast<const CustomGradient*>(trace.context()->objects.at(object.index).owner.get());
}

void Recorder::adopt_gradient(const at::Tensor& tensor) {
  const RecordTop recording(*this);
  TraceState& state = *trace_impl(tensor)->state();
  auto gradient = std::make_shared<CustomGradient>();
  const ir::ValueId value = state.value;
  ir::TensorType type = bridge::type_of(tensor);
  type.requires_grad = false;
  const at::Tensor cotangent = add_tensor(ir::make_type(std::move(type)), {}, /*is_input=*/false);
  gradient->cotangent = trace_impl(cotangent)->state()->value;
  const std::size_t begin = trace_.symbols.size();
  const std::vector<at::Tensor> leaves = leaves_behind(tensor);
  const std::vector<at::Tensor> gradients = walk_backward({&tensor, 1}, {&cotangent, 1}, leaves);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    gradient->inputs.push_back(value_of(leaves[i]));
    gradient->gradients.push_back(gradients[i].defined() ? value_of(gradients[i]) : ir::kNoValue);
  }
  gradient->symbols = cut(trace_, begin);
  gradient->reads = free_values(gradient->symbols, gradient->cotangent);

  // From here on the tensor is a leaf of ours: what follows is differentiated by the trace.
  tensor.unsafeGetTensorImpl()->set_autograd_meta(nullptr);
  tensor.set_requires_grad(true);
  state.value = add_custom_gradient(value, std::move(gradient));
}

ir::ValueId Recorder::with_gradient_of(ir::ValueId value, ir::ValueId owner) {
  auto gradient = std::make_shared<CustomGradient>();
  gradient->cotangent = trace_.add_value(trace_.value(value).type);
  gradient->inputs.push_back(owner);
  gradient->gradients.push_back(gradient->cotangent);
  return add_custom_gradient(value, std::move(gradient));
}

ir::ValueId Recorder::add_custom_gradient(ir::ValueId value, std::shared_ptr<CustomGradient> gradient) {
  ir::BoundSymbol symbol;
  symbol.op = custom_gradient_operator();
  ir::ArgumentList reads(gradient->reads.begin(), gradient->reads.end());
  reads.insert(reads.end(), gradient->inputs.begin(), gradient->inputs.end());
  symbol.arguments = {ir::Argument(value), ir::Argument(std::move(reads)),
                      ir::Argument(trace_.context()->add_object(std::move(gradient), "custom gradient"))};
  if (locate) symbol.location = locate();
  ir::TensorType type = *trace_.tensor_type(value);
  type.requires_grad = true;
  const ir::ValueId result = trace_.add_value(ir::make_type(std::move(type)));
  symbol.results.emplace_back(result);
  trace_.add(std::move(symbol));
  return result;
}

}  // namespace thunder::tracer
