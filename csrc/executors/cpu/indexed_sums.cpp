#include "executors/cpu/indexed_sums.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "executors/cpu/plain_tensor.h"
#include "executors/cpu/threads.h"
#include "executors/tiles/kernels.h"

namespace thunder::executors::cpu {
namespace {

using Stack = std::vector<c10::IValue>;

/// Additions for which it is worth waking threads.
constexpr std::int64_t kParallelWork = 1 << 15;

/// Each thread has some rows of the sums, and goes over all of the index for what is added to them.
class IndexedSums {
 public:
  IndexedSums(const at::Tensor& sums, const at::Tensor& index, const at::Tensor& values)
      : compute_type_(sums.scalar_type() == at::kDouble ? ComputeType::kDouble : ComputeType::kFloat),
        rows_(sums.size(0)),
        row_(sums.numel() / rows_),
        sums_(static_cast<char*>(sums.data_ptr())),
        index_(index.const_data_ptr<std::int64_t>()),
        count_(index.numel()),
        values_(static_cast<const char*>(values.const_data_ptr())),
        stride_(values.stride(0)) {}

  void run() {
    const bool parallel = count_ * row_ >= kParallelWork;
    parts_ = parallel ? std::min<std::int64_t>(at::get_num_threads(), rows_) : 1;
    const auto add = [](void* self, std::int64_t i) { static_cast<const IndexedSums*>(self)->add_part(i); };
    run_tasks(parts_, parallel, add, this);
  }

 private:
  void add_part(std::int64_t part) const {
    const std::int64_t begin = rows_ * part / parts_;
    const std::int64_t end = rows_ * (part + 1) / parts_;
    const auto add_to = kernels().add_to;
    const std::int64_t size = size_of(compute_type_);
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t row = index_[i] < 0 ? index_[i] + rows_ : index_[i];
      if (row >= begin && row < end)
        add_to(compute_type_, sums_ + row * row_ * size, values_ + i * stride_ * size, row_);
    }
  }

  ComputeType compute_type_;
  std::int64_t rows_;
  std::int64_t row_;  ///< elements
  char* sums_;
  const std::int64_t* index_;
  std::int64_t count_;
  const char* values_;
  std::int64_t stride_;  ///< from a row of the values to the next one
  std::int64_t parts_ = 1;
};

/// Whether `values` are rows for those of `sums` that `index` names.
bool fits(const at::Tensor& sums, const at::Tensor& index, const at::Tensor& values) {
  const at::ScalarType dtype = sums.scalar_type();
  if (dtype != at::kFloat && dtype != at::kDouble) return false;
  const std::int64_t dims = sums.dim();
  if (dims == 0 || !is_plain(sums, dtype, dims) || !is_plain(values, dtype, dims) || !is_plain(index, at::kLong, 1)) {
    return false;
  }
  if (values.size(0) != index.numel() || values.sizes().slice(1) != sums.sizes().slice(1) || values.is_alias_of(sums))
    return false;
  if (!sums.is_contiguous() || !index.is_contiguous() || !values.select(0, 0).is_contiguous()) return false;
  const std::int64_t* numbers = index.const_data_ptr<std::int64_t>();
  const auto [least, most] = std::minmax_element(numbers, numbers + index.numel());
  return *least >= -sums.size(0) && *most < sums.size(0);  // PyTorch says what is wrong with others
}

bool put_index(Stack& stack, bool in_place) {
  constexpr std::size_t kArguments = 4;  // self, indices, values, accumulate
  const c10::IValue* arguments = stack.data() + stack.size() - kArguments;
  const auto indices = arguments[1].toOptionalTensorVector();
  if (!arguments[3].toBool() || indices.size() != 1 || !indices[0]) return false;
  at::Tensor sums = arguments[0].toTensor();
  const at::Tensor values = arguments[2].toTensor();
  if (!fits(sums, *indices[0], values)) return false;
  if (!in_place) sums = sums.clone();
  IndexedSums(sums, *indices[0], values).run();
  stack.resize(stack.size() - kArguments);
  stack.emplace_back(std::move(sums));
  return true;
}

}  // namespace

bool run_index_put(Stack& stack) { return put_index(stack, false); }
bool run_index_put_in_place(Stack& stack) { return put_index(stack, true); }

}  // namespace thunder::executors::cpu
