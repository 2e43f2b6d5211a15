#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/substitution.h"
#include "operators/names.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

extern const Pass kGradientBuckets;

namespace {

/// The arguments of `average_gradient`.
enum : std::uint8_t { kGradient, kGroup, kGroupSize, kBucketBytes, kDtype, kOrder, kArguments };

/// The first bucket is small, so that communication begins early: PyTorch's DistributedDataParallel has the same.
constexpr std::int64_t kFirstBucketBytes = 1 << 20;

/// A gradient to be averaged over the processes.
struct Gradient {
  std::uint32_t symbol = 0;           ///< the `average_gradient`
  std::uint32_t place = 0;            ///< the symbol that makes it
  std::optional<std::int64_t> order;  ///< among the gradients of all programs; none: as gradients arise in this one
};

/// Gradients that are sent as one tensor.
struct Bucket {
  std::vector<std::uint32_t> symbols;
  std::uint32_t place = kNoPlace;  ///< the symbol that makes the last one
  std::int64_t bytes = 0;
};

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, FindOperator find_operator)
      : trace_(trace),
        find_operator_(find_operator),
        uses_(trace),
        replaced_(trace.value_count()),
        result_(trace.empty_copy(kGradientBuckets.name)) {}

  ir::Trace run() {
    const std::vector<Bucket> buckets = make_buckets(find_gradients());
    if (buckets.empty()) return trace_;
    std::vector<Started> started;
    auto next = buckets.begin();
    const auto start = [&](std::uint32_t place) {
      for (; next != buckets.end() && next->place == place; ++next) started.push_back(start_average(*next));
    };
    start(kNoPlace);  // gradients that are inputs
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (!is_averaged_[i] && !reads_average(i)) result_.add(trace_.symbols[i]);
      start(i);
    }
    for (const Started& each : started) finish_average(each);
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (!reads_average(i)) continue;
      ir::BoundSymbol copy = symbol(i);
      replaced_.apply(copy);
      result_.add(std::move(copy));
    }
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  struct Started {
    const Bucket* bucket = nullptr;
    ir::ValueId value = ir::kNoValue;
  };

  [[nodiscard]] const ir::BoundSymbol& symbol(std::uint32_t i) const { return trace_.symbols[i]; }
  [[nodiscard]] const ir::TensorType& type_of(std::uint32_t i) const {
    return *trace_.tensor_type(value_argument(symbol(i), kGradient));
  }

  /// In the order that they have among themselves, or in which they arise. Averages that an operation of the trace
  /// reads, other than one that waits with them for the end, stay where they are.
  std::vector<Gradient> find_gradients() {
    std::vector<Gradient> gradients;
    is_averaged_.assign(trace_.symbols.size(), false);
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (symbol(i).op->name != operators::kAverageGradient || symbol(i).arguments.size() != kArguments) continue;
      const auto is_last = [&](std::uint32_t reader) { return reads_average(reader); };
      if (!std::ranges::all_of(uses_.readers(single_result(symbol(i))), is_last)) continue;
      if (ir::has_symbols(type_of(i))) continue;
      is_averaged_[i] = true;
      const auto* order = symbol(i).arguments[kOrder].get<std::int64_t>();
      gradients.push_back({i, uses_.maker(value_argument(symbol(i), kGradient)),
                           order == nullptr ? std::nullopt : std::optional(*order)});
    }
    // kNoPlace, of an input, comes first.
    std::ranges::stable_sort(gradients, {}, [](const Gradient& each) { return each.place + 1; });
    std::ranges::stable_sort(gradients, {}, &Gradient::order);
    return gradients;
  }

  /// Whether a symbol hands an average on, and nothing reads what it gives: it stands behind all waits.
  [[nodiscard]] bool reads_average(std::uint32_t i) const {
    return symbol(i).op->name == operators::kGradientIfUsed && uses_.readers(single_result(symbol(i))).empty();
  }

  /// Gradients of one group of processes and one dtype, on one device, follow one another in buckets.
  std::vector<Bucket> make_buckets(const std::vector<Gradient>& gradients) const {
    std::vector<Bucket> open;
    std::vector<Bucket> buckets;
    for (const Gradient& gradient : gradients) {
      auto bucket = std::ranges::find_if(open, [&](const Bucket& each) { return are_alike(each, gradient); });
      if (bucket == open.end()) bucket = open.insert(open.end(), Bucket());
      bucket->symbols.push_back(gradient.symbol);
      bucket->place = later(bucket->place, gradient.place);
      bucket->bytes += size_in_bytes(&type_of(gradient.symbol));
      const std::int64_t most = *symbol(gradient.symbol).arguments[kBucketBytes].get<std::int64_t>();
      if (bucket->bytes < (buckets.empty() ? std::min(most, kFirstBucketBytes) : most)) continue;
      buckets.push_back(std::move(*bucket));
      open.erase(bucket);
    }
    std::ranges::move(open, std::back_inserter(buckets));
    if (std::ranges::any_of(gradients, [](const Gradient& each) { return each.order.has_value(); })) {
      delay_to_order(buckets);
    } else {
      std::ranges::stable_sort(buckets, {}, [](const Bucket& each) { return each.place + 1; });
    }
    return buckets;
  }

  /// kNoPlace, of an input, comes first.
  static std::uint32_t later(std::uint32_t a, std::uint32_t b) { return std::max(a + 1, b + 1) - 1; }

  /// Which bucket is complete first depends on the program: each waits for those before it.
  static void delay_to_order(std::vector<Bucket>& buckets) {
    for (std::size_t i = 1; i < buckets.size(); ++i) {
      buckets[i].place = later(buckets[i].place, buckets[i - 1].place);
    }
  }

  [[nodiscard]] bool are_alike(const Bucket& bucket, const Gradient& gradient) const {
    const ir::BoundSymbol& left = symbol(bucket.symbols.front());
    const ir::BoundSymbol& right = symbol(gradient.symbol);
    for (std::size_t i = kGroup; i < kOrder; ++i) {
      if (!(left.arguments[i] == right.arguments[i])) return false;
    }
    const ir::TensorType& one = type_of(bucket.symbols.front());
    const ir::TensorType& other = type_of(gradient.symbol);
    return one.dtype == other.dtype && one.device == other.device;
  }

  Started start_average(const Bucket& bucket) {
    const ir::BoundSymbol& first = symbol(bucket.symbols.front());
    location_ = bucket.place == kNoPlace ? first.location : symbol(bucket.place).location;
    ir::ValueId value = joined(bucket);
    if (const auto* dtype = first.arguments[kDtype].get<ir::Dtype>()) value = cast(value, *dtype);
    const double factor = 1.0 / static_cast<double>(*first.arguments[kGroupSize].get<std::int64_t>());
    // Memory of its own, which the collective writes to.
    value = call(operators::kMul, "Scalar", {ir::Argument(value), factor}, result_.value(value).type);
    value = call(operators::kAllReduceInPlace, "", {ir::Argument(value), "sum", first.arguments[kGroup]},
                 result_.value(value).type);
    result_.symbols.back().comment = std::to_string(bucket.symbols.size()) + " gradients";
    return {&bucket, value};
  }

  /// The elements of all gradients in one row; one gradient stays as it is.
  ir::ValueId joined(const Bucket& bucket) {
    if (bucket.symbols.size() == 1) return value_argument(symbol(bucket.symbols.front()), kGradient);
    ir::ArgumentList rows;
    std::int64_t count = 0;
    for (const std::uint32_t i : bucket.symbols) {
      const std::int64_t elements = ir::element_count(type_of(i));
      rows.emplace_back(call(operators::kReshape, "",
                             {ir::Argument(value_argument(symbol(i), kGradient)), ir::ArgumentList{elements}},
                             row_type(i, elements)));
      count += elements;
    }
    return call(operators::kCat, "", {ir::Argument(std::move(rows)), 0}, row_type(bucket.symbols.front(), count));
  }

  /// Waits, and puts the averages in the places of the gradients: parts of the bucket.
  void finish_average(const Started& started) {
    const std::uint32_t first = started.bucket->symbols.front();
    location_ = symbol(first).location;
    ir::ValueId value =
        call(operators::kWaitTensor, "", {ir::Argument(started.value)}, result_.value(started.value).type);
    if (symbol(first).arguments[kDtype].is<ir::Dtype>()) value = cast(value, type_of(first).dtype);
    if (started.bucket->symbols.size() == 1) {
      replaced_.set(single_result(symbol(first)), ir::Argument(value));
      return;
    }
    std::int64_t begin = 0;
    for (const std::uint32_t i : started.bucket->symbols) {
      const std::int64_t end = begin + ir::element_count(type_of(i));
      replaced_.set(single_result(symbol(i)), ir::Argument(part(value, begin, end, i)));
      begin = end;
    }
  }

  ir::ValueId part(ir::ValueId bucket, std::int64_t begin, std::int64_t end, std::uint32_t i) {
    ir::TensorType row = *result_.tensor_type(bucket);
    row.sizes = {ir::Dim(end - begin)};
    row.storage_offset = ir::Dim(begin);
    const ir::ValueId elements =
        call(operators::kSlice, "Tensor", {ir::Argument(bucket), 0, begin, end, 1}, ir::make_type(row));
    ir::TensorType shaped = row;
    shaped.sizes = type_of(i).sizes;
    shaped.strides = ir::contiguous_strides(shaped.sizes);
    ir::ArgumentList sizes;
    for (const ir::Dim& size : shaped.sizes) sizes.emplace_back(size);
    return call(operators::kView, "", {ir::Argument(elements), ir::Argument(std::move(sizes))},
                ir::make_type(std::move(shaped)));
  }

  ir::ValueId cast(ir::ValueId value, ir::Dtype dtype) {
    ir::TensorType type = *result_.tensor_type(value);
    if (type.dtype == dtype) return value;
    type.dtype = dtype;
    return call(operators::kCast, "", {ir::Argument(value), dtype}, ir::make_type(std::move(type)));
  }

  [[nodiscard]] ir::TypePtr row_type(std::uint32_t i, std::int64_t count) const {
    return ir::tensor_type(type_of(i).dtype, {ir::Dim(count)}, type_of(i).device);
  }

  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, const ir::TypePtr& type) {
    return ir::add_call(result_, *find_operator_(name, overload), std::move(arguments), type, {}, location_);
  }

  const ir::Trace& trace_;
  FindOperator find_operator_;
  ir::Uses uses_;
  std::vector<bool> is_averaged_;  ///< by symbol: in a bucket
  ir::Substitution replaced_;
  ir::Trace result_;
  ir::SourceLocation location_;
};

ir::Trace fill_buckets(const ir::Trace& trace, FindOperator find_operator) {
  return Rewriter(trace, find_operator).run();
}

}  // namespace

/// Averages gradients over processes (`thunder::average_gradient`) in buckets, in the order in which they arise: an
/// `all_reduce` starts behind the last gradient of its bucket, while the backward goes on; all waits stand at the end.
/// The averages are views of the buckets. Gradients with an order of their own, for programs that differ between
/// processes, are put in buckets in that order.
constexpr Pass kGradientBuckets{"gradient_buckets", &fill_buckets};

}  // namespace thunder::passes
