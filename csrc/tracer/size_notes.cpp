#include "tracer/size_notes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "tracer/size_node.h"
#include "tracer/size_probes.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

constexpr std::int64_t kLargest = std::int64_t{1} << 20U;

/// Conditions under which two sizes are equal, where they are so as traced and need not be.
std::vector<ir::Condition> equality_as_traced(const ir::Dim& left, const ir::Dim& right, ir::SymbolValues traced) {
  return ir::SizeQuestions({traced.begin(), traced.end()}).are_equal(left, right).conditions;
}

/// Divides both of two sizes by the symbols, and the small primes, that divide both: where one becomes a symbol,
/// samples at which they are equal are found.
void divide_by_common_factors(ir::Dim& left, ir::Dim& right, ir::SymbolValues traced) {
  constexpr std::int64_t kLargestPrime = 61;
  const auto divide = [&](const ir::Dim& factor) {
    for (;;) {
      const auto first = ir::exact_quotient(left, factor);
      const auto second = ir::exact_quotient(right, factor);
      if (!first || !second) return;
      left = *first;
      right = *second;
    }
  };
  std::vector<std::uint32_t> symbols;
  ir::add_symbols(left, symbols);
  for (const std::uint32_t symbol : symbols) divide(ir::Dim::symbol(symbol, traced[symbol]));
  for (std::int64_t factor = 2; factor <= kLargestPrime; ++factor) divide(factor);
}

/// A call, and what is told of it.
class Call {
 public:
  Call(const c10::OperatorHandle& op, std::span<const IValue> arguments, const SizesOf& sizes_of,
       ir::SymbolValues traced)
      : op_(op), arguments_(arguments), sizes_of_(sizes_of), traced_(traced) {}

  [[nodiscard]] const IValue* find(std::string_view name) const {
    const auto& parameters = op_.schema().arguments();
    const auto found = std::ranges::find(parameters, name, &c10::Argument::name);
    return found == parameters.end() ? nullptr : &arguments_[static_cast<std::size_t>(found - parameters.begin())];
  }
  /// The sizes that an argument is, or lists.
  [[nodiscard]] ir::Dims sizes(std::string_view name) const {
    const IValue* value = find(name);
    return value == nullptr ? ir::Dims() : sizes_in(*value);
  }
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view name) const {
    const ir::Dims dims = sizes(name);
    return dims.size() == 1 && dims[0].is_concrete() ? std::optional(dims[0].hint) : std::nullopt;
  }
  [[nodiscard]] std::int64_t number(std::string_view name, std::int64_t missing) const {
    return number(name).value_or(missing);
  }
  /// The sizes of an argument that is a tensor.
  [[nodiscard]] std::optional<ir::Dims> shape(std::string_view name) const {
    const IValue* value = find(name);
    return value != nullptr && value->isTensor() && value->toTensor().defined() ? sizes_of_(value->toTensor())
                                                                                : std::nullopt;
  }
  /// Size `dim` of a tensor, from the last one on where that is negative.
  [[nodiscard]] std::optional<ir::Dim> size(std::string_view name, std::int64_t dim) const {
    const auto dims = shape(name);
    const auto rank = static_cast<std::int64_t>(dims ? dims->size() : 0);
    if (dim < -rank || dim >= rank) return std::nullopt;
    return (*dims)[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)];
  }

  [[nodiscard]] std::optional<ir::Dims> sizes_of(const at::Tensor& tensor) const { return sizes_of_(tensor); }

  void note(const ir::Dim& dim) {
    if (!dim.is_concrete()) notes.expressions.push_back(dim);
  }
  /// The outcome of a comparison, which stays so.
  bool decide(const ir::Dim& left, SizeComparison comparison, const ir::Dim& right) {
    Compared compared = compare_sizes(left, comparison, right);
    std::ranges::move(compared.conditions, std::back_inserter(notes.conditions));
    return compared.outcome;
  }
  /// An operation raises an error where it does not hold.
  void require(const ir::Dim& left, SizeComparison comparison, const ir::Dim& right) {
    Compared compared = compare_sizes(left, comparison, right);
    if (compared.outcome) std::ranges::move(compared.conditions, std::back_inserter(notes.conditions));
  }
  void require_equal(ir::Dim left, ir::Dim right) {
    if (left.hint != 0 && left.hint == right.hint) divide_by_common_factors(left, right, traced_);
    std::ranges::move(equality_as_traced(left, right, traced_), std::back_inserter(notes.conditions));
  }
  /// The quotient that an operation needs to be exact; nullopt: it is not.
  std::optional<ir::Dim> require_quotient(const ir::Dim& dim, const ir::Dim& divisor);

  SizeNotes notes;

 private:
  const c10::OperatorHandle& op_;
  std::span<const IValue> arguments_;
  const SizesOf& sizes_of_;
  ir::SymbolValues traced_;
};

