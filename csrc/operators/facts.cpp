#include "operators/facts.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "ir/layout.h"
#include "ir/symbol_values.h"
#include "operators/elements.h"

namespace thunder::operators {
namespace {

using enum Fact;

struct Row {
  std::string_view name;  ///< with an overload (`default`: the one without a name), where others differ
  FactSet facts;
};

// Facts that the schema or the name's family tells are in `derived_facts`. PyTorch's tag `dynamic_output_shape` is no
// help for kShapeFollowsData: some of these lack it, and others have it whose shape is known.
constexpr Row kRows[] = {
    {"_c10d_functional::wait_tensor", kMayReturnArgument | kWaits},
    {"aten::_add_batch_dim", kWrapsTensors},
    {"aten::_convolution", kIsConvolution},
    {"aten::_ctc_loss", kRaisesForData},
    {"aten::_ctc_loss.Tensor", kShapeFollowsData},
    {"aten::_efficientzerotensor", kHasNoMemory},
    {"aten::_embedding_bag", kRaisesForData},
    {"aten::_embedding_bag_forward_only", kRaisesForData},
    {"aten::_fused_dropout", kDrawsRandomNumbers},
    {"aten::_fused_sdp_choice", kReadsMetadata},
    {"aten::_has_compatible_shallow_copy_type", kReadsMetadata},
    {"aten::_has_same_storage_numel", kReadsMetadata},
    {"aten::_index_put_impl", kMixesDevices},
    // These factorize the transposed matrix where that lies in order, and their derivatives go by the strides, too.
    {"aten::_linalg_det", kReadsStrides},
    {"aten::_linalg_slogdet", kReadsStrides},
    {"aten::_linalg_solve_ex", kReadsStrides},
    {"aten::_log_softmax", kIsCheap},
    {"aten::_make_dual", kWrapsTensors},
    {"aten::_native_batch_norm_legit.no_stats", kIsBatchNorm},
    {"aten::_native_batch_norm_legit_functional", kIsBatchNorm},
    {"aten::_new_zeros_with_same_feature_meta", kIsRecordedAsParts},
    {"aten::_remove_batch_dim", kWrapsTensors},
    {"aten::_sample_dirichlet", kDrawsRandomNumbers},
    {"aten::_scaled_dot_product_cudnn_attention_backward", kReadsFromMemory},
    {"aten::_scaled_dot_product_efficient_attention_backward", kReadsFromMemory},
    {"aten::_scaled_dot_product_flash_attention_backward", kReadsFromMemory},
    {"aten::_softmax", kIsCheap},
    {"aten::_standard_gamma", kDrawsRandomNumbers},
    {"aten::_to_copy", kMixesDevices},
    {"aten::_trilinear", kCastsInside},
    {"aten::_unique", kShapeFollowsData},
    {"aten::_unique2", kShapeFollowsData},
    {"aten::_unpack_dual", kWrapsTensors},
    {"aten::_unsafe_view", kMayReturnArgument | kIsUnsafeView},
    {"aten::_version", kAsksAboutTensor},
    // PyTorch's formulas see to order by `contiguous()`, which is recorded as nothing for what is recorded as
    // contiguous; a kernel before may have laid it out otherwise.
    {"aten::_weight_norm_interface", kReadsInOrder},
    {"aten::_weight_norm_interface_backward", kReadsInOrder},
    {"aten::add", kWrapsNumbers},
    {"aten::alpha_dropout", kDrawsRandomNumbers},
    {"aten::amax", kIsCheap},
    {"aten::amin", kIsCheap},
    {"aten::arange", kIsCheap | kKeepsShapeOfOut},
    {"aten::argwhere", kShapeFollowsData},
    {"aten::as_strided_", kTurns},
    {"aten::bernoulli", kDrawsRandomNumbers},
    {"aten::bernoulli.default", kRaisesForData},
    {"aten::bernoulli_", kOverwrites},
    {"aten::bilinear", kCastsInside},
    {"aten::binary_cross_entropy", kRaisesForData},
    {"aten::bincount", kShapeFollowsData},
    {"aten::binomial", kDrawsRandomNumbers | kRaisesForData},
    {"aten::cat", kIsCheap},
    {"aten::cholesky", kRaisesForData},
    {"aten::cholesky_inverse", kRaisesForData},
    {"aten::cholesky_solve", kRaisesForData},
    {"aten::clone", kIsCheap},
    {"aten::conj_physical", kMayReturnArgument},
    {"aten::constant_pad_nd", kIsCheap},
    {"aten::conv2d", kIsConvolution},
    {"aten::convolution", kIsConvolution},
    {"aten::convolution_backward", kReadsFromMemory},
    {"aten::copy", kMixesDevices},
    {"aten::copy_", kCopies | kMixesDevices},
    {"aten::cross_entropy_loss", kRaisesForData | kChoosesByIndex},
    {"aten::ctc_loss", kRaisesForData},
    {"aten::cumsum", kIsCheap},
    {"aten::dense_dim", kReadsMetadata},
    {"aten::detach", kDetaches},
    {"aten::detach_", kDetaches},
    {"aten::div", kRaisesForZero | kWrapsNumbers},
    {"aten::divide", kRaisesForZero | kWrapsNumbers},
    {"aten::dropout", kDrawsRandomNumbers},
    {"aten::elu", kIsCheap},
    {"aten::embedding", kIsCheap | kRaisesForData | kChoosesByIndex},
    {"aten::embedding_bag", kRaisesForData},
    {"aten::empty", kIsUninitialized},
    {"aten::empty_like", kIsUninitialized},
    {"aten::empty_permuted", kIsUninitialized},
    {"aten::empty_quantized", kIsUninitialized},
    {"aten::empty_strided", kIsUninitialized},
    {"aten::eq", kTestsEquality},
    {"aten::feature_alpha_dropout", kDrawsRandomNumbers},
    {"aten::feature_dropout", kDrawsRandomNumbers},
    {"aten::fft_fftfreq", kKeepsShapeOfOut},
    {"aten::fft_ifft", kMayConjugate},
    {"aten::fft_ihfft", kMayConjugate},
    {"aten::fft_ihfft2", kMayConjugate},
    {"aten::fft_ihfftn", kMayConjugate},
    {"aten::fft_rfftfreq", kKeepsShapeOfOut},
    {"aten::flip", kIsCheap},
    {"aten::floor_divide", kRaisesForZero | kWrapsNumbers},
    {"aten::fmod", kRaisesForZero},
    {"aten::full", kIsCheap},
    {"aten::gather", kIsCheap | kRaisesForData | kChoosesByIndex},
    {"aten::gru", kDrawsRandomNumbers},
    {"aten::hardsigmoid", kIsCheap},
    {"aten::hardswish", kIsCheap},
    {"aten::hardtanh", kIsCheap},
    {"aten::histc", kRaisesForData},
    {"aten::index", kIsCheap | kRaisesForData | kShapeFollowsData | kMixesDevices},
    {"aten::index_add", kRaisesForData | kChoosesByIndex},
    {"aten::index_copy", kRaisesForData | kChoosesByIndex},
    {"aten::index_fill", kRaisesForData},
    {"aten::index_put", kRaisesForData | kMixesDevices},
    {"aten::index_put_", kMixesDevices},
    {"aten::index_reduce", kRaisesForData},
    {"aten::index_select", kIsCheap | kRaisesForData | kChoosesByIndex},
    {"aten::inverse", kRaisesForData},
    {"aten::is_conj", kAsksAboutTensor},
    {"aten::is_inference", kAsksAboutTensor},
    {"aten::is_leaf", kAsksAboutTensor},
    {"aten::is_neg", kAsksAboutTensor},
    {"aten::is_nonzero", kReadsData},
    {"aten::is_same_size", kReadsMetadata},
    {"aten::is_set_to", kAsksAboutTensor | kReadsMetadata},
    {"aten::isinf", kIsCheap},
    {"aten::isnan", kIsCheap},
    {"aten::lift", kMayReturnArgument},
    {"aten::linalg_lu_solve", kMayConjugate},
    {"aten::linalg_pinv", kCastsInside},
    {"aten::linear_cross_entropy", kRaisesForData},
    {"aten::linspace", kKeepsShapeOfOut},
    {"aten::linspace.Scalar_Tensor", kRaisesForData},
    {"aten::linspace.Tensor_Scalar", kRaisesForData},
    {"aten::linspace.Tensor_Tensor", kRaisesForData},
    {"aten::logspace", kKeepsShapeOfOut},
    {"aten::logspace.Scalar_Tensor", kRaisesForData},
    {"aten::logspace.Tensor_Scalar", kRaisesForData},
    {"aten::logspace.Tensor_Tensor", kRaisesForData},
    {"aten::logsumexp", kIsCheap},
    {"aten::lstm", kDrawsRandomNumbers},
    {"aten::lu_unpack", kRaisesForData},
    {"aten::masked_scatter", kRaisesForData},
    {"aten::masked_select", kShapeFollowsData},
    {"aten::matrix_power", kRaisesForData},
    {"aten::max_unpool2d", kRaisesForData},
    {"aten::max_unpool3d", kRaisesForData},
    {"aten::mean", kIsCheap},
    {"aten::mish", kIsCheap},
    {"aten::mkldnn_rnn_layer", kReadsGradMode},
    {"aten::mul", kWrapsNumbers},
    {"aten::multi_margin_loss", kRaisesForData},
    {"aten::multilabel_margin_loss", kRaisesForData},
    {"aten::multilabel_margin_loss_forward", kRaisesForData},
    {"aten::multinomial", kDrawsRandomNumbers | kRaisesForData},
    {"aten::multiply", kWrapsNumbers},
    {"aten::native_batch_norm", kIsBatchNorm},
    {"aten::native_dropout", kDrawsRandomNumbers | kMayReturnArgument},
    {"aten::native_group_norm", kReadsInOrder},
    {"aten::native_group_norm_backward", kReadsInOrder},
    {"aten::native_layer_norm", kIsCheap},
    {"aten::ne", kTestsEquality},
    {"aten::new_empty", kIsUninitialized},
    {"aten::new_empty_strided", kIsUninitialized},
    {"aten::new_full", kIsCheap},
    {"aten::new_ones", kIsCheap},
    {"aten::new_zeros", kIsCheap},
    {"aten::nll_loss", kRaisesForData | kChoosesByIndex},
    {"aten::nll_loss2d", kRaisesForData | kChoosesByIndex},
    {"aten::nll_loss2d_forward", kRaisesForData | kChoosesByIndex},
    {"aten::nll_loss_forward", kRaisesForData | kChoosesByIndex},
    {"aten::nll_loss_nd", kRaisesForData | kChoosesByIndex},
    {"aten::nonzero", kShapeFollowsData},
    {"aten::nonzero_numpy", kShapeFollowsData},
    {"aten::normal", kDrawsRandomNumbers},
    {"aten::normal.Tensor_Tensor", kRaisesForData},
    {"aten::normal.float_Tensor", kRaisesForData},
    {"aten::one_hot", kRaisesForData | kShapeFollowsData},
    {"aten::ones", kIsCheap},
    {"aten::orgqr", kRaisesForData},
    {"aten::ormqr", kRaisesForData},
    {"aten::output_nr", kAsksAboutTensor},
    {"aten::permute", kIsCheap},
    {"aten::pinverse", kRaisesForData},
    {"aten::poisson", kDrawsRandomNumbers | kRaisesForData},
    {"aten::pow", kRaisesForNegative},
    {"aten::put", kRaisesForData},
    {"aten::rand", kDrawsRandomNumbers},
    {"aten::rand_like", kDrawsRandomNumbers},
    {"aten::randint", kDrawsRandomNumbers},
    {"aten::randint_like", kDrawsRandomNumbers},
    {"aten::randn", kDrawsRandomNumbers},
    {"aten::randn_like", kDrawsRandomNumbers},
    {"aten::randperm", kDrawsRandomNumbers},
    {"aten::range", kKeepsShapeOfOut},
    {"aten::remainder", kIsCheap | kRaisesForZero},
    {"aten::repeat", kIsCheap},
    {"aten::repeat_interleave", kRaisesForData},
    {"aten::repeat_interleave.Tensor", kShapeFollowsData},
    {"aten::repeat_interleave.self_Tensor", kShapeFollowsData},
    {"aten::resize.default", kResizes},
    {"aten::resize_", kResizes},
    {"aten::resolve_conj", kResolvesConjugate},
    {"aten::resolve_neg", kResolvesNegative},
    {"aten::retains_grad", kAsksAboutTensor},
    {"aten::rnn_relu", kDrawsRandomNumbers},
    {"aten::rnn_tanh", kDrawsRandomNumbers},
    {"aten::roll", kIsCheap},
    {"aten::rrelu", kDrawsRandomNumbers},
    {"aten::scalar_tensor", kIsCheap},
    {"aten::scaled_dot_product_attention", kDrawsRandomNumbers | kIsAttention},
    {"aten::scatter", kRaisesForData | kChoosesByIndex},
    {"aten::scatter_add", kRaisesForData | kChoosesByIndex},
    {"aten::scatter_reduce", kRaisesForData | kChoosesByIndex},
    {"aten::searchsorted", kRaisesForData},
    {"aten::segment_reduce", kRaisesForData},
    {"aten::set_", kReplacesStorage},
    {"aten::softplus", kIsCheap},
    {"aten::sparse_dim", kReadsMetadata},
    {"aten::stack", kIsCheap},
    {"aten::storage_offset", kAsksAboutTensor},
    {"aten::sub", kWrapsNumbers},
    {"aten::subtract", kWrapsNumbers},
    {"aten::sum", kIsCheap},
    {"aten::svd", kRaisesForData | kMayConjugate},
    {"aten::sym_storage_offset", kAsksAboutTensor},
    {"aten::take", kRaisesForData | kChoosesByIndex},
    {"aten::take_along_dim", kRaisesForData | kChoosesByIndex},
    {"aten::tan", kIsCheap},
    {"aten::triangular_solve", kRaisesForData},
    {"aten::tril", kIsCheap},
    {"aten::triu", kIsCheap},
    {"aten::true_divide", kWrapsNumbers},
    {"aten::unique_consecutive", kShapeFollowsData},
    {"aten::unique_dim", kShapeFollowsData},
    {"aten::unique_dim_consecutive", kShapeFollowsData},
    {"aten::unsafe_chunk", kMayReturnArgument},
    {"aten::unsafe_split", kMayReturnArgument},
    {"aten::unsafe_split_with_sizes", kMayReturnArgument},
    {"aten::vdot", kMayConjugate},
    {"aten::view", kRaisesForStrides},
    {"aten::view_as_real", kNeedsResolvedConjugate},
    {"aten::where.default", kShapeFollowsData},
    {"aten::zero_", kOverwrites},
    {"aten::zeros", kIsCheap},
    {"c10d_functional::wait_tensor", kMayReturnArgument | kWaits},
    {"thunder::dropout_mask", kIsCheap},
    {"thunder::dropout_state", kDrawsRandomNumbers},
    {"thunder::gather_parts", kOrdered},
    {"thunder::gather_shards.default", kIsCheap},
    {"thunder::gather_summing", kOrdered},
    {"thunder::grouped_attention", kCallsPyTorch},
    {"thunder::make_generator", kDrawsRandomNumbers},
    {"thunder::manual_seed", kDrawsRandomNumbers},
    {"thunder::native_dropout_with_state", kDrawsRandomNumbers},
    {"thunder::restride", kCallsPyTorch},
    {"thunder::scatter_sum", kOrdered},
    {"thunder::sized_by", kShapeFollowsData | kWrapsNumbers},
    {"thunder::sum_over_processes", kOrdered},
};
static_assert(std::ranges::is_sorted(kRows, {}, &Row::name));

struct OutRow {
  std::string_view name;
  const char* overload;
  std::size_t candidates;
};
/// Only where there is no in-place overload.
constexpr OutRow kOutRows[] = {
    {"aten::gelu_backward", "grad_input", 2},      {"aten::silu_backward", "grad_input", 2},
    {"aten::threshold_backward", "grad_input", 2}, {"aten::sigmoid_backward", "grad_input", 2},
    {"aten::tanh_backward", "grad_input", 2},      {"aten::leaky_relu_backward", "grad_input", 2},
    {"aten::hardtanh_backward", "grad_input", 2},  {"aten::softplus_backward", "grad_input", 2},
    {"aten::_softmax_backward_data", "out", 1},    {"aten::_log_softmax_backward_data", "out", 1},
};

struct CopyingRow {
  std::string_view name;
  const char* copying;
};
constexpr CopyingRow kCopyingRows[] = {{"aten::_conj", "aten::_conj_physical"},
                                       {"aten::_neg_view", "aten::neg"},
                                       {"aten::_reshape_alias", "aten::reshape"},
                                       {"aten::view", "aten::reshape"}};

struct MatmulRow {
  std::string_view name;
  Matmul matmul;
};
constexpr MatmulRow kMatmuls[] = {
    {"aten::addmm", {.left = 1, .right = 2, .bias = 0, .factors = 3}},
    {"aten::baddbmm", {.left = 1, .right = 2, .bias = 0, .factors = 3, .is_batched = true}},
    {"aten::bmm", {.is_batched = true}},
    {"aten::linear", {.bias = 2, .takes_transposed = true}},
    {"aten::matmul", {}},
    {"aten::mm", {}},
};

FactSet written_facts(std::string_view name) {
  const auto row = std::ranges::lower_bound(kRows, name, {}, &Row::name);
  return row != std::end(kRows) && row->name == name ? row->facts : FactSet();
}

bool has_parameter(const ir::Operator& op, std::string_view name) {
  return std::ranges::any_of(op.parameters, [&](const ir::SchemaValue& value) { return value.name == name; });
}

/// The facts of an operator by which processes talk to each other; none for other operators.
FactSet facts_of_collective(const ir::Operator& op) {
  const std::string_view name = op.name;
  const bool is_functional = name.starts_with("_c10d_functional") || name.starts_with("c10d_functional");
  if (!is_functional && !name.starts_with("c10d::") && !name.starts_with("symm_mem::")) return {};
  if (!is_functional) return kOrdered;
  return written_facts(name).has(kWaits) ? FactSet() : kOrdered | kAsynchronous;
}

FactSet derived_facts(const ir::Operator& op) {
  const std::string_view name = op.name;
  FactSet facts = facts_of_collective(op);
  if (is_elementwise(name)) facts = facts | kIsCheap;
  if (name.starts_with("aten::linalg_") || name.starts_with("aten::_linalg_")) {
    facts = facts | kRaisesForData | kOtherStrides;
  }
  if (name.starts_with("aten::_foreach_")) facts = facts | kIsRecordedAsParts;
  if (op.mutates) return facts;
  if (has_parameter(op, "stride") && has_parameter(op, "storage_offset")) facts = facts | kReadsStrides;
  if (has_parameter(op, "indices") && has_parameter(op, "accumulate")) facts = facts | kWritesToIndices;
  return facts;
}

/// Set in the bits that an operator keeps once they are known.
constexpr std::uint64_t kKnown = std::uint64_t{1} << 63U;

FactSet find_facts(const ir::Operator& op) {
  const std::string overload = op.name + "." + (op.overload.empty() ? "default" : op.overload);
  return written_facts(op.name) | written_facts(overload) | derived_facts(op);
}

/// The row of an operator's only overload without a name.
template <typename Rows>
auto find_row(const Rows& rows, const ir::Operator& op) {
  const auto row = std::ranges::find_if(rows, [&](const auto& each) { return each.name == op.name; });
  return row != std::end(rows) && op.overload.empty() ? &*row : nullptr;
}

bool is_in_place_form(const ir::Operator& op, const ir::Operator& candidate) {
  if (candidate.parameters.size() != op.parameters.size() || candidate.results.size() != 1 || candidate.view)
    return false;
  for (std::size_t i = 0; i < op.parameters.size(); ++i) {
    if (candidate.parameters[i].type != op.parameters[i].type || candidate.parameters[i].mutated != (i == 0))
      return false;
  }
  return true;
}

/// Whether a view with strides of its own shows nothing but elements of the tensor that it is made of.
bool stays_inside(const ir::Trace& trace, const ir::BoundSymbol& view) {
  const std::vector<ir::ValueId> results = ir::flat_results(view);
  const ir::TensorType* given = view.arguments.empty() ? nullptr : trace.tensor_type(view.arguments[0]);
  const ir::TensorType* shown = results.size() != 1 ? nullptr : trace.tensor_type(results[0]);
  if (given == nullptr || shown == nullptr || ir::has_symbols(*given) || ir::has_symbols(*shown)) return false;
  if (!ir::is_dense(*given) || given->dtype != shown->dtype || given->storage_offset != shown->storage_offset)
    return false;
  std::int64_t last = 0;
  for (std::size_t dim = 0; dim < shown->sizes.size(); ++dim) {
    last += (shown->sizes[dim].hint - 1) * shown->strides[dim].hint;
  }
  return last < ir::element_count(*given);
}

}  // namespace

FactSet facts_of(const ir::Operator& op) {
  const std::atomic_ref<std::uint64_t> kept(op.facts);
  std::uint64_t bits = kept.load(std::memory_order_relaxed);
  if ((bits & kKnown) == 0) kept.store(bits |= kKnown | find_facts(op).bits(), std::memory_order_relaxed);
  return FactSet(bits);
}

void add_facts(ir::Operator& op, FactSet facts) { op.facts |= facts.bits(); }

void note_declared(const ir::Operator& op) { op.facts = facts_of(op).bits() & ~FactSet(kIsUnknown).bits(); }

bool may_raise_for_data(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  if (has_fact(*symbol.op, kRaisesForData)) return true;
  // How large the memory behind a tensor is stands in no type.
  if (symbol.op->view && has_fact(*symbol.op, kReadsStrides)) return !stays_inside(trace, symbol);
  if (!has_fact(*symbol.op, kRaisesForZero)) return false;
  return std::ranges::any_of(ir::flat_results(symbol), [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    return type != nullptr && !ir::is_floating_point(type->dtype) && !ir::is_complex(type->dtype);
  });
}

InPlaceForm in_place_form(const ir::Operator& op, ir::FindOperator find_operator) {
  if (op.results.size() != 1 || op.view || op.parameters.empty() || has_fact(op, kResizes)) return {};
  if (const auto* row = find_row(kOutRows, op)) {
    const ir::Operator* out = find_operator(op.name, row->overload);
    const bool fits = out != nullptr && out->parameters.size() == op.parameters.size() + 1;
    return {fits ? out : nullptr, true, row->candidates};
  }
  const ir::Operator* in_place = find_operator(op.name + "_", op.overload);
  if (in_place == nullptr || !is_in_place_form(op, *in_place)) return {};
  const bool is_commutative = op.overload == "Tensor" && (op.name == "aten::add" || op.name == "aten::mul");
  return {in_place, false, is_commutative ? std::size_t{2} : std::size_t{1}};
}

const char* copying_form(const ir::Operator& op) {
  const auto* row = find_row(kCopyingRows, op);
  return row == nullptr ? nullptr : row->copying;
}

const Matmul* find_matmul(const ir::Operator& op) {
  const auto* row = find_row(kMatmuls, op);
  return row == nullptr ? nullptr : &row->matmul;
}

}  // namespace thunder::operators
