#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>

#include "runtime/unboxed_call.h"
#include "runtime/unboxed_signature.h"

namespace thunder::runtime {
namespace {

using Bind = BoundFunction (*)(const Operands&, const Registers&);
using Table = std::unordered_map<c10::OperatorName, Bind>;

namespace ops = at::_ops;

/// `Operators` are PyTorch's own structures of an operator's name, signature and function that calls the dispatcher.
template <typename... Operators>
void add(Table& table) {
  (table.emplace(
       c10::OperatorName(Operators::name, Operators::overload_name),
       +[](const Operands& operands, const Registers& results) {
         return Unboxed<typename Operators::schema>::bind(&Operators::call, operands, results);
       }),
   ...);
}

/// Operators that models of today call, forward and backward; anything else is called boxed, which costs some 100 ns
/// more. Each new signature takes the compiler about 50 ms, an operator with a known one next to nothing.
Table make_table() {
  Table table;
  // elementwise
  add<ops::__and___Tensor, ops::__or___Tensor, ops::abs, ops::add_Scalar, ops::add_Tensor, ops::add__Scalar,
      ops::add__Tensor, ops::addcdiv, ops::addcdiv_, ops::addcmul, ops::addcmul_, ops::bitwise_and_Tensor,
      ops::bitwise_not, ops::bitwise_or_Tensor, ops::clamp, ops::clamp_Tensor, ops::clamp_max, ops::clamp_min,
      ops::copy_, ops::cos, ops::cosh, ops::div_Scalar, ops::div_Tensor, ops::div_Tensor_mode, ops::div__Scalar,
      ops::div__Tensor, ops::elu, ops::eq_Scalar, ops::eq_Tensor, ops::erf, ops::exp, ops::exp_, ops::expm1,
      ops::fill_Scalar, ops::fill_Tensor, ops::fill__Scalar, ops::floor, ops::floor_divide, ops::ge_Scalar,
      ops::ge_Tensor, ops::gelu, ops::gelu_backward, ops::gt_Scalar, ops::gt_Tensor, ops::hardswish,
      ops::hardswish_backward, ops::isnan, ops::le_Scalar, ops::le_Tensor, ops::leaky_relu, ops::leaky_relu_backward,
      ops::lerp_Scalar, ops::log, ops::log1p, ops::logical_and, ops::logical_not, ops::logical_or, ops::lt_Scalar,
      ops::lt_Tensor, ops::masked_fill_Scalar, ops::masked_fill_Tensor, ops::maximum, ops::minimum, ops::mul_Scalar,
      ops::mul_Tensor, ops::mul__Scalar, ops::mul__Tensor, ops::ne_Scalar, ops::ne_Tensor, ops::neg, ops::pow_Scalar,
      ops::pow_Tensor_Scalar, ops::pow_Tensor_Tensor, ops::reciprocal, ops::relu, ops::relu_, ops::remainder_Scalar,
      ops::rsqrt, ops::rsub_Scalar, ops::sigmoid, ops::sigmoid_, ops::sigmoid_backward, ops::sign, ops::silu,
      ops::silu_, ops::silu_backward, ops::sin, ops::softplus, ops::sqrt, ops::sub_Scalar, ops::sub_Tensor,
      ops::sub__Tensor, ops::tanh, ops::tanh_, ops::tanh_backward, ops::threshold_backward, ops::where_ScalarOther,
      ops::where_ScalarSelf, ops::where_self, ops::zero_>(table);
  // copies and creation
  add<ops::_to_copy, ops::arange, ops::arange_start, ops::arange_start_step, ops::bernoulli__float, ops::clone,
      ops::contiguous, ops::detach, ops::empty_like, ops::empty_memory_format, ops::full, ops::full_like,
      ops::lift_fresh, ops::native_dropout, ops::native_dropout_backward, ops::new_full, ops::new_ones, ops::new_zeros,
      ops::ones, ops::ones_like, ops::scalar_tensor, ops::to_device, ops::to_dtype, ops::to_other, ops::type_as,
      ops::zeros, ops::zeros_like>(table);
  // views and shapes
  add<ops::_unsafe_view, ops::alias, ops::as_strided, ops::as_strided_scatter, ops::chunk, ops::constant_pad_nd,
      ops::expand, ops::flatten_using_ints, ops::flip, ops::movedim_intlist, ops::narrow, ops::pad, ops::permute,
      ops::repeat, ops::repeat_interleave_self_int, ops::reshape, ops::roll, ops::select_backward, ops::select_int,
      ops::select_scatter, ops::slice_Tensor, ops::slice_backward, ops::slice_scatter, ops::split_Tensor,
      ops::split_with_sizes, ops::squeeze, ops::squeeze_dim, ops::squeeze_dims, ops::t, ops::transpose_int,
      ops::unbind_int, ops::unflatten_int, ops::unfold, ops::unsqueeze, ops::view, ops::view_as_complex,
      ops::view_as_real>(table);
  // reductions and scans
  add<ops::all, ops::amax, ops::any, ops::argmax, ops::cumsum, ops::logsumexp, ops::max, ops::max_dim, ops::mean,
      ops::mean_dim, ops::min, ops::min_dim, ops::prod, ops::sort, ops::sum, ops::sum_dim_IntList, ops::topk, ops::tril,
      ops::triu, ops::var_mean_correction>(table);
  // indexing and joining
  add<ops::_index_put_impl_, ops::cat, ops::embedding, ops::embedding_dense_backward, ops::gather, ops::index_Tensor,
      ops::index_add, ops::index_copy, ops::index_put, ops::index_put_, ops::index_select, ops::masked_scatter,
      ops::scatter_add, ops::scatter_src, ops::scatter_value, ops::stack>(table);
  // matrices, convolution, pooling, attention
  add<ops::_adaptive_avg_pool2d, ops::_adaptive_avg_pool2d_backward, ops::_scaled_dot_product_flash_attention_for_cpu,
      ops::_scaled_dot_product_flash_attention_for_cpu_backward, ops::addmm, ops::avg_pool2d, ops::avg_pool2d_backward,
      ops::baddbmm, ops::bmm, ops::conv1d, ops::conv2d, ops::convolution, ops::convolution_backward, ops::linear,
      ops::matmul, ops::max_pool2d_with_indices, ops::max_pool2d_with_indices_backward, ops::mm, ops::mv,
      ops::scaled_dot_product_attention, ops::upsample_bilinear2d, ops::upsample_nearest2d_vec>(table);
  // normalization, softmax, losses
  add<ops::_log_softmax, ops::_log_softmax_backward_data, ops::_safe_softmax, ops::_softmax,
      ops::_softmax_backward_data, ops::batch_norm, ops::cross_entropy_loss, ops::dropout, ops::group_norm,
      ops::layer_norm, ops::log_softmax_int, ops::mse_loss, ops::mse_loss_backward, ops::native_batch_norm,
      ops::native_batch_norm_backward, ops::native_group_norm, ops::native_group_norm_backward, ops::native_layer_norm,
      ops::native_layer_norm_backward, ops::nll_loss_backward, ops::nll_loss_forward, ops::rms_norm, ops::softmax_int>(
      table);
  return table;
}

}  // namespace

BoundFunction bind_unboxed(const c10::OperatorHandle& op, const std::vector<ResolvedOperand>& operands,
                           const std::vector<ResultRegisters>& results) {
  static const Table table = make_table();
  const auto found = table.find(op.operator_name());
  return found == table.end() ? BoundFunction{} : found->second(operands, results);
}

}  // namespace thunder::runtime