/// A dimension and a divisor without the factors that both have.
std::pair<ir::Dim, ir::Dim> without_common_factors(ir::Dim dim, ir::Dim divisor) {
  constexpr std::int64_t kMost = 4096;
  for (std::int64_t factor = 1; factor <= kMost && factor <= divisor.hint && !divisor.is_concrete(); ++factor) {
    const auto rest = ir::exact_quotient(divisor, factor);
    const auto quotient = rest ? ir::exact_quotient(dim, *rest) : std::nullopt;
    if (!quotient) continue;
    dim = *quotient;
    divisor = factor;
  }
  for (std::int64_t factor = std::min(divisor.hint, kMost); factor > 1 && divisor.is_concrete(); --factor) {
    const auto rest = ir::exact_quotient(divisor, factor);
    const auto quotient = rest ? ir::exact_quotient(dim, factor) : std::nullopt;
    if (!quotient) continue;
    dim = *quotient;
    divisor = *rest;
    factor = std::min(divisor.hint, factor) + 1;
  }
  return {dim, divisor};
}

std::optional<ir::Dim> Call::require_quotient(const ir::Dim& dim, const ir::Dim& divisor) {
  if (divisor.hint < 1 || dim.hint % divisor.hint != 0) return std::nullopt;
  const auto [rest, factor] = without_common_factors(dim, divisor);
  const ir::Condition condition{ir::Condition::Kind::kDivisible, rest, factor};
  if (!is_certain(condition)) notes.conditions.push_back(condition);
  const ir::Dim quotient = ir::floor_divide(rest, factor);
  note(quotient);
  return quotient;
}

// --- other shapes of the same elements

/// Elements that are given these sizes; one of them may be missing.
void note_shape(Call& call, const ir::Dim& count, const ir::Dims& sizes) {
  ir::Dim product = 1;
  std::ptrdiff_t missing = 0;
  for (const ir::Dim& size : sizes) {
    if (size == ir::Dim(-1)) {
      ++missing;
    } else {
      product *= size;
    }
  }
  if (missing == 0 && product.hint == count.hint) call.require_equal(product, count);
  if (missing == 1 && product.hint > 0) static_cast<void>(call.require_quotient(count, product));
}

void note_view(Call& call) {
  const auto sizes = call.shape("self");
  if (!sizes) return;
  ir::Dims shape = call.sizes("size");
  if (shape.empty()) shape = call.sizes("shape");
  if (const auto other = call.shape("other")) shape = *other;
  if (!shape.empty()) note_shape(call, ir::product_of(*sizes), shape);
}

void note_unflatten(Call& call) {
  const auto size = call.size("self", call.number("dim", 0));
  if (size) note_shape(call, *size, call.sizes("sizes"));
}

// --- pieces

/// Pieces of a size, the last of which may be smaller.
void note_pieces(Call& call, const ir::Dim& size, const ir::Dim& piece) {
  if (piece.hint < 1) return;
  const std::int64_t count = (size.hint + piece.hint - 1) / piece.hint;
  if (count < 1 || count > kLargest) return;
  const ir::Dim before = ir::Dim(count - 1) * piece;
  call.require(before, SizeComparison::kLess, size);
  call.require(size, SizeComparison::kLessOrEqual, before + piece);
  call.note(piece);
  call.note(size - before);
}

ir::Dim rounded_up(const ir::Dim& size, std::int64_t divisor) {
  const auto quotient = ir::exact_quotient(size, divisor);
  return quotient ? *quotient : ir::floor_divide(size + ir::Dim(divisor - 1), divisor);
}

