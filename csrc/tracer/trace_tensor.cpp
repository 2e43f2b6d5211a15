#include "tracer/trace_tensor.h"

#include <c10/core/GradMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "bridge/convert.h"
#include "tracer/at_other_sizes.h"
#include "tracer/recording.h"
#include "tracer/size_reads.h"
#include "tracer/trace_session.h"

namespace thunder::tracer {
namespace {

constexpr const char* kDataWasRead =
    "a tensor's data was read while the program is traced (for example by .numpy() or .tolist()); move this out of the "
    "jitted function";

std::int64_t storage_bytes(const ir::TensorType& type) {
  std::int64_t last = type.storage_offset.hint;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i].hint == 0) return 0;
    last += (type.sizes[i].hint - 1) * type.strides[i].hint;
  }
  return (last + 1) * ir::size_of(type.dtype);
}

/// A storage without data whose data pointer cannot be read: whoever tries gets an exception instead of a crash.
c10::Storage make_storage(const ir::TensorType& type) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(storage_bytes(type)),
      at::DataPtr(nullptr, bridge::to_torch(type.device)), /*allocator=*/nullptr, /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(kDataWasRead);
  storage->set_throw_on_mutable_data_ptr();
  return c10::Storage(std::move(storage));
}

/// `Batched` never runs: every scope in which trace tensors are used excludes it. It makes them "tensor subclass like",
/// so that PyTorch's composites and derivative formulas take the branch that reads no data and writes nothing in place.
c10::DispatchKeySet key_set_for(const ir::TensorType& type) {
  const auto backend = c10::computeDispatchKey(std::nullopt, std::nullopt, bridge::to_torch(type.device));
  return c10::DispatchKeySet({backend, c10::DispatchKey::Fake, c10::DispatchKey::Batched});
}

/// A program is recorded, and runs no kernel of its own.
bool is_recording() {
  return TraceSession::current().top != nullptr &&
         c10::impl::tls_local_dispatch_key_set().included_.has(c10::DispatchKey::TESTING_ONLY_GenericMode);
}

const c10::OperatorHandle& detach_handle() {
  static const auto kHandle = c10::Dispatcher::singleton().findSchemaOrThrow("aten::detach", "");
  return kHandle;
}

}  // namespace

TraceTensorImpl::TraceTensorImpl(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                                 std::shared_ptr<TraceState> state)
    : TensorImpl(std::move(storage), keys, dtype), state_(std::move(state)) {
  if (state_->recorder == nullptr) return;
  registry_ = &state_->recorder->live;
  registry_->add(*this);
}

TraceTensorImpl::~TraceTensorImpl() {
  if (registry_ != nullptr) registry_->remove(*this);
}

void TraceTensorImpl::end() {
  registry_ = nullptr;
  is_living_ = false;
  if (state_ != nullptr) state_->recorder = nullptr;
  key_set_ = key_set_.remove(c10::DispatchKey::Batched);
}

void TraceTensorImpl::release() {
  state_->view.reset();
  // Not null: Python's garbage collector asks a leaf for its hooks as long as somebody keeps the node that adds to it.
  if (autograd_meta() != nullptr) set_autograd_meta(std::make_unique<torch::autograd::AutogradMeta>());
}

namespace {

/// Not by weak pointers only.
bool is_kept(TraceTensorImpl* impl) { return c10::raw::intrusive_ptr::use_count(impl) != 0; }

}  // namespace

LiveTensors::~LiveTensors() {
  std::vector<c10::intrusive_ptr<TraceTensorImpl>> kept;
  for (TraceTensorImpl* tensor : std::exchange(tensors_, {})) {
    tensor->end();
    if (is_kept(tensor)) kept.push_back(c10::intrusive_ptr<TraceTensorImpl>::reclaim_copy(tensor));
  }
  // They may keep one another in circles: a gradient whose history leads to the leaf that has it.
  for (const auto& tensor : kept) tensor->release();
}

void LiveTensors::add_kept(std::vector<WeakTensor>& tensors) const {
  for (TraceTensorImpl* impl : tensors_) {
    if (is_kept(impl)) tensors.emplace_back(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(impl));
  }
}

