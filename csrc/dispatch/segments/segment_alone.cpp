#include "dispatch/segments/segment_alone.h"

#include <algorithm>
#include <utility>

#include "dispatch/python/backward_module.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/python_tensor.h"
#include "ir/symbol_values.h"
#include "runtime/versions.h"
#include "tracer/python_function.h"

namespace thunder::dispatch {
namespace {

std::vector<at::Tensor> give_history(const ir::BoundSymbol& symbol, const ir::Trace& segment,
                                     const std::vector<at::Tensor>& values) {
  const auto tensors_of = [&](const ir::Argument& list) {
    std::vector<at::Tensor> tensors;
    for (const ir::Argument& item : std::get<ir::ArgumentList>(list.content)) {
      const auto* id = item.get<ir::ValueId>();
      tensors.push_back(id == nullptr ? at::Tensor() : values[index_of(*id)]);
    }
    return tensors;
  };
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> saved = tensors_of(symbol.arguments[2]);
  for (const at::Tensor& value : tensors_of(symbol.arguments[0])) {
    results.push_back(runtime::shallow_alias(value));  // gets a history of its own
    std::ranges::replace_if(saved, [&](const at::Tensor& t) { return t.is_same(value); }, results.back());
  }
  const GilHold gil;
  const py::Ref run = python_backward_function("run");
  const py::Ref inputs = to_tuple(tensors_of(symbol.arguments[1]));
  const py::Ref made = to_tuple(results);
  const py::Ref kept = to_tuple(saved);
  auto* history = static_cast<PyObject*>(tracer::python_function_of(symbol, segment).history.get());
  const py::Ref given =
      checked(PyObject_CallFunctionObjArgs(run.get(), history, inputs.get(), made.get(), kept.get(), nullptr));
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i] = unpack_tensor(PyTuple_GET_ITEM(given.get(), static_cast<Py_ssize_t>(i)));
  }
  return results;
}

}  // namespace

std::vector<at::Tensor> run_alone(const ir::Trace& segment, std::span<const at::Tensor> inputs) {
  const ir::BoundSymbol& symbol = segment.symbols.at(0);
  std::vector<at::Tensor> values(segment.value_count());
  for (std::size_t i = 0; i < inputs.size(); ++i) values[index_of(segment.inputs[i])] = inputs[i];
  const std::vector<ir::ValueId> results = ir::flat_results(symbol);
  if (symbol.op == tracer::python_function_operator()) {
    std::vector<at::Tensor> made = give_history(symbol, segment, values);
    for (std::size_t i = 0; i < results.size(); ++i) values[index_of(results[i])] = std::move(made[i]);
  } else {
    const auto& given = std::get<ir::ArgumentList>(symbol.arguments[0].content);
    for (std::size_t i = 0; i < results.size(); ++i) {
      values[index_of(results[i])] = values[index_of(std::get<ir::ValueId>(given[i].content))];
    }
  }
  std::vector<at::Tensor> outputs;
  for (const ir::Argument& output : segment.outputs) {
    outputs.push_back(values[index_of(std::get<ir::ValueId>(output.content))]);
  }
  return outputs;
}

}  // namespace thunder::dispatch