void note_chunk(Call& call) {
  const auto size = call.size("self", call.number("dim", 0));
  const auto count = call.number("chunks");
  if (!size || !count || *count < 1) return;
  // Equal pieces are multiplied with one another: that they are equal is a condition.
  const auto piece = size->hint % *count == 0 ? call.require_quotient(*size, *count) : std::nullopt;
  if (!piece) note_pieces(call, *size, rounded_up(*size, *count));
}

void note_split(Call& call) {
  const auto size = call.size("self", call.number("dim", 0));
  const IValue* given = call.find("split_size");
  if (!size || given == nullptr) return;
  const ir::Dims pieces = sizes_in(*given);
  if (pieces.size() == 1 && !given->isList()) note_pieces(call, *size, pieces[0]);
}

void note_split_sizes(Call& call) {
  const auto size = call.size("self", call.number("dim", 0));
  ir::Dim sum = 0;
  for (const ir::Dim& piece : call.sizes("split_sizes")) {
    call.require(ir::Dim(0), SizeComparison::kLessOrEqual, piece);
    call.note(sum += piece);
  }
  if (size && sum.hint == size->hint) call.require_equal(sum, *size);
}

/// The first ones of `count` pieces have one element more, where the size is no multiple.
void note_sections(Call& call) {
  const auto size = call.size("self", call.number("dim", 0));
  const auto count = call.number("sections");
  if (!size || !count || *count < 1 || *count > kLargest) return;
  for (std::int64_t i = 0; i < *count; ++i) call.note(ir::floor_divide(*size + ir::Dim(*count - 1 - i), *count));
}

/// Pieces along the first, second or third dimension, which have to be equal.
void note_equal_sections(Call& call, std::int64_t dim) {
  const auto shape = call.shape("self");
  const auto count = call.number("sections");
  if (!shape || shape->empty() || !count || *count < 1) return;
  const auto place = std::min(static_cast<std::size_t>(dim), shape->size() - 1);
  static_cast<void>(call.require_quotient((*shape)[place], *count));
}
void note_vsplit(Call& call) { note_equal_sections(call, 0); }
void note_hsplit(Call& call) { note_equal_sections(call, 1); }
void note_dsplit(Call& call) { note_equal_sections(call, 2); }

/// A concatenation is as large as its parts: sums of more than two sizes.
void note_sums(Call& call) {
  const IValue* parts = call.find("tensors");
  if (parts == nullptr || !parts->isTensorList()) return;
  ir::Dims sums;
  for (const at::Tensor& part : parts->toTensorVector()) {
    const auto shape = call.sizes_of(part);
    if (!shape) return;
    if (sums.size() < shape->size()) sums.insert(sums.begin(), shape->size() - sums.size(), ir::Dim(0));
    for (std::size_t i = 0; i < shape->size(); ++i) {
      ir::Dim& sum = sums[sums.size() - 1 - i];
      sum += (*shape)[shape->size() - 1 - i];
      call.note(sum);
    }
  }
}

// --- windows, frequencies, images

void note_unfold(Call& call) {
  const auto size = call.size("self", call.number("dimension", 0));
  const ir::Dims window = call.sizes("size");
  const auto step = call.number("step");
  if (!size || window.size() != 1 || !step || *step < 1) return;
  call.require(window[0], SizeComparison::kLessOrEqual, *size);
  call.note(ir::floor_divide(*size - window[0], *step) + ir::Dim(1));
}

/// The length that a spectrum is asked for, and the size of what it is made of, in the last of its dimensions.
std::pair<std::optional<ir::Dim>, std::optional<ir::Dim>> last_lengths(const Call& call) {
  const ir::Dims lengths = call.sizes(call.find("s") != nullptr ? "s" : "n");
  const ir::Dims dims = call.sizes("dim");
  const std::int64_t last = dims.empty() || !dims.back().is_concrete() ? -1 : dims.back().hint;
  return {lengths.empty() ? std::nullopt : std::optional(lengths.back()), call.size("self", last)};
}