std::vector<at::Tensor> LiveTensors::with_node(const torch::autograd::Node* node) const {
  std::vector<at::Tensor> found;
  for (TraceTensorImpl* impl : tensors_) {
    const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
    if (!is_kept(impl) || meta == nullptr || meta->grad_fn_.get() != node) continue;
    found.emplace_back(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(impl));
  }
  return found;
}

std::vector<at::Tensor> LiveTensors::with_values(std::span<const ir::ValueId> values) const {
  std::vector<at::Tensor> found;
  for (TraceTensorImpl* impl : tensors_) {
    if (!is_kept(impl) || std::ranges::find(values, impl->state()->value) == values.end()) continue;
    found.emplace_back(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(impl));
  }
  return found;
}

void TraceTensorImpl::set_geometry(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::int64_t offset) {
  set_sizes_and_strides(sizes, strides);
  set_storage_offset(offset);
}

void TraceTensorImpl::note_copy(const c10::intrusive_ptr<TensorImpl>& copy) const {
  SizeReads* const reads = TraceSession::current().size_reads;
  if (reads != nullptr && reads->is_outside()) reads->note_copy(*this, at::Tensor(copy));
}

void TraceTensorImpl::note_read() const {
  SizeReads* const reads = TraceSession::current().size_reads;
  if (reads != nullptr && reads->is_outside()) reads->note_read(*this);
}

c10::IntArrayRef TraceTensorImpl::sizes_custom() const {
  note_read();
  return sizes_default();
}
c10::IntArrayRef TraceTensorImpl::strides_custom() const {
  note_read();
  return strides_default();
}
std::int64_t TraceTensorImpl::numel_custom() const {
  note_read();
  return numel_default();
}
std::int64_t TraceTensorImpl::storage_offset_custom() const {
  note_read();
  return storage_offset_default();
}
c10::SymIntArrayRef TraceTensorImpl::sym_sizes_custom() const {
  SizeReads* const reads = TraceSession::current().size_reads;
  return reads != nullptr && reads->is_outside() ? reads->sym_sizes(*this) : sym_sizes_default();
}
c10::SymIntArrayRef TraceTensorImpl::sym_strides_custom() const {
  SizeReads* const reads = TraceSession::current().size_reads;
  return reads != nullptr && reads->is_outside() ? reads->sym_strides(*this) : sym_strides_default();
}
c10::SymInt TraceTensorImpl::sym_numel_custom() const {
  SizeReads* const reads = TraceSession::current().size_reads;
  return reads != nullptr && reads->is_outside() ? reads->sym_numel(*this) : sym_numel_default();
}
c10::SymInt TraceTensorImpl::sym_storage_offset_custom() const {
  SizeReads* const reads = TraceSession::current().size_reads;
  return reads != nullptr && reads->is_outside() ? reads->sym_storage_offset(*this) : storage_offset_default();
}
c10::SymBool TraceTensorImpl::sym_is_contiguous_custom(at::MemoryFormat format) const {
  SizeReads* const reads = TraceSession::current().size_reads;
  if (reads != nullptr && reads->is_outside()) reads->note_contiguity(*this, format);
  return is_contiguous_default(format);
}
bool TraceTensorImpl::is_strides_like_custom(at::MemoryFormat format) const {
  note_read();
  return is_strides_like_default(format);
}
c10::SymBool TraceTensorImpl::sym_is_non_overlapping_and_dense_custom() const {
  if (is_contiguous_default(at::MemoryFormat::Contiguous)) {
    return sym_is_contiguous_custom(at::MemoryFormat::Contiguous);  // at all sizes at which it is, it is dense, too
  }
  note_read();
  return is_non_overlapping_and_dense_default();
}

