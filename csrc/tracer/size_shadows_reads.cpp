#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "bridge/convert.h"
#include "tracer/map_tensors.h"
#include "tracer/size_shadows.h"

namespace thunder::tracer {

using c10::IValue;

std::optional<ir::Dims> SizeShadows::dims_of(const c10::TensorImpl& tensor) {
  if (!tells_sizes()) {
    const auto input = input_dims_.find(&tensor);
    return input == input_dims_.end() ? std::nullopt : std::optional(input->second);
  }
  const Inside inside(*this);
  ir::Dims dims;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    std::vector<std::int64_t> numbers{tensor.size(i)};
    for (const Shadow& shadow : shadows_) {
      const auto found = shadow.tensors.find(&tensor);
      if (found == shadow.tensors.end()) return pin_all(), std::nullopt;
      numbers.push_back(found->second.size(i));
    }
    const std::optional<ir::Dim> dim = fit_->find(numbers);
    if (!dim) return note_read(tensor), std::nullopt;
    dims.push_back(*dim);
  }
  fit_->add(ir::product_of(dims));  // sizes of what is flattened
  return dims;
}

namespace {

/// The dimensions of a tensor; the stride of one is then a product of two expressions that are known.
std::vector<std::int64_t> innermost_first(const c10::TensorImpl& tensor) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, {}, [&](std::int64_t dim) { return tensor.stride(dim); });
  return order;
}

}  // namespace

std::optional<ir::Dims> SizeShadows::strides_of(const c10::TensorImpl& tensor) {
  const Inside inside(*this);
  ir::Dims strides(static_cast<std::size_t>(tensor.dim()));
  for (const std::int64_t i : innermost_first(tensor)) {
    std::vector<std::int64_t> numbers{tensor.stride(i)};
    for (const Shadow& shadow : shadows_) {
      const auto found = shadow.tensors.find(&tensor);
      if (found == shadow.tensors.end()) return std::nullopt;
      numbers.push_back(found->second.stride(i));
    }
    const std::optional<ir::Dim> stride = fit_->find(numbers);
    if (!stride) return std::nullopt;
    strides[static_cast<std::size_t>(i)] = *stride;
  }
  return strides;
}

std::optional<ir::Dim> SizeShadows::size_at(const IValue& value, std::int64_t dim) {
  const TraceTensorImpl* impl = trace_impl(value.toTensor());
  if (impl == nullptr || !impl->is_watched()) {
    const Inside inside(*this);
    const bool is_there = dim < value.toTensor().dim() && dim >= -value.toTensor().dim();
    return is_there ? std::optional<ir::Dim>(value.toTensor().size(dim)) : std::nullopt;
  }
  const std::optional<ir::Dims> dims = dims_of(*impl);
  const auto rank = static_cast<std::int64_t>(dims ? dims->size() : 0);
  if (dim >= rank || dim < -rank) return std::nullopt;
  return (*dims)[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)];
}

std::optional<ir::TensorType> SizeShadows::general_type(const at::Tensor& tensor) {
  const TraceTensorImpl* impl = trace_impl(tensor);
  std::optional<at::Tensor> input;
  if (impl == nullptr) input = program_.tensors.find_input(tensor);
  if (input) impl = trace_impl(*input);
  if (impl == nullptr) return std::nullopt;
  ir::TensorType type = bridge::type_of(input ? *input : tensor);
  if (!impl->is_watched()) return type;
  std::optional<ir::Dims> sizes = dims_of(*impl);
  std::optional<ir::Dims> strides = sizes ? strides_of(*impl) : std::nullopt;
  if (!strides) return std::nullopt;
  type.sizes = *std::move(sizes);
  type.strides = *std::move(strides);
  return type;
}

c10::SymInt SizeShadows::as_size(const ir::Dim& dim) const {
  if (dim.is_concrete()) return dim.hint;
  return c10::SymInt(c10::SymNode(c10::make_intrusive<SizeNode>(scope_, dim)));
}

ir::Dim SizeShadows::dim_of_symbol(std::uint32_t index) {
  std::vector<std::int64_t> numbers;
  for (const std::vector<std::int64_t>& sample : fit_->samples()) numbers.push_back(sample[index]);
  const std::optional<ir::Dim> dim = tells_sizes() ? fit_->find(numbers) : std::nullopt;
  return dim && !dim->is_concrete() ? *dim : ir::Dim::symbol(index, symbols_[index].traced);
}

c10::SymInt SizeShadows::symbol(std::uint32_t index) { return as_size(dim_of_symbol(index)); }

/// Where a size is one, any stride will do.
bool SizeShadows::has_only_sizes_from_two_on(const c10::TensorImpl& tensor) {
  const Inside inside(*this);
  return std::ranges::all_of(tensor.sizes(), [](std::int64_t size) { return size >= 2; });
}

/// Brings what the program was `given` up to `dims`, and leaves it where it is that: the program may hold on to it.
void SizeShadows::give(const ir::Dims& dims, std::vector<c10::SymInt>& given) const {
  const auto is_given = [](const c10::SymInt& size, const ir::Dim& dim) {
    const SizeNode* node = size_node_of(size);
    return node != nullptr ? node->dim() == dim : !size.is_heap_allocated() && ir::Dim(size.as_int_unchecked()) == dim;
  };
  if (std::ranges::equal(given, dims, is_given)) return;
  given.clear();
  for (const ir::Dim& dim : dims) given.push_back(as_size(dim));
}

