#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/trace.h"
#include "tracer/live_tensors.h"

namespace thunder::tracer {

class Recording;

/// How a trace tensor was derived from another one that shares its memory.
struct ViewOf {
  at::Tensor parent;
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  ///< arguments of the view operator; the parent is the first one
  std::size_t result = 0;              ///< which of the operator's results
  bool grad_mode = true;               ///< when it was made
  bool inference_mode = false;         ///< when it was made
  bool is_data = false;                ///< `.data`: its writes count in no version of the parent
  std::uint32_t writes_before = 0;     ///< to the memory, when it was made
  bool is_turned = false;              ///< `t_`, `squeeze_`: what was itself until then, and to the program still is
};

/// Which value a trace tensor stands for. Tensors over the same memory form a tree of views; a write to one of them
/// counts in the root, and the others get a new value when they are next read.
struct TraceState {
  Recording* recorder = nullptr;
  ir::ValueId value = ir::kNoValue;
  std::optional<ViewOf> view;
  std::vector<std::weak_ptr<TraceState>> shown_by;  ///< views of it, for when it becomes a view itself (`t_`)
  std::uint32_t writes = 0;                         ///< for a root: writes to the memory so far
  std::uint32_t writes_seen = 0;                    ///< the root's `writes` when `value` was right
  std::uint32_t hidden_writes = 0;                  ///< for a root: writes through `.data`
  std::uint32_t shared_writes = 0;  ///< for a root in which several inputs lie: writes through one of them
  const void* adopted = nullptr;    ///< the node of the program whose backward `value` has
};

/// A tensor with metadata and a (null) storage, but no data. Kernels never see it: `Fake` is in its key set, and the
/// fallback of that key handles every operation that gets below autograd.
class TraceTensorImpl final : public c10::TensorImpl {
 public:
  TraceTensorImpl(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                  std::shared_ptr<TraceState> state);

  [[nodiscard]] const std::shared_ptr<TraceState>& state() const { return state_; }
  void set_state(std::shared_ptr<TraceState> state) { state_ = std::move(state); }
  void set_geometry(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::int64_t offset);
  ~TraceTensorImpl() override;
  /// Its trace has ended: from now on every operation on it raises an error.
  void end();
  /// Lets go of the tensors that it leads to.
  void release();
  /// Whoever has a weak pointer keeps nothing of it.
  void release_resources() override {
    TensorImpl::release_resources();
    state_ = nullptr;
  }
  [[nodiscard]] bool is_living() const { return is_living_; }
  /// From now on reads of its sizes are noted (size_shadows.h).
  void watch_sizes() { set_custom_sizes_strides(SizesStridesPolicy::CustomSizes); }
  [[nodiscard]] bool is_watched() const { return matches_policy(SizesStridesPolicy::CustomSizes); }

  c10::IntArrayRef sizes_custom() const override;
  c10::IntArrayRef strides_custom() const override;
  std::int64_t numel_custom() const override;
  std::int64_t storage_offset_custom() const override;
  c10::SymIntArrayRef sym_sizes_custom() const override;
  c10::SymIntArrayRef sym_strides_custom() const override;
  c10::SymInt sym_numel_custom() const override;
  c10::SymInt sym_storage_offset_custom() const override;
  c10::SymBool sym_is_contiguous_custom(at::MemoryFormat format) const override;
  bool is_strides_like_custom(at::MemoryFormat format) const override;
  c10::SymBool sym_is_non_overlapping_and_dense_custom() const override;

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version_counter,
                                                         bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version_counter,
                                                         bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) override;

 private:
  const char* tensorimpl_type_name() const override { return "TraceTensor"; }
  void note_read() const;
  void note_copy(const c10::intrusive_ptr<TensorImpl>& copy) const;
  /// The state of `.data`: another tensor over this one's memory, with a version counter of its own.
  [[nodiscard]] std::shared_ptr<TraceState> data_state() const;
  /// Whether this is `shown`, or shows all of it as `.data` and `detach()` do.
  [[nodiscard]] bool shows_all_of(const TraceTensorImpl& shown) const;
  template <typename Version>
  c10::intrusive_ptr<TensorImpl> copy_with(Version&& version_counter, bool allow_tensor_metadata_change) const;

  std::shared_ptr<TraceState> state_;
  LiveTensors* registry_ = nullptr;
  bool is_living_ = true;
};

/// A trace tensor over fresh memory, or over `storage` when one is given.
[[nodiscard]] at::Tensor make_trace_tensor(const ir::TensorType& type, std::shared_ptr<TraceState> state,
                                           c10::Storage storage = {});
/// The state of the memory that a view shows in the end; of no view: its own.
[[nodiscard]] TraceState& root_of(TraceState& state);
/// The tensor whose memory `trace_tensor` shows; itself when it is no view.
[[nodiscard]] at::Tensor root_tensor_of(const at::Tensor& trace_tensor);
/// Whether something was written to the memory that it shows.
[[nodiscard]] bool is_written(const at::Tensor& trace_tensor);
/// Throws when the trace that one of them was made in has ended.
void require_living(std::span<const at::Tensor> tensors);
/// Whether `error` says that somebody read the data of a trace tensor.
[[nodiscard]] bool says_data_was_read(std::string_view message);
/// The implementation behind a trace tensor; null for any other tensor.
[[nodiscard]] TraceTensorImpl* trace_impl(const at::Tensor& tensor);
/// Whether a tensor is a trace tensor of any recorder.
[[nodiscard]] bool is_trace_tensor(const at::Tensor& tensor);

}  // namespace thunder::tracer