template <typename Version>
c10::intrusive_ptr<c10::TensorImpl> TraceTensorImpl::copy_with(Version&& version_counter,
                                                               bool allow_tensor_metadata_change) const {
  auto copy = c10::make_intrusive<TraceTensorImpl>(storage(), key_set(), dtype(), state_);
  copy_tensor_metadata(this, copy.get(), std::forward<Version>(version_counter), allow_tensor_metadata_change);
  if (is_watched()) copy->watch_sizes();
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TraceTensorImpl::shallow_copy_and_detach(
    const c10::VariableVersion& version_counter, bool allow_tensor_metadata_change) const {
  auto copy = copy_with(version_counter, allow_tensor_metadata_change);
  note_copy(copy);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TraceTensorImpl::shallow_copy_and_detach(c10::VariableVersion&& version_counter,
                                                                             bool allow_tensor_metadata_change) const {
  auto copy = copy_with(std::move(version_counter), allow_tensor_metadata_change);
  // `.data` is the only caller that asks for this.
  if (!allow_tensor_metadata_change && is_recording()) {
    static_cast<TraceTensorImpl*>(copy.get())->state_ = data_state();
    auto* self = const_cast<TraceTensorImpl*>(this);
    follow_data_attribute(at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(self)), at::Tensor(copy));
  } else {
    note_copy(copy);
  }
  return copy;
}

std::shared_ptr<TraceState> TraceTensorImpl::data_state() const {
  auto state = std::make_shared<TraceState>();
  state->recorder = state_->recorder;
  state->value = state_->value;
  state->writes_seen = state_->view ? state_->writes_seen : state_->writes;
  auto* self = const_cast<TraceTensorImpl*>(this);
  const at::Tensor parent(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(self));
  state->view = ViewOf{.parent = parent, .op = detach_handle(), .arguments = {parent}, .is_data = true};
  state_->shown_by.push_back(state);
  return state;
}

bool TraceTensorImpl::shows_all_of(const TraceTensorImpl& shown) const {
  const bool has_same_geometry = sizes_default() == shown.sizes_default() &&
                                 strides_default() == shown.strides_default() &&
                                 storage_offset_default() == shown.storage_offset_default();
  const TraceTensorImpl* each = this;
  while (each != &shown && each != nullptr && each->state_->view && each->state_->view->op == detach_handle()) {
    each = trace_impl(each->state_->view->parent);
  }
  return each == &shown && has_same_geometry;
}

void TraceTensorImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) {
  const auto* shown = dynamic_cast<const TraceTensorImpl*>(impl.get());
  if (shown != nullptr && shown->shows_all_of(*this)) return;  // `p.data = p.data.to(device)`, where it is already
  if (is_recording()) {
    const char* message =
        "setting the .data of a tensor inside of a jitted function; write to it with copy_ under torch.no_grad()";
    note_refusal(message);  // the program may catch the error
    TORCH_CHECK_NOT_IMPLEMENTED(false, message);
  }
  TensorImpl::shallow_copy_from(impl);
  if (const auto* other = dynamic_cast<const TraceTensorImpl*>(impl.get())) state_ = other->state_;
}

at::Tensor make_trace_tensor(const ir::TensorType& type, std::shared_ptr<TraceState> state, c10::Storage storage) {
  if (!storage) storage = make_storage(type);
  auto impl = c10::make_intrusive<TraceTensorImpl>(
      std::move(storage), key_set_for(type), c10::scalarTypeToTypeMeta(bridge::to_torch(type.dtype)), std::move(state));
  impl->set_geometry(bridge::hints(type.sizes), bridge::hints(type.strides), type.storage_offset.hint);
  return at::Tensor(std::move(impl));
}

bool says_data_was_read(std::string_view message) { return message.find(kDataWasRead) != std::string_view::npos; }

TraceTensorImpl* trace_impl(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Fake)) return nullptr;
  return dynamic_cast<TraceTensorImpl*>(tensor.unsafeGetTensorImpl());
}

void require_living(std::span<const at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    const TraceTensorImpl* impl = trace_impl(tensor);
    TORCH_CHECK(
        impl == nullptr || impl->is_living(),
        "a tensor of a trace that has ended: it stood for what a jitted function computes, and has a shape and a "
        "dtype but no data. Look at it while the function is traced, or return it from the function");
  }
}

TraceState& root_of(TraceState& state) {
  TraceState* current = &state;
  while (current->view) current = trace_impl(current->view->parent)->state().get();
  return *current;
}

at::Tensor root_tensor_of(const at::Tensor& trace_tensor) {
  at::Tensor root = trace_tensor;
  while (trace_impl(root)->state()->view) root = at::Tensor(trace_impl(root)->state()->view->parent);
  return root;
}

bool is_written(const at::Tensor& trace_tensor) { return root_of(*trace_impl(trace_tensor)->state()).writes != 0; }

bool is_trace_tensor(const at::Tensor& tensor) { return trace_impl(tensor) != nullptr; }

}  // namespace thunder::tracer