/// Whether a dimension that is given another length is padded or cut, which derivatives do the other way round.
/// `is_half`: the last length is one of real numbers, made of half of their frequencies.
void decide_lengths(Call& call, bool is_half) {
  const ir::Dims lengths = call.sizes(call.find("s") != nullptr ? "s" : "n");
  const ir::Dims dims = call.sizes("dim");
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const bool is_told = dims.size() == lengths.size();
    if (lengths[i] == ir::Dim(-1) || (is_told && !dims[i].is_concrete())) continue;
    const auto from_last = static_cast<std::int64_t>(i) - static_cast<std::int64_t>(lengths.size());
    const auto size = call.size("self", is_told ? dims[i].hint : from_last);
    if (!size) continue;
    const bool is_halved = is_half && i + 1 == lengths.size();
    const ir::Dim wanted = is_halved ? ir::floor_divide(lengths[i], 2) + ir::Dim(1) : lengths[i];
    if (!call.decide(*size, SizeComparison::kLess, wanted)) {
      static_cast<void>(call.decide(wanted, SizeComparison::kLess, *size));
    }
  }
}

void note_spectrum(Call& call) { decide_lengths(call, /*is_half=*/false); }

/// Half of the frequencies of real numbers.
void note_half_spectrum(Call& call) {
  decide_lengths(call, /*is_half=*/false);
  const auto [given, size] = last_lengths(call);
  if (const auto length = given ? given : size) call.note(ir::floor_divide(*length, 2) + ir::Dim(1));
}

/// Real numbers from half of their frequencies. The derivative of three and more doubles what lies between the ends.
void note_real_numbers(Call& call) {
  decide_lengths(call, /*is_half=*/true);
  auto [length, size] = last_lengths(call);
  if (!length && size) length = (*size - ir::Dim(1)) * ir::Dim(2);
  if (length) static_cast<void>(call.decide(ir::Dim(2), SizeComparison::kLess, *length));
}

void note_strides(Call& call) {
  const auto self = call.shape("self");
  const ir::Dims sizes = call.sizes("size");
  const ir::Dims strides = call.sizes("stride");
  if (!self || sizes.size() != strides.size()) return;
  ir::Dim last = call.number("storage_offset", 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - ir::Dim(1)) * strides[i];
  ir::Dim count = 1;
  for (const ir::Dim& size : *self) count *= size;
  call.require(last, SizeComparison::kLess, count);
}

void note_short_time_spectrum(Call& call) {
  const auto size = call.size("self", -1);
  const auto window = call.number("n_fft");
  if (!size || !window || *window < 1) return;
  const std::int64_t step = call.number("hop_length", *window / 4);
  const IValue* center = call.find("center");
  const bool is_centered = center != nullptr && center->isBool() && center->toBool();
  const ir::Dim length = is_centered ? *size + ir::Dim(2 * (*window / 2)) : *size;
  call.require(ir::Dim(*window), SizeComparison::kLessOrEqual, length);
  if (step < 1) return;
  const ir::Dim frames = ir::floor_divide(length - ir::Dim(*window), step) + ir::Dim(1);
  call.note(frames);
  static_cast<void>(call.decide(ir::Dim(1), SizeComparison::kLess, frames));
}

/// A size times a float that is a multiple of `2**-10`, rounded down; floats hold the product as it is.
std::optional<ir::Dim> scaled(const ir::Dim& size, double factor) {
  constexpr std::int64_t kDenominator = 1024;
  const double numerator = factor * static_cast<double>(kDenominator);
  if (!(factor > 0 && factor < 1024) || std::trunc(numerator) != numerator) return std::nullopt;
  return ir::floor_divide(size * ir::Dim(static_cast<std::int64_t>(numerator)), kDenominator);
}

void note_upsample(Call& call) {
  const IValue* factors = call.find("scale_factors");
  const auto sizes = call.shape("input");
  if (factors == nullptr || !factors->isDoubleList() || !sizes) return;
  const std::vector<double> list = factors->toDoubleVector();
  for (std::size_t i = 0; i < list.size() && i + 2 < sizes->size(); ++i) {
    const ir::Dim& size = (*sizes)[i + 2];
    if (const auto product = scaled(size, list[i])) call.note(*product);
  }
}

void note_pixel_unshuffle(Call& call) {
  const auto factor = call.number("downscale_factor");
  if (!factor || *factor < 1) return;
  for (const std::int64_t dim : {-1, -2}) {
    if (const auto size = call.size("self", dim)) static_cast<void>(call.require_quotient(*size, *factor));
  }
}

