#include "tracer/views.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "tracer/memory_overlap.h"

namespace thunder::tracer {
namespace {

using Inverse = OperatorCall (*)(const ViewOf& view, const at::Tensor& source);

std::int64_t wrapped(std::int64_t dim, std::int64_t rank) {
  return dim < 0 ? dim + std::max<std::int64_t>(rank, 1) : dim;
}

/// For views that show every element once, in the same order.
OperatorCall by_shape(const ViewOf& view, const at::Tensor& source) {
  return {"aten::reshape", "", {source, view.parent.sizes().vec()}};
}

OperatorCall by_identity(const ViewOf&, const at::Tensor& source) { return {"aten::alias", "", {source}}; }

OperatorCall by_transpose(const ViewOf& view, const at::Tensor& source) {
  return {"aten::transpose", "int", {source, view.arguments[1], view.arguments[2]}};
}

OperatorCall by_t(const ViewOf&, const at::Tensor& source) { return {"aten::t", "", {source}}; }

OperatorCall by_permute(const ViewOf& view, const at::Tensor& source) {
  const auto dims = view.arguments[1].toIntVector();
  std::vector<std::int64_t> inverse(dims.size());
  const auto rank = static_cast<std::int64_t>(dims.size());
  for (std::int64_t i = 0; i < rank; ++i) inverse[wrapped(dims[i], rank)] = i;
  return {"aten::permute", "", {source, std::move(inverse)}};
}

OperatorCall by_select(const ViewOf& view, const at::Tensor& source) {
  return {"aten::select_scatter", "", {view.parent, source, view.arguments[1], view.arguments[2]}};
}

OperatorCall by_slice(const ViewOf& view, const at::Tensor& source) {
  const std::vector<c10::IValue>& given = view.arguments;
  // The batching rule of slice_scatter takes positions as they are.
  const std::int64_t size = view.parent.size(given[1].toInt());
  const auto position = [size](const c10::IValue& value, std::int64_t otherwise) {
    if (!value.isInt()) return otherwise;
    return std::clamp<std::int64_t>(value.toInt() < 0 ? value.toInt() + size : value.toInt(), 0, size);
  };
  const std::int64_t start = position(given[2], 0);
  const std::int64_t end = std::max(start, position(given[3], size));
  return {"aten::slice_scatter", "", {view.parent, source, given[1], start, end, given[4]}};
}

OperatorCall slice_at(const ViewOf& view, const at::Tensor& source, std::int64_t start, std::int64_t length,
                      const c10::IValue& dim) {
  return {"aten::slice_scatter", "", {view.parent, source, dim, start, start + length, std::int64_t{1}}};
}

OperatorCall by_split(const ViewOf& view, const at::Tensor& source) {
  const std::int64_t size = view.arguments[1].toInt();
  const std::int64_t dim = wrapped(view.arguments[2].toInt(), view.parent.dim());
  return slice_at(view, source, size * static_cast<std::int64_t>(view.result), source.size(dim), dim);
}

OperatorCall by_split_with_sizes(const ViewOf& view, const at::Tensor& source) {
  const auto sizes = view.arguments[1].toIntVector();
  std::int64_t start = 0;
  for (std::size_t i = 0; i < view.result; ++i) start += sizes[i];
  return slice_at(view, source, start, sizes[view.result], view.arguments[2]);
}

OperatorCall by_unbind(const ViewOf& view, const at::Tensor& source) {
  return {"aten::select_scatter", "", {view.parent, source, view.arguments[1], static_cast<std::int64_t>(view.result)}};
}

OperatorCall by_diagonal(const ViewOf& view, const at::Tensor& source) {
  const std::vector<c10::IValue>& given = view.arguments;
  return {"aten::diagonal_scatter", "", {view.parent, source, given[1], given[2], given[3]}, true};
}

OperatorCall by_as_strided(const ViewOf& view, const at::Tensor& source) {
  const std::vector<c10::IValue>& given = view.arguments;
  return {"aten::as_strided_scatter", "", {view.parent, source, given[1], given[2], given[3]}};
}

OperatorCall by_view_dtype(const ViewOf& view, const at::Tensor& source) {
  return {"aten::view", "dtype", {source, static_cast<std::int64_t>(view.parent.scalar_type())}};
}

OperatorCall by_conj(const ViewOf&, const at::Tensor& source) { return {"aten::_conj", "", {source}}; }
OperatorCall by_negative(const ViewOf&, const at::Tensor& source) { return {"aten::neg", "", {source}}; }

OperatorCall by_view_as_real(const ViewOf&, const at::Tensor& source) {
  return {"aten::view_as_complex", "", {source}};
}
OperatorCall by_view_as_complex(const ViewOf&, const at::Tensor& source) {
  return {"aten::view_as_real", "", {source}};
}

struct InverseView {
  const char* name;
  const char* overload;
  Inverse inverse;
};

constexpr InverseView kInverseViews[] = {
    {"aten::alias", "", by_identity},
    {"aten::detach", "", by_identity},
    {"aten::lift_fresh", "", by_identity},
    {"thunder::restride", "", by_identity},
    {"aten::view", "", by_shape},
    {"aten::_reshape_alias", "", by_shape},
    {"aten::_unsafe_view", "", by_shape},
    {"aten::expand", "", by_shape},
    {"aten::unsqueeze", "", by_shape},
    {"aten::squeeze", "", by_shape},
    {"aten::squeeze", "dim", by_shape},
    {"aten::squeeze", "dims", by_shape},
    {"aten::t", "", by_t},
    {"aten::transpose", "int", by_transpose},
    {"aten::permute", "", by_permute},
    {"aten::select", "int", by_select},
    {"aten::slice", "Tensor", by_slice},
    {"aten::split", "Tensor", by_split},
    {"aten::split_with_sizes", "", by_split_with_sizes},
    {"aten::unbind", "int", by_unbind},
    {"aten::diagonal", "", by_diagonal},
    {"aten::as_strided", "", by_as_strided},
    {"aten::view", "dtype", by_view_dtype},
    {"aten::_conj", "", by_conj},
    {"aten::_neg_view", "", by_negative},
    {"aten::view_as_real", "", by_view_as_real},
    {"aten::view_as_complex", "", by_view_as_complex},
};

/// Any view that lies in its parent's memory with the same dtype.
OperatorCall by_geometry(const ViewOf& view, const at::Tensor& shown, const at::Tensor& source) {
  const bool begins_alike = shown.storage_offset() == view.parent.storage_offset();
  const c10::IValue offset = begins_alike ? c10::IValue() : c10::IValue(shown.storage_offset());
  return {"aten::as_strided_scatter", "", {view.parent, source, shown.sizes().vec(), shown.strides().vec(), offset}};
}

}  // namespace

bool is_detached(const ViewOf& view) {
  const c10::OperatorName& name = view.op.operator_name();
  return name.name == "aten::detach" || (name.name == "aten::view" && name.overload_name == "dtype");
}

const ViewOf* autograd_view(const TraceState& state) {
  if (!state.view || state.view->is_turned) return nullptr;
  const std::string& name = state.view->op.operator_name().name;
  return name == "aten::_unsafe_view" || name == "aten::lift_fresh" ? nullptr : &*state.view;
}

bool requires_grad_by_memory(const TraceState& state) {
  const TraceState* view = &state;
  while (view->view && !is_detached(*view->view)) {
    if (view->view->parent.requires_grad()) return true;
    view = trace_impl(view->view->parent)->state().get();
  }
  return false;
}

bool is_hidden_leaf(const at::Tensor& tensor) {
  const TraceTensorImpl* impl = trace_impl(tensor);
  if (impl == nullptr || tensor.requires_grad() || !impl->state()->view) return false;
  // A write with gradients gives a view that was made with gradients the history of the write.
  TraceState& state = *impl->state();
  if (state.view->grad_mode && state.writes_seen != root_of(state).writes) return false;
  return requires_grad_by_memory(state);
}

bool is_known_to_autograd(const at::Tensor& view) {
  const TraceState* state = trace_impl(view)->state().get();
  for (; state->view && !is_detached(*state->view); state = trace_impl(state->view->parent)->state().get()) {
    if (autograd_view(*state) == nullptr) return false;
  }
  return true;
}

bool is_closed_to_writes(const TraceState& state) {
  for (const TraceState* view = &state; view->view && !is_detached(*view->view);
       view = trace_impl(view->view->parent)->state().get()) {
    const auto& returns = view->view->op.schema().returns();
    const bool has_several = returns.size() != 1 || returns[0].type()->kind() == c10::TypeKind::ListType;
    if (!view->view->is_turned && (has_several || !view->view->grad_mode || view->view->inference_mode)) return true;
  }
  return false;
}

std::optional<OperatorCall> write_through(const ViewOf& view, const at::Tensor& shown, const at::Tensor& source) {
  if (overlaps_itself(shown)) return std::nullopt;
  const c10::OperatorName& name = view.op.operator_name();
  for (const InverseView& row : kInverseViews) {
    if (name.name == row.name && name.overload_name == row.overload) return row.inverse(view, source);
  }
  const bool same_elements = view.parent.scalar_type() == shown.scalar_type() &&
                             view.parent.is_conj() == shown.is_conj() && view.parent.is_neg() == shown.is_neg();
  return same_elements ? std::make_optional(by_geometry(view, shown, source)) : std::nullopt;
}

bool to_real_parts(OperatorCall& call) {
  const std::string_view name = call.name;
  const std::int64_t rank = call.arguments[0].toTensor().dim();
  const auto from_the_front = [rank](c10::IValue& dim) { dim = dim.toInt() < 0 ? dim.toInt() + rank : dim.toInt(); };
  if (name == "aten::select_scatter" || name == "aten::slice_scatter") {
    from_the_front(call.arguments[2]);
  } else if (name == "aten::diagonal_scatter") {
    from_the_front(call.arguments[3]);
    from_the_front(call.arguments[4]);
  } else if (name == "aten::as_strided_scatter") {
    std::vector<std::int64_t> sizes = call.arguments[2].toIntVector();
    std::vector<std::int64_t> strides = call.arguments[3].toIntVector();
    for (std::int64_t& stride : strides) stride *= 2;
    sizes.push_back(2);
    strides.push_back(1);
    call.arguments[2] = std::move(sizes);
    call.arguments[3] = std::move(strides);
    if (call.arguments[4].isInt()) call.arguments[4] = call.arguments[4].toInt() * 2;
  } else {
    return false;
  }
  return true;
}

bool LazyView::is_part_of_conjugate(bool root_is_conjugate) const {
  return std::ranges::find(conjugates_of_parts, !root_is_conjugate) != conjugates_of_parts.end();
}

LazyView lazy_view(const at::Tensor& trace_tensor) {
  std::vector<const ViewOf*> views;
  LazyView result{trace_tensor};
  while (const auto& view = trace_impl(result.root)->state()->view) {
    views.push_back(&*view);
    result.root = at::Tensor(view->parent);
  }
  for (auto view = views.rbegin(); view != views.rend(); ++view) {
    const std::string& name = (*view)->op.operator_name().name;
    result.conjugates += name == "aten::_conj" ? 1 : 0;
    result.negatives += name == "aten::_neg_view" ? 1 : 0;
    if (name == "aten::view_as_real") result.conjugates_of_parts.push_back(result.conjugates % 2 == 1);
  }
  return result;
}

}  // namespace thunder::tracer