c10::SymIntArrayRef SizeShadows::sym_sizes(const c10::TensorImpl& tensor) {
  const std::optional<ir::Dims> dims = dims_of(tensor);
  if (!dims) note_numbers();
  const Inside inside(*this);
  if (!dims) return tensor.sym_sizes();
  give(*dims, sizes_[&tensor]);
  return sizes_[&tensor];
}

c10::SymIntArrayRef SizeShadows::sym_strides(const c10::TensorImpl& tensor) {
  std::optional<ir::Dims> strides;
  const bool are_told = tells_all_strides_ || has_only_sizes_from_two_on(tensor);
  if (tells_sizes() && dims_of(tensor) && are_told) strides = strides_of(tensor);
  if (!strides) note_read(tensor);
  const Inside inside(*this);
  if (!strides) return tensor.sym_strides();
  give(*strides, strides_[&tensor]);
  return strides_[&tensor];
}

c10::SymInt SizeShadows::sym_numel(const c10::TensorImpl& tensor) {
  const std::optional<ir::Dims> dims = dims_of(tensor);
  if (!dims) note_numbers();
  const Inside inside(*this);
  if (!dims) return tensor.numel();
  const ir::Dim count = ir::product_of(*dims);
  note_expression(count);
  return as_size(count);
}

c10::SymInt SizeShadows::sym_storage_offset(const c10::TensorImpl& tensor) {
  std::optional<ir::Dim> offset;
  if (tells_sizes()) {
    const Inside inside(*this);
    std::vector<std::int64_t> numbers{tensor.storage_offset()};
    for (const Shadow& shadow : shadows_) {
      const auto found = shadow.tensors.find(&tensor);
      if (found != shadow.tensors.end()) numbers.push_back(found->second.storage_offset());
    }
    if (numbers.size() == shadows_.size() + 1) offset = fit_->find(numbers);
  }
  if (!offset) note_read(tensor);
  const Inside inside(*this);
  return offset ? as_size(*offset) : c10::SymInt(tensor.storage_offset());
}

void SizeShadows::note_read(const c10::TensorImpl& tensor) {
  if (!tells_sizes()) note_numbers();
  if (gave_numbers_ && is_traced_again()) return;  // the next attempt knows whether this depends on symbols
  const Inside inside(*this);
  auto* const impl = const_cast<c10::TensorImpl*>(&tensor);
  const at::Tensor of_program(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(impl));
  bool follows_one = false;
  bool follows_several = false;
  for (const Shadow& shadow : shadows_) {
    const auto found = shadow.tensors.find(impl);
    if (found == shadow.tensors.end()) return pin_all();
    if (is_laid_out_alike(of_program, found->second)) continue;
    (pin_changed(shadow) ? follows_one : follows_several) = true;
  }
  if (follows_several && !follows_one) pin_all();
}

// A stride that is not what it would be without gaps decides.
bool SizeShadows::decide_contiguity(const c10::TensorImpl& tensor) {
  if (!tells_sizes()) return false;
  const std::optional<ir::Dims> sizes = dims_of(tensor);
  const std::optional<ir::Dims> strides = sizes ? strides_of(tensor) : std::nullopt;
  if (!strides) return false;
  std::vector<ir::Condition> conditions;
  ir::Dim expected = 1;
  for (std::size_t i = sizes->size(); i-- > 0;) {
    const ir::Dim& size = (*sizes)[i];
    if (size.hint == 0) return false;
    if (size.hint == 1) continue;
    const bool is_equal = (*strides)[i].hint == expected.hint;
    const auto comparison = is_equal ? SizeComparison::kEqual : SizeComparison::kNotEqual;
    Compared compared = compare_sizes((*strides)[i], comparison, expected);
    if (!is_equal) conditions.clear();
    std::ranges::move(compared.conditions, std::back_inserter(conditions));
    if (!is_equal) break;
    expected *= size;
  }
  for (const ir::Condition& condition : conditions) assume(condition);
  return true;
}

void SizeShadows::note_contiguity(const c10::TensorImpl& tensor, at::MemoryFormat format) {
  const auto is_known = [&] {
    const Inside inside(*this);
    const bool answer = tensor.is_contiguous(format);
    return std::ranges::all_of(shadows_, [&](const Shadow& shadow) {
      const auto found = shadow.tensors.find(&tensor);
      return !shadow.is_lost && found != shadow.tensors.end() && found->second.is_contiguous(format) == answer &&
             found->second.is_non_overlapping_and_dense();
    });
  };
  if (is_known() || (format == at::MemoryFormat::Contiguous && decide_contiguity(tensor))) return;
  note_read(tensor);
}

void SizeShadows::note_copy(const c10::TensorImpl& tensor, const at::Tensor& copy) {
  bool is_known = false;
  for (Shadow& shadow : shadows_) {
    const auto found = shadow.tensors.find(&tensor);
    if (found == shadow.tensors.end()) continue;
    is_known = true;
    const at::Tensor other = found->second;
    shadow.tensors.insert_or_assign(copy.unsafeGetTensorImpl(), other);
  }
  if (is_known) kept_.emplace_back(copy.getIntrusivePtr());
}

}  // namespace thunder::tracer