void note_pixel_shuffle(Call& call) {
  const auto factor = call.number("upscale_factor");
  const auto channels = call.size("self", -3);
  if (factor && *factor >= 1 && channels) static_cast<void>(call.require_quotient(*channels, *factor * *factor));
}

/// Groups of channels.
void note_groups(Call& call, std::string_view tensor, std::string_view count) {
  const auto groups = call.number(count);
  const auto channels = call.size(tensor, 1);
  if (groups && *groups >= 1 && channels) static_cast<void>(call.require_quotient(*channels, *groups));
}
void note_channel_shuffle(Call& call) { note_groups(call, "self", "groups"); }
void note_group_norm(Call& call) { note_groups(call, "input", call.find("group") != nullptr ? "group" : "num_groups"); }

void note_halves(Call& call) {
  const auto size = call.size("self", call.number("dim", -1));
  if (size) static_cast<void>(call.require_quotient(*size, 2));
}

/// Padding that repeats elements takes no more than there are.
void note_padding(Call& call) {
  const IValue* mode = call.find("mode");
  const bool repeats = mode == nullptr || !mode->isString() || mode->toStringRef() != "constant";
  const ir::Dims padding = call.sizes(call.find("pad") != nullptr ? "pad" : "padding");
  for (std::size_t i = 0; i + 1 < padding.size(); i += 2) {
    const auto size = call.size("self", -1 - static_cast<std::int64_t>(i / 2));
    if (!size) continue;
    call.note(*size + padding[i] + padding[i + 1]);
    if (!repeats) continue;
    call.require(padding[i], SizeComparison::kLess, *size);
    call.require(padding[i + 1], SizeComparison::kLess, *size);
  }
}

// --- matrices

/// Which of two sizes is the smaller one, and whether they are equal.
ir::Dim smaller_one(Call& call, const ir::Dim& left, const ir::Dim& right) {
  if (call.decide(left, SizeComparison::kEqual, right)) return left;
  return left.hint < right.hint ? left : right;
}

void note_matrix(Call& call) {
  const std::string_view name = call.find("A") != nullptr ? "A" : call.find("self") != nullptr ? "self" : "input";
  const auto rows = call.size(name, -2), columns = call.size(name, -1);
  if (rows && columns) call.note(smaller_one(call, *rows, *columns));
}

void note_diagonal(Call& call) {
  const std::string_view name = call.find("A") != nullptr ? "A" : "self";
  const bool is_linalg = name == "A";
  const bool has_dims = call.find("dim1") != nullptr;
  const auto rows = call.size(name, has_dims ? call.number("dim1", is_linalg ? -2 : 0) : 0);
  const auto columns = call.size(name, has_dims ? call.number("dim2", is_linalg ? -1 : 1) : 1);
  const ir::Dims offsets = call.sizes(call.find("diagonal") != nullptr ? "diagonal" : "offset");
  if (offsets.size() != 1 || std::llabs(offsets[0].hint) > kLargest) return;
  const ir::Dim& offset = offsets[0];
  const bool is_below = call.decide(offset, SizeComparison::kLess, 0);
  if (rows && !columns && name == "self" && !has_dims) {  // a vector, which becomes a diagonal
    return call.note(is_below ? *rows - offset : *rows + offset);
  }
  if (!rows || !columns) return;
  const ir::Dim down = is_below ? *rows + offset : *rows;
  const ir::Dim right = is_below ? *columns : *columns - offset;
  const bool is_within = call.decide(1, SizeComparison::kLessOrEqual, is_below ? down : right);
  if (is_within && down.hint >= 1 && right.hint >= 1) call.note(smaller_one(call, down, right));
}

// --- pairs

ir::Dim pairs_of(const ir::Dim& size) { return ir::floor_divide(size * (size - ir::Dim(1)), 2); }

void note_pairs(Call& call) {
  const auto size = call.size("self", 0);
  if (!size || call.number("r", 2) != 2) return;
  const IValue* repeats = call.find("with_replacement");
  const bool has_equal_ones = repeats != nullptr && repeats->isBool() && repeats->toBool();
  call.note(has_equal_ones ? pairs_of(*size + ir::Dim(1)) : pairs_of(*size));
}

