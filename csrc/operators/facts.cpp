#include "operators/facts.h"

#include <algorithm>

#include "ir/symbol_values.h"
#include "operators/elements.h"

namespace thunder::operators {
namespace {

struct Row {
  std::string_view name;
  unsigned facts;
};
constexpr auto bit(Fact fact) { return static_cast<unsigned>(fact); }
constexpr unsigned kDrawsRandomNumbers = bit(Fact::kDrawsRandomNumbers);
constexpr unsigned kIsCheap = bit(Fact::kIsCheap);
constexpr unsigned kMayReturnArgument = bit(Fact::kMayReturnArgument);
constexpr unsigned kRaisesForData = bit(Fact::kRaisesForData);
constexpr unsigned kRaisesForZero = bit(Fact::kRaisesForZero);

// Elementwise operators (elements.cpp) are cheap without a row here; all of `linalg` raises for data.
constexpr Row kRows[] = {
    {"aten::_fused_dropout", kDrawsRandomNumbers},
    {"aten::_log_softmax", kIsCheap},
    {"aten::_sample_dirichlet", kDrawsRandomNumbers},
    {"aten::_softmax", kIsCheap},
    {"aten::_standard_gamma", kDrawsRandomNumbers},
    {"aten::_unsafe_view", kMayReturnArgument},
    {"aten::alpha_dropout", kDrawsRandomNumbers},
    {"aten::amax", kIsCheap},
    {"aten::amin", kIsCheap},
    {"aten::arange", kIsCheap},
    {"aten::bernoulli", kDrawsRandomNumbers},
    {"aten::binary_cross_entropy", kRaisesForData},
    {"aten::binomial", kDrawsRandomNumbers},
    {"aten::cat", kIsCheap},
    {"aten::cholesky", kRaisesForData},
    {"aten::cholesky_inverse", kRaisesForData},
    {"aten::cholesky_solve", kRaisesForData},
    {"aten::clone", kIsCheap},
    {"aten::conj_physical", kMayReturnArgument},
    {"aten::constant_pad_nd", kIsCheap},
    {"aten::cross_entropy_loss", kRaisesForData},
    {"aten::ctc_loss", kRaisesForData},
    {"aten::cumsum", kIsCheap},
    {"aten::div", kRaisesForZero},
    {"aten::divide", kRaisesForZero},
    {"aten::dropout", kDrawsRandomNumbers},
    {"aten::elu", kIsCheap},
    {"aten::embedding", kIsCheap | kRaisesForData},
    {"aten::embedding_bag", kRaisesForData},
    {"aten::feature_alpha_dropout", kDrawsRandomNumbers},
    {"aten::feature_dropout", kDrawsRandomNumbers},
    {"aten::flip", kIsCheap},
    {"aten::floor_divide", kRaisesForZero},
    {"aten::fmod", kRaisesForZero},
    {"aten::full", kIsCheap},
    {"aten::gather", kIsCheap | kRaisesForData},
    {"aten::gru", kDrawsRandomNumbers},
    {"aten::hardsigmoid", kIsCheap},
    {"aten::hardswish", kIsCheap},
    {"aten::hardtanh", kIsCheap},
    {"aten::histc", kRaisesForData},
    {"aten::index", kIsCheap | kRaisesForData},
    {"aten::index_add", kRaisesForData},
    {"aten::index_copy", kRaisesForData},
    {"aten::index_fill", kRaisesForData},
    {"aten::index_put", kRaisesForData},
    {"aten::index_reduce", kRaisesForData},
    {"aten::index_select", kIsCheap | kRaisesForData},
    {"aten::inverse", kRaisesForData},
    {"aten::isinf", kIsCheap},
    {"aten::isnan", kIsCheap},
    {"aten::lift", kMayReturnArgument},
    {"aten::logsumexp", kIsCheap},
    {"aten::lstm", kDrawsRandomNumbers},
    {"aten::lu_unpack", kRaisesForData},
    {"aten::masked_scatter", kRaisesForData},
    {"aten::matrix_power", kRaisesForData},
    {"aten::max_unpool2d", kRaisesForData},
    {"aten::max_unpool3d", kRaisesForData},
    {"aten::mean", kIsCheap},
    {"aten::mish", kIsCheap},
    {"aten::multi_margin_loss", kRaisesForData},
    {"aten::multilabel_margin_loss", kRaisesForData},
    {"aten::multinomial", kDrawsRandomNumbers},
    {"aten::native_dropout", kDrawsRandomNumbers | kMayReturnArgument},
    {"aten::native_layer_norm", kIsCheap},
    {"aten::new_full", kIsCheap},
    {"aten::new_ones", kIsCheap},
    {"aten::new_zeros", kIsCheap},
    {"aten::nll_loss", kRaisesForData},
    {"aten::nll_loss2d", kRaisesForData},
    {"aten::nll_loss_nd", kRaisesForData},
    {"aten::normal", kDrawsRandomNumbers},
    {"aten::one_hot", kRaisesForData},
    {"aten::ones", kIsCheap},
    {"aten::orgqr", kRaisesForData},
    {"aten::ormqr", kRaisesForData},
    {"aten::permute", kIsCheap},
    {"aten::pinverse", kRaisesForData},
    {"aten::poisson", kDrawsRandomNumbers},
    {"aten::put", kRaisesForData},
    {"aten::rand", kDrawsRandomNumbers},
    {"aten::rand_like", kDrawsRandomNumbers},
    {"aten::randint", kDrawsRandomNumbers},
    {"aten::randint_like", kDrawsRandomNumbers},
    {"aten::randn", kDrawsRandomNumbers},
    {"aten::randn_like", kDrawsRandomNumbers},
    {"aten::randperm", kDrawsRandomNumbers},
    {"aten::remainder", kIsCheap | kRaisesForZero},
    {"aten::repeat", kIsCheap},
    {"aten::repeat_interleave", kRaisesForData},
    {"aten::rnn_relu", kDrawsRandomNumbers},
    {"aten::rnn_tanh", kDrawsRandomNumbers},
    {"aten::roll", kIsCheap},
    {"aten::rrelu", kDrawsRandomNumbers},
    {"aten::scalar_tensor", kIsCheap},
    {"aten::scaled_dot_product_attention", kDrawsRandomNumbers},
    {"aten::scatter", kRaisesForData},
    {"aten::scatter_add", kRaisesForData},
    {"aten::scatter_reduce", kRaisesForData},
    {"aten::searchsorted", kRaisesForData},
    {"aten::softplus", kIsCheap},
    {"aten::stack", kIsCheap},
    {"aten::sum", kIsCheap},
    {"aten::svd", kRaisesForData},
    {"aten::take", kRaisesForData},
    {"aten::take_along_dim", kRaisesForData},
    {"aten::tan", kIsCheap},
    {"aten::triangular_solve", kRaisesForData},
    {"aten::tril", kIsCheap},
    {"aten::triu", kIsCheap},
    {"aten::unsafe_chunk", kMayReturnArgument},
    {"aten::unsafe_split", kMayReturnArgument},
    {"aten::unsafe_split_with_sizes", kMayReturnArgument},
    {"aten::zeros", kIsCheap},
    {"thunder::make_generator", kDrawsRandomNumbers},
    {"thunder::manual_seed", kDrawsRandomNumbers},
    {"thunder::native_dropout_with_state", kDrawsRandomNumbers},
};
static_assert(std::ranges::is_sorted(kRows, {}, &Row::name));

struct OutRow {
  std::string_view name;
  OutForm form;
};
constexpr OutRow kOutRows[] = {
    {"aten::gelu_backward", {"grad_input", 2}},      {"aten::silu_backward", {"grad_input", 2}},
    {"aten::threshold_backward", {"grad_input", 2}}, {"aten::sigmoid_backward", {"grad_input", 2}},
    {"aten::tanh_backward", {"grad_input", 2}},      {"aten::leaky_relu_backward", {"grad_input", 2}},
    {"aten::hardtanh_backward", {"grad_input", 2}},  {"aten::softplus_backward", {"grad_input", 2}},
    {"aten::_softmax_backward_data", {"out", 1}},    {"aten::_log_softmax_backward_data", {"out", 1}},
};

struct MatmulRow {
  std::string_view name;
  std::size_t operand;
};
constexpr MatmulRow kMatmuls[] = {{"aten::mm", 0},      {"aten::addmm", 1},  {"aten::bmm", 0},
                                  {"aten::baddbmm", 1}, {"aten::linear", 0}, {"aten::matmul", 0}};

}  // namespace

bool has_fact(const ir::Operator& op, Fact fact) {
  const std::string_view name = op.name;
  const auto row = std::ranges::lower_bound(kRows, name, {}, &Row::name);
  if (row != std::end(kRows) && row->name == name && (row->facts & bit(fact)) != 0) return true;
  if (fact == Fact::kIsCheap) return is_elementwise(name);
  return fact == Fact::kRaisesForData && name.starts_with("aten::linalg_");
}

bool may_raise_for_data(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  if (has_fact(*symbol.op, Fact::kRaisesForData)) return true;
  if (!has_fact(*symbol.op, Fact::kRaisesForZero)) return false;
  return std::ranges::any_of(ir::flat_results(symbol), [&](ir::ValueId id) {
    const ir::TensorType* type = id == ir::kNoValue ? nullptr : trace.tensor_type(id);
    return type != nullptr && !ir::is_floating_point(type->dtype) && !ir::is_complex(type->dtype);
  });
}

std::optional<OutForm> out_form(const ir::Operator& op) {
  const auto row = std::ranges::find(kOutRows, std::string_view(op.name), &OutRow::name);
  return row == std::end(kOutRows) || !op.overload.empty() ? std::nullopt : std::make_optional(row->form);
}

std::optional<std::size_t> matmul_operand(const ir::Operator& op) {
  const auto row = std::ranges::find(kMatmuls, std::string_view(op.name), &MatmulRow::name);
  return row == std::end(kMatmuls) ? std::nullopt : std::make_optional(row->operand);
}

bool is_commutative(const ir::Operator& op) {
  return op.overload == "Tensor" && (op.name == "aten::add" || op.name == "aten::mul");
}

}  // namespace thunder::operators
