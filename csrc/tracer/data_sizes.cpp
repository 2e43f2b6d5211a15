#include "tracer/data_sizes.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace thunder::tracer {
namespace {

using c10::IValue;
using Shape = DataShapes::value_type;

const std::optional<std::int64_t> kFromData = std::nullopt;

/// Arguments by the names that the schema gives them.
class Call {
 public:
  Call(const c10::OperatorHandle& op, std::span<const IValue> arguments) : op_(op), arguments_(arguments) {}

  [[nodiscard]] const IValue* find(std::string_view name) const {
    const auto& parameters = op_.schema().arguments();
    const auto found = std::ranges::find(parameters, name, &c10::Argument::name);
    return found == parameters.end() ? nullptr : &arguments_[static_cast<std::size_t>(found - parameters.begin())];
  }
  [[nodiscard]] bool is_set(std::string_view name) const {
    const IValue* value = find(name);
    return value != nullptr && value->isBool() && value->toBool();
  }
  [[nodiscard]] Shape sizes() const {
    const auto sizes = arguments_[0].toTensor().sizes();
    return {sizes.begin(), sizes.end()};
  }
  /// The dimension that the call goes along; nullopt: it goes over all elements.
  [[nodiscard]] std::optional<std::size_t> dim() const {
    const IValue* value = find("dim");
    if (value == nullptr || !value->isInt()) return std::nullopt;
    const std::int64_t dim = value->toInt();
    return static_cast<std::size_t>(dim < 0 ? dim + arguments_[0].toTensor().dim() : dim);
  }

 private:
  const c10::OperatorHandle& op_;
  std::span<const IValue> arguments_;
};

DataShapes list_of_elements(const Call& /*call*/) { return {{kFromData}}; }

DataShapes no_elements(const Call& /*call*/) { return {{kFromData, 0}}; }

DataShapes positions(const Call& call) { return {{kFromData, static_cast<std::int64_t>(call.sizes().size())}}; }

DataShapes distinct_elements(const Call& call) {
  DataShapes shapes{{kFromData}};
  shapes.push_back(call.is_set("return_inverse") ? call.sizes() : Shape{0});
  if (call.find("return_counts") != nullptr) {
    shapes.push_back(call.is_set("return_counts") ? Shape{kFromData} : Shape{0});
  }
  return shapes;
}

DataShapes distinct_slices(const Call& call) {
  const std::optional<std::size_t> dim = call.dim();
  if (!dim) return distinct_elements(call);
  // The kernels give positions and counts whether they are asked for or not.
  Shape kept = call.sizes();
  const Shape inverse{kept.at(*dim)};
  kept.at(*dim) = kFromData;
  return {kept, inverse, {kFromData}};
}

DataShapes classes(const Call& call) {
  Shape shape = call.sizes();
  shape.push_back(kFromData);
  return {shape};
}

/// Losses, and the costs of paths through the longest of the targets.
DataShapes costs_of_paths(const Call& call) {
  const Shape steps = call.sizes();
  return {{steps.at(1)}, {steps.at(1), steps.at(0), kFromData}};
}

struct Row {
  std::string_view name;
  DataShapes (*shapes)(const Call& call);
};

constexpr Row kRows[] = {
    {"aten::_ctc_loss.Tensor", &costs_of_paths},
    {"aten::_unique", &distinct_elements},
    {"aten::_unique2", &distinct_elements},
    {"aten::argwhere", &positions},
    {"aten::bincount", &list_of_elements},
    {"aten::masked_select", &list_of_elements},
    {"aten::nonzero", &positions},
    {"aten::one_hot", &classes},
    {"aten::repeat_interleave.Tensor", &list_of_elements},
    {"aten::unique_consecutive", &distinct_slices},
    {"aten::unique_dim", &distinct_slices},
    {"aten::unique_dim_consecutive", &distinct_slices},
    {"thunder::sized_by", &no_elements},
};

template <typename Visit>
void for_each_result(const ResultTypes& types, const Visit& visit) {
  for (const ResultTypes::Result& result : types.results) {
    for (const ResultType& tensor : result.tensors) visit(tensor);
  }
}

}  // namespace

std::optional<DataShapes> data_shapes(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  std::string name = op.operator_name().name;
  if (!op.operator_name().overload_name.empty()) name += "." + op.operator_name().overload_name;
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  if (row == std::end(kRows)) return std::nullopt;
  return row->shapes(Call(op, arguments));
}

DataSized describe_data_sized(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                              const ResultTypes& types) {
  DataSized observed{op.operator_name().name, {}, types, {}};
  const std::optional<DataShapes> shapes = data_shapes(op, arguments);
  if (!shapes) return observed;
  std::size_t next = 0;
  bool is_as_told = true;
  for_each_result(types, [&](const ResultType& result) {
    const auto* type = result.type == nullptr ? nullptr : std::get_if<ir::TensorType>(&*result.type);
    const bool is_there = next < shapes->size() && type != nullptr && type->sizes.size() == (*shapes)[next].size();
    for (std::size_t i = 0; is_there && i < type->sizes.size(); ++i) {
      const std::optional<std::int64_t>& told = (*shapes)[next][i];
      if (!told) observed.sizes.push_back(type->sizes[i].hint);
      is_as_told = is_as_told && (!told || *told == type->sizes[i].hint);
    }
    is_as_told = is_as_told && is_there;
    ++next;
  });
  if (!is_as_told || next != shapes->size()) observed.sizes.clear();
  return observed;
}

}  // namespace thunder::tracer