/// Places above the diagonal of a square, or below it.
void note_triangle(Call& call) {
  const ir::Dims rows = call.sizes("row"), columns = call.sizes("col");
  const auto offset = call.number("offset");
  if (rows.size() != 1 || columns.size() != 1 || !offset || std::llabs(*offset) > kLargest) return;
  if (!call.decide(rows[0], SizeComparison::kEqual, columns[0])) return;
  const ir::Dim& size = rows[0];
  if (size.is_concrete() || size.hint < std::llabs(*offset)) return;
  call.require(ir::Dim(std::llabs(*offset)), SizeComparison::kLessOrEqual, size);
  const ir::Dim outside = pairs_of(size - ir::Dim(std::llabs(*offset)) + ir::Dim(1));
  call.note(outside);
  call.note(size * size - pairs_of(size - ir::Dim(std::llabs(*offset))));
}

// --- the first ones of several

void note_k(Call& call) {
  const auto size = call.size("self", call.number("dim", -1));
  const ir::Dims k = call.sizes("k");
  if (size && k.size() == 1) call.require(k[0], SizeComparison::kLessOrEqual, *size);
}

/// Indices are no more than elements, but along the dimension that they are of; and no more than what is put there.
void note_indices(Call& call) {
  const auto self = call.shape("self"), index = call.shape("index"), source = call.shape("src");
  if (!self || !index || self->size() != index->size()) return;
  const std::int64_t dim = call.number("dim", 0);
  const auto along = static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(self->size()) : dim);
  for (std::size_t i = 0; i < index->size(); ++i) {
    if (i != along) call.require((*index)[i], SizeComparison::kLessOrEqual, (*self)[i]);
    if (source && i < source->size()) call.require((*index)[i], SizeComparison::kLessOrEqual, (*source)[i]);
  }
}

/// Distances of many points are computed by a matmul, whose derivative is another one.
void note_distances(Call& call) {
  constexpr std::int64_t kFew = 25;
  const IValue* power = call.find("p");
  if (power == nullptr || !power->isDouble() || power->toDouble() != 2.0 || call.number("compute_mode", 0) != 0) return;
  for (const std::string_view name : {"x1", "x2"}) {
    if (!call.find(name)->toTensor().requires_grad()) continue;
    if (const auto count = call.size(name, -2)) call.decide(*count, SizeComparison::kGreater, kFew);
  }
}

struct Row {
  std::string_view name;
  void (*note)(Call& call);
};

constexpr Row kRows[] = {
    {"aten::_reshape_alias", &note_view},
    {"aten::_unsafe_view", &note_view},
    {"aten::_lu_with_info", &note_matrix},
    {"aten::as_strided", &note_strides},
    {"aten::block_diag", &note_sums},
    {"aten::cat", &note_sums},
    {"aten::cdist", &note_distances},
    {"aten::channel_shuffle", &note_channel_shuffle},
    {"aten::chunk", &note_chunk},
    {"aten::combinations", &note_pairs},
    {"aten::diag", &note_diagonal},
    {"aten::diagonal", &note_diagonal},
    {"aten::diagonal_copy", &note_diagonal},
    {"aten::diagonal_scatter", &note_diagonal},
    {"aten::concat", &note_sums},
    {"aten::concatenate", &note_sums},
    {"aten::dsplit", &note_dsplit},
    {"aten::dstack", &note_sums},
    {"aten::fft_fft", &note_spectrum},
    {"aten::fft_fft2", &note_spectrum},
    {"aten::fft_fftn", &note_spectrum},
    {"aten::fft_hfft", &note_real_numbers},
    {"aten::fft_hfft2", &note_real_numbers},
    {"aten::fft_hfftn", &note_real_numbers},
    {"aten::fft_ifft", &note_spectrum},
    {"aten::fft_ifft2", &note_spectrum},
    {"aten::fft_ifftn", &note_spectrum},
    {"aten::fft_ihfft", &note_half_spectrum},
    {"aten::fft_ihfft2", &note_half_spectrum},
    {"aten::fft_ihfftn", &note_half_spectrum},
    {"aten::fft_irfft", &note_real_numbers},
    {"aten::fft_irfft2", &note_real_numbers},
    {"aten::fft_irfftn", &note_real_numbers},
    {"aten::fft_rfft", &note_half_spectrum},
    {"aten::fft_rfft2", &note_half_spectrum},
    {"aten::fft_rfftn", &note_half_spectrum},
    {"aten::gather", &note_indices},
    {"aten::geqrf", &note_matrix},
    {"aten::glu", &note_halves},
    {"aten::group_norm", &note_group_norm},
    {"aten::hsplit", &note_hsplit},
    {"aten::hstack", &note_sums},
    {"aten::kthvalue", &note_k},
    {"aten::linalg_diagonal", &note_diagonal},
    {"aten::linalg_lstsq", &note_matrix},
    {"aten::linalg_lu", &note_matrix},
    {"aten::linalg_lu_factor", &note_matrix},
    {"aten::linalg_lu_factor_ex", &note_matrix},
    {"aten::linalg_matrix_rank", &note_matrix},
    {"aten::linalg_pinv", &note_matrix},
    {"aten::linalg_qr", &note_matrix},
    {"aten::linalg_svd", &note_matrix},
    {"aten::linalg_svdvals", &note_matrix},
    {"aten::lu_unpack", &note_matrix},
    {"aten::native_group_norm", &note_group_norm},
    {"aten::pad", &note_padding},
    {"aten::pdist", &note_pairs},
    {"aten::pinverse", &note_matrix},
    {"aten::pixel_shuffle", &note_pixel_shuffle},
    {"aten::pixel_unshuffle", &note_pixel_unshuffle},
    {"aten::qr", &note_matrix},
    {"aten::reflection_pad1d", &note_padding},
    {"aten::reflection_pad2d", &note_padding},
    {"aten::reflection_pad3d", &note_padding},
    {"aten::reshape", &note_view},
    {"aten::reshape_as", &note_view},
    {"aten::scatter", &note_indices},
    {"aten::scatter_add", &note_indices},
    {"aten::scatter_reduce", &note_indices},
    {"aten::split", &note_split},
    {"aten::split_with_sizes", &note_split_sizes},
    {"aten::stft", &note_short_time_spectrum},
    {"aten::svd", &note_matrix},
    {"aten::tensor_split", &note_sections},
    {"aten::topk", &note_k},
    {"aten::trace", &note_diagonal},
    {"aten::tril_indices", &note_triangle},
    {"aten::triu_indices", &note_triangle},
    {"aten::unflatten", &note_unflatten},
    {"aten::unfold", &note_unfold},
    {"aten::unfold_copy", &note_unfold},
    {"aten::unsafe_chunk", &note_chunk},
    {"aten::unsafe_split", &note_split},
    {"aten::upsample_bicubic2d", &note_upsample},
    {"aten::upsample_bilinear2d", &note_upsample},
    {"aten::upsample_linear1d", &note_upsample},
    {"aten::upsample_nearest1d", &note_upsample},
    {"aten::upsample_nearest2d", &note_upsample},
    {"aten::upsample_nearest3d", &note_upsample},
    {"aten::upsample_trilinear3d", &note_upsample},
    {"aten::_upsample_bicubic2d_aa", &note_upsample},
    {"aten::_upsample_bilinear2d_aa", &note_upsample},
    {"aten::_upsample_nearest_exact1d", &note_upsample},
    {"aten::_upsample_nearest_exact2d", &note_upsample},
    {"aten::_upsample_nearest_exact3d", &note_upsample},
    {"aten::view", &note_view},
    {"aten::view_as", &note_view},
    {"aten::vsplit", &note_vsplit},
    {"aten::vstack", &note_sums},
};

}  // namespace

SizeNotes notes_on(const c10::OperatorHandle& op, std::span<const IValue> arguments, const SizesOf& sizes_of,
                   ir::SymbolValues traced) {
  const auto* row = std::ranges::find(kRows, op.operator_name().name, &Row::name);
  if (row == std::end(kRows)) return {};
  Call call(op, arguments, sizes_of, traced);
  row->note(call);
  return std::move(call.notes);
}

std::optional<std::vector<ir::Condition>> bounds_between(std::span<const ir::SymbolValues> fitting,
                                                         std::span<const ir::SymbolValues> failing) {
  constexpr std::size_t kLeastFitting = 3;  // fewer show little
  if (fitting.size() < kLeastFitting) return std::nullopt;
  const ir::SymbolValues traced = fitting[0];
  std::vector<bool> is_explained(failing.size());
  std::vector<ir::Condition> conditions;
  for (std::size_t i = 0; i < traced.size(); ++i) {
    const auto value = [i](ir::SymbolValues values) { return values[i]; };
    const std::int64_t least = std::ranges::min(fitting, {}, value)[i];
    bool explains = false;
    for (std::size_t k = 0; k < failing.size(); ++k) {
      if (is_explained[k] || failing[k][i] >= least) continue;
      is_explained[k] = explains = true;
    }
    if (!explains) continue;
    const auto symbol = ir::Dim::symbol(static_cast<std::uint32_t>(i), traced[i]);
    conditions.push_back({ir::Condition::Kind::kAtMost, ir::Dim(least), symbol});
  }
  return std::ranges::all_of(is_explained, std::identity()) ? std::optional(conditions) : std::nullopt;
}

std::optional<std::vector<ir::Condition>> signs_between(std::span<const ir::Dim> expressions,
                                                        std::span<const ir::SymbolValues> fitting,
                                                        std::span<const ir::SymbolValues> failing) {
  const auto found = std::ranges::find_if(expressions, [&](const ir::Dim& dim) {
    const auto is_negative = [&dim](ir::SymbolValues values) { return ir::evaluate(dim, values) < 0; };
    return std::ranges::none_of(fitting, is_negative) && std::ranges::all_of(failing, is_negative);
  });
  if (found == expressions.end()) return std::nullopt;
  return std::vector{ir::Condition{ir::Condition::Kind::kAtMost, ir::Dim(0), *found}};
}

namespace {

bool hold(std::span<const ir::Condition> conditions, ir::SymbolValues values) {
  return std::ranges::all_of(conditions, [&](const ir::Condition& condition) { return ir::holds(condition, values); });
}

std::vector<ir::Condition> joined(std::span<const std::vector<ir::Condition>> equalities) {
  std::vector<ir::Condition> result;
  for (const std::vector<ir::Condition>& conditions : equalities)
    std::ranges::copy(conditions, std::back_inserter(result));
  return result;
}

}  // namespace

std::optional<std::vector<ir::Condition>> equalities_between(std::span<const ir::Dims> shapes,
                                                             std::span<const ir::SymbolValues> fitting,
                                                             std::span<const ir::SymbolValues> failing) {
  const auto is_met = [](std::span<const ir::Condition> conditions) {
    return [conditions](ir::SymbolValues values) { return hold(conditions, values); };
  };
  const auto excludes_failing = [&](const std::vector<std::vector<ir::Condition>>& equalities) {
    const std::vector<ir::Condition> conditions = joined(equalities);
    return std::ranges::none_of(failing, is_met(conditions));
  };
  std::vector<std::vector<ir::Condition>> in_same_places, anywhere;
  const auto add = [&](std::vector<std::vector<ir::Condition>>& to, const ir::Dim& left, const ir::Dim& right) {
    if (left.is_concrete() || right.is_concrete()) return;
    std::vector<ir::Condition> conditions = equality_as_traced(left, right, fitting[0]);
    if (!conditions.empty()) to.push_back(std::move(conditions));
  };
  ir::Dims sizes;
  for (const ir::Dims& shape : shapes) {
    for (std::size_t i = 1; i <= std::min(shapes[0].size(), shape.size()); ++i) {
      add(in_same_places, shapes[0][shapes[0].size() - i], shape[shape.size() - i]);
    }
    std::ranges::copy_if(shape, std::back_inserter(sizes), [&](const ir::Dim& size) {
      return !size.is_concrete() && std::ranges::find(sizes, size) == sizes.end();
    });
  }
  if (excludes_failing(in_same_places)) return joined(in_same_places);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) add(anywhere, sizes[k], sizes[i]);
  }
  // One that samples do without is by chance.
  std::erase_if(anywhere, [&](const auto& conditions) { return !std::ranges::all_of(fitting, is_met(conditions)); });
  if (!excludes_failing(anywhere)) return std::nullopt;
  for (std::size_t i = anywhere.size(); i-- > 0;) {
    std::vector<std::vector<ir::Condition>> fewer = anywhere;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (excludes_failing(fewer)) anywhere = std::move(fewer);
  }
  return joined(anywhere);
}

}  // namespace thunder::tracer
