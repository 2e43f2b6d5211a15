#include "ir/generalization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "ir/location.h"
#include "ir/trace_sizes.h"

namespace thunder::ir {
namespace {

using Numbers = std::vector<std::int64_t>;

template <typename Visitor>
void for_each_size(const Argument& argument, const Visitor& visit) {
  if (const auto* dim = argument.get<Dim>()) visit(*dim);
  if (const auto* list = argument.get<ArgumentList>()) {
    for (const Argument& element : *list) for_each_size(element, visit);
  }
}

template <typename Visitor>
void for_each_size(const BoundSymbol& symbol, const Visitor& visit) {
  for (const Argument& argument : symbol.arguments) for_each_size(argument, visit);
  for (const BoundSymbol& nested : symbol.nested) for_each_size(nested, visit);
}

// --- samples

constexpr std::size_t kMostSamples = 7;
/// With fewer, a sum of two sizes and a number is no discovery.
constexpr std::size_t kLeastSamples = 5;

/// The value of symbol `i` of `count` in attempt `attempt`.
std::int64_t candidate(std::size_t attempt, std::size_t i, std::size_t count) {
  constexpr std::array<std::int64_t, 12> kSmall{5, 11, 7, 17, 13, 23, 19, 31, 29, 41, 37, 43};
  constexpr std::array<std::int64_t, 12> kLarge{4099, 5003, 4507, 6007, 5501, 7001, 6521, 8009, 7507, 9001, 8513, 9511};
  const std::size_t place = i % kSmall.size();
  const std::size_t turned = (count - 1 - i) % kSmall.size();
  switch (attempt) {
    case 0:
      return kSmall[place];
    case 1:
      return 100 + kSmall[turned];
    case 2:
      return count <= 4 ? kLarge[place] : 211 + 10 * kSmall[place];
    case 3:
      return 37;  // all equal
    case 4:
      return 2 + static_cast<std::int64_t>(i % 2);
    default:
      break;
  }
  // Numbers without a pattern, at first small ones.
  std::uint64_t state = (attempt * 64 + i + 1) * 0x9e3779b97f4a7c15U;
  state = (state ^ (state >> 29U)) * 0xbf58476d1ce4e5b9U;
  return 2 + static_cast<std::int64_t>((state >> 33U) % (std::uint64_t{8} << (attempt % 8)));
}

bool is_sample(const Trace& trace, const Numbers& symbols) {
  const auto holds_here = [&](const Condition& condition) { return holds(condition, symbols); };
  if (!std::ranges::all_of(trace.conditions, holds_here)) return false;
  for (std::uint32_t i = 0; i < trace.value_count(); ++i) {
    const TensorType* type = trace.tensor_type(ValueId{i});
    if (type == nullptr) continue;
    const auto is_large = [&](const Dim& size) { return size.is_concrete() || evaluate(size, symbols) >= 2; };
    if (!std::ranges::all_of(type->sizes, is_large)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::size_t> from_small_to_large(const SizeSamples& samples) {
  std::vector<std::size_t> places(samples.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  const auto sum = [&](std::size_t place) { return std::reduce(samples[place].begin(), samples[place].end()); };
  std::ranges::sort(places.begin() + 1, places.end(), {}, sum);
  return places;
}

SizeSamples sample_sizes(const Trace& trace) {
  constexpr std::size_t kAttempts = 200;
  constexpr std::size_t kMostMore = 3;
  const std::vector<SymbolSource> sources = symbol_sources(trace);
  SizeSamples samples{traced_symbols(trace)};
  if (!is_sample(trace, samples[0])) return {};
  const auto symbols_of = [&](std::size_t attempt) {
    Numbers symbols = samples[0];
    for (std::size_t i = 0; i < sources.size(); ++i) {
      symbols[sources[i].symbol] = candidate(attempt, i, sources.size());
    }
    for (const Condition& condition : trace.conditions) adjust_to(condition, symbols);
    return symbols;
  };
  std::size_t attempt = 0;
  for (; attempt < kAttempts && samples.size() < kMostSamples; ++attempt) {
    const Numbers symbols = symbols_of(attempt);
    if (std::ranges::find(samples, symbols) == samples.end() && is_sample(trace, symbols)) samples.push_back(symbols);
  }
  if (samples.size() < kLeastSamples) return {};
  // Some more, which tell expressions apart that the others do not.
  for (std::size_t more = 0; more < kMostMore; ++more) {
    SizeFit fit(samples);
    auto alike = fit.add_all(trace);
    std::ranges::move(fit.multiples_by_chance(), std::back_inserter(alike));
    const auto is_different = [](const Numbers& symbols) {
      return [&](const std::pair<Dim, Dim>& pair) {
        return evaluate(pair.first, symbols) != evaluate(pair.second, symbols);
      };
    };
    for (; !alike.empty() && attempt < 2 * kAttempts; ++attempt) {
      const Numbers symbols = symbols_of(attempt);
      if (!std::ranges::any_of(alike, is_different(symbols)) || !is_sample(trace, symbols)) continue;
      samples.push_back(symbols);
      break;
    }
  }
  return samples;
}

void adjust_to(const Condition& condition, std::vector<std::int64_t>& symbols) {
  if (holds(condition, symbols)) return;
  const auto left = symbol_of(condition.left);
  const auto right = symbol_of(condition.right);
  if (condition.kind == Condition::Kind::kEqual) {
    if (left) symbols[*left] = evaluate(condition.right, symbols);
    if (!left && right) symbols[*right] = evaluate(condition.left, symbols);
  } else if (condition.kind == Condition::Kind::kAtMost && right) {
    symbols[*right] += evaluate(condition.left, symbols);
  }
}

std::vector<Condition> equality_of(const Dim& left, const Dim& right) {
  using Kind = Condition::Kind;
  if (!left.is_concrete() && !right.is_concrete()) return {{Kind::kEqual, left, right}};
  return {{Kind::kAtMost, left, right}, {Kind::kAtMost, right, left}};
}

// --- expressions for numbers

namespace {

bool is_one_number(const Numbers& numbers) {
  return std::ranges::count(numbers, numbers[0]) == static_cast<std::ptrdiff_t>(numbers.size());
}

/// `factor` times `of` plus a number, if that is what the numbers are.
std::optional<Dim> as_multiple(const Numbers& numbers, const Numbers& of, const Dim& dim) {
  std::size_t other = 1;
  while (other < of.size() && of[other] == of[0]) ++other;
  if (other == of.size() || (numbers[other] - numbers[0]) % (of[other] - of[0]) != 0) return std::nullopt;
  const std::int64_t factor = (numbers[other] - numbers[0]) / (of[other] - of[0]);
  const std::int64_t rest = numbers[0] - factor * of[0];
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != factor * of[i] + rest) return std::nullopt;
  }
  return factor == 0 ? std::nullopt : std::optional(Dim(factor) * dim + Dim(rest));
}

}  // namespace

SizeFit::SizeFit(SizeSamples samples) : samples_(std::move(samples)) {}

std::size_t SizeFit::value_count(std::uint32_t symbol) const {
  std::set<std::int64_t> values;
  for (const Numbers& sample : samples_) values.insert(sample[symbol]);
  return values.size();
}

Numbers SizeFit::evaluate_all(const Dim& dim) const {
  Numbers numbers;
  for (const Numbers& sample : samples_) numbers.push_back(evaluate(dim, sample));
  return numbers;
}

std::optional<Dim> SizeFit::add(const Dim& dim) {
  if (dim.is_concrete()) return std::nullopt;
  const Numbers numbers = evaluate_all(dim);
  if (is_one_number(numbers)) return Dim(numbers[0]);
  const auto [place, is_new] = known_.try_emplace(numbers, dim);
  if (!is_new && place->second && *place->second != dim) return place->second;
  if (is_new || !place->second) keep(dim, numbers);
  place->second = dim;
  return std::nullopt;
}

std::vector<std::pair<Dim, Dim>> SizeFit::add_all(const Trace& trace) {
  std::vector<std::pair<Dim, Dim>> alike;
  const auto add_dim = [&](const Dim& dim) {
    if (const auto other = add(dim)) alike.emplace_back(dim, *other);
  };
  for (const SymbolSource& source : symbol_sources(trace)) {
    add_dim(Dim::symbol(source.symbol, samples_[0][source.symbol]));
  }
  for (std::uint32_t i = 0; i < trace.value_count(); ++i) {
    const TensorType* type = trace.tensor_type(ValueId{i});
    if (type == nullptr) continue;
    std::ranges::for_each(type->sizes, add_dim);
    std::ranges::for_each(type->strides, add_dim);
    add_dim(type->storage_offset);
    // The rows of a matrix product, which its derivative flattens.
    if (type->sizes.size() > 2) add_dim(product_of({type->sizes.begin(), type->sizes.end() - 1}));
  }
  for (const BoundSymbol& symbol : trace.symbols) for_each_size(symbol, add_dim);
  for (const Argument& output : trace.outputs) for_each_size(output, add_dim);
  return alike;
}

std::vector<std::pair<Dim, Dim>> SizeFit::multiples_by_chance() const {
  std::vector<std::pair<Dim, Dim>> found;
  for (std::size_t i = 0; i < expressions_.size(); ++i) {
    for (std::size_t j = 0; j < expressions_.size(); ++j) {
      const auto multiple = i == j ? std::nullopt : as_multiple(values_[i], values_[j], expressions_[j]);
      if (multiple && *multiple != expressions_[i]) found.emplace_back(expressions_[i], *multiple);
    }
  }
  return found;
}

void SizeFit::keep(const Dim& dim, const Numbers& numbers) {
  expressions_.push_back(dim);
  values_.push_back(numbers);
}

std::optional<Dim> SizeFit::find(const Numbers& numbers) {
  if (is_one_number(numbers)) return Dim(numbers[0]);
  const auto [place, is_new] = known_.try_emplace(numbers);
  if (!is_new) return place->second;
  place->second = derive(numbers);
  if (place->second) keep(*place->second, numbers);
  return place->second;
}

std::optional<Dim> SizeFit::derive(const Numbers& numbers) const {
  for (std::size_t i = 0; i < expressions_.size(); ++i) {
    if (auto found = as_multiple(numbers, values_[i], expressions_[i])) return found;
  }
  for (std::size_t i = 0; i < expressions_.size(); ++i) {
    for (const std::int64_t added : {0, 1}) {
      Numbers halves = values_[i];
      for (std::int64_t& each : halves) each = (each + added) >> 1;
      if (!as_multiple(numbers, halves, 0)) continue;
      return as_multiple(numbers, halves, floor_divide(expressions_[i] + Dim(added), 2));
    }
  }
  const auto all = [&](const auto& is_equal) {
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      if (!is_equal(k)) return false;
    }
    return true;
  };
  for (std::size_t i = 0; i < expressions_.size(); ++i) {
    for (std::size_t j = 0; j < expressions_.size(); ++j) {
      const Dim& left = expressions_[i];
      const Dim& right = expressions_[j];
      const auto quotient_of_product = [&](std::size_t k) { return numbers[k] % (values_[i][k] * values_[j][k]) == 0; };
      const auto is_divisor = [&](std::size_t k) { return values_[i][k] * values_[j][k] != 0; };
      if (j >= i && all(is_divisor) && all(quotient_of_product)) {
        const std::int64_t factor = numbers[0] / (values_[i][0] * values_[j][0]);
        const auto is_product = [&](std::size_t k) { return numbers[k] == factor * values_[i][k] * values_[j][k]; };
        if (all(is_product)) return Dim(factor) * left * right;
      }
      if (j > i && all([&](std::size_t k) { return numbers[k] == values_[i][k] + values_[j][k]; })) return left + right;
      if (all([&](std::size_t k) { return numbers[k] == values_[i][k] - values_[j][k]; })) return left - right;
      if (!all([&](std::size_t k) { return numbers[k] * values_[j][k] == values_[i][k]; })) continue;
      if (auto quotient = exact_quotient(left, right)) return quotient;
    }
  }
  return std::nullopt;
}

// --- traces

namespace {

class Generalization {
 public:
  Generalization(std::span<const Trace> traces, SizeFit& fit, const AreAlike& are_alike)
      : traces_(traces), fit_(fit), are_alike_(are_alike) {}

  Trace run() {
    const Trace& first = traces_[0];
    for (const Trace& trace : traces_) {
      const bool is_alike = trace.symbols.size() == first.symbols.size() && trace.inputs == first.inputs &&
                            trace.value_count() == first.value_count() &&
                            trace.outputs.size() == first.outputs.size() &&
                            trace.memory_of_inputs == first.memory_of_inputs;
      if (!is_alike) find_difference(trace);
    }
    Trace result = first;
    for (std::size_t i = 0; i < result.symbols.size(); ++i) {
      generalize(result.symbols[i], [i](const Trace& trace) -> const BoundSymbol& { return trace.symbols[i]; });
    }
    symbol_ = nullptr;
    for (std::size_t i = 0; i < result.outputs.size(); ++i) {
      result.outputs[i] =
          generalize(GetArgument([i](const Trace& trace) -> const Argument& { return trace.outputs[i]; }));
    }
    for (std::uint32_t i = 0; i < result.value_count(); ++i) generalize_type(result, ValueId{i});
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    const std::string where = symbol_ == nullptr
                                  ? std::string()
                                  : symbol_->op->name + describe_line(symbol_->location, " (called in ", ")") + ": ";
    throw UserError(ErrorKind::kNotImplemented, where + "expected the same operations at all sizes, got " + reason);
  }

  /// Traces of other lengths: names the first operation in which they differ.
  [[noreturn]] void find_difference(const Trace& trace) {
    const Trace& first = traces_[0];
    for (std::size_t i = 0; i < first.symbols.size(); ++i) {
      symbol_ = &first.symbols[i];
      if (i >= trace.symbols.size()) fail("fewer");
      if (trace.symbols[i].op != symbol_->op) fail("`" + trace.symbols[i].op->name + "` at others");
    }
    fail("more");
  }

  using GetSymbol = std::function<const BoundSymbol&(const Trace&)>;
  using GetArgument = std::function<const Argument&(const Trace&)>;

  /// `get(trace)` is the symbol in a trace.
  void generalize(BoundSymbol& symbol, const GetSymbol& get) {
    const BoundSymbol& first = get(traces_[0]);
    symbol_ = &first;
    for (const Trace& trace : traces_) {
      const BoundSymbol& other = get(trace);
      if (other.op != first.op) fail("`" + other.op->name + "` at others");
      const bool is_alike = other.arguments.size() == first.arguments.size() &&
                            other.nested.size() == first.nested.size() && identical(other.results, first.results);
      if (!is_alike) fail("another call of it at others");
    }
    for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
      symbol.arguments[i] =
          generalize(GetArgument([&get, i](const Trace& trace) -> const Argument& { return get(trace).arguments[i]; }));
    }
    for (std::size_t i = 0; i < symbol.nested.size(); ++i) {
      generalize(symbol.nested[i],
                 [&get, i](const Trace& trace) -> const BoundSymbol& { return get(trace).nested[i]; });
      symbol_ = &first;
    }
  }

  /// `get(trace)` is the argument in a trace.
  Argument generalize(const GetArgument& get) {
    const Argument& first = get(traces_[0]);
    if (const auto* list = first.get<ArgumentList>()) {
      ArgumentList result;
      for (const Trace& trace : traces_) {
        const auto* other = get(trace).get<ArgumentList>();
        if (other == nullptr || other->size() != list->size()) fail("lists of other lengths");
      }
      for (std::size_t i = 0; i < list->size(); ++i) {
        result.push_back(generalize(GetArgument([&get, i](const Trace& trace) -> const Argument& {
          return std::get<ArgumentList>(get(trace).content)[i];
        })));
      }
      return Argument(std::move(result));
    }
    if (const auto* object = first.get<ObjectConstant>()) {
      const auto is_alike = [&](const Trace& trace) {
        const auto* other = get(trace).get<ObjectConstant>();
        return other != nullptr && (*other == *object || are_alike_(*object, *other));
      };
      if (!std::ranges::all_of(traces_, is_alike)) fail("other objects");
      return first;
    }
    const auto is_identical = [&](const Trace& trace) { return identical(get(trace), first); };
    if (std::ranges::all_of(traces_, is_identical)) return first;
    return Argument(fit(whole_numbers(get)));
  }

  /// The numbers that an argument is. Of floating-point numbers only where it says the same as an integer.
  Numbers whole_numbers(const GetArgument& get) const {
    Numbers numbers;
    for (const Trace& trace : traces_) {
      const Argument& argument = get(trace);
      const auto* integer = argument.get<std::int64_t>();
      const auto* number = argument.get<double>();
      const bool is_whole = number != nullptr && std::trunc(*number) == *number && std::abs(*number) < 1e15;
      if (integer == nullptr && !(is_whole && computes_with_floats())) fail("an argument that is no size");
      numbers.push_back(integer != nullptr ? *integer : static_cast<std::int64_t>(*number));
    }
    return numbers;
  }

  [[nodiscard]] bool computes_with_floats() const {
    bool are_floats = symbol_ != nullptr;
    const auto look = [&](ValueId id) {
      const TensorType* type = traces_[0].tensor_type(id);
      are_floats = are_floats && type != nullptr && is_floating_point(type->dtype);
    };
    if (symbol_ == nullptr) return false;
    for (const Argument& argument : symbol_->arguments) for_each_value(argument, look);
    for (const Argument& result : symbol_->results) for_each_value(result, look);
    return are_floats;
  }

  Dim fit(const Numbers& numbers) {
    if (const auto found = fit_.find(numbers)) {
      Dim dim = *found;
      dim.hint = numbers[0];
      return dim;
    }
    std::string text;
    for (const std::int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
    fail("a number that is no known function of them (" + text + ")");
  }

  void generalize_type(Trace& result, ValueId id) {
    const TypePtr& first = traces_[0].value(id).type;
    for (const Trace& trace : traces_) {
      const TypePtr& other = trace.value(id).type;
      if ((first == nullptr) != (other == nullptr)) fail("other types");
      if (first != nullptr && first->index() != other->index()) fail("other types");
    }
    const TensorType* tensor = traces_[0].tensor_type(id);
    if (tensor == nullptr) return;
    TensorType type = *tensor;
    for (const Trace& trace : traces_) {
      const TensorType& other = *trace.tensor_type(id);
      const bool is_alike = other.dtype == type.dtype && other.device == type.device && other.layout == type.layout &&
                            other.requires_grad == type.requires_grad && other.sizes.size() == type.sizes.size() &&
                            other.strides.size() == type.strides.size();
      if (!is_alike) fail("another kind of tensor");
    }
    const auto fit_all = [&](const auto& get) {
      Numbers numbers;
      for (const Trace& trace : traces_) numbers.push_back(get(*trace.tensor_type(id)).hint);
      return fit(numbers);
    };
    for (std::size_t d = 0; d < type.sizes.size(); ++d) {
      type.sizes[d] = fit_all([d](const TensorType& other) -> const Dim& { return other.sizes[d]; });
    }
    // The innermost one first: the next one is then a product of two that are known.
    std::vector<std::size_t> order(type.strides.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t d) { return tensor->strides[d].hint; });
    for (const std::size_t d : order) {
      type.strides[d] = fit_all([d](const TensorType& other) -> const Dim& { return other.strides[d]; });
    }
    fit_.add(product_of(type.sizes));
    type.storage_offset = fit_all([](const TensorType& other) -> const Dim& { return other.storage_offset; });
    if (type != *tensor) result.set_type(id, make_type(std::move(type)));
  }

  std::span<const Trace> traces_;
  SizeFit& fit_;
  const AreAlike& are_alike_;
  const BoundSymbol* symbol_ = nullptr;  ///< that is looked at, for errors
};

}  // namespace

Trace generalize(std::span<const Trace> traces, SizeFit& fit, const AreAlike& are_alike) {
  THUNDER_CHECK(!traces.empty() && traces.size() == fit.samples().size(), "ir/generalization",
                "expected one trace for each sample");
  return Generalization(traces, fit, are_alike).run();
}

namespace {

/// A number of one trace in another one, whose numbers may be integers where those are floating-point.
bool is_same_argument(const Argument& left, const Argument& right, const AreAlike& are_alike) {
  const auto* list = left.get<ArgumentList>();
  const auto* other_list = right.get<ArgumentList>();
  if (list != nullptr && other_list != nullptr) {
    const auto is_same = [&](const Argument& a, const Argument& b) { return is_same_argument(a, b, are_alike); };
    return std::ranges::equal(*list, *other_list, is_same);
  }
  const auto* object = left.get<ObjectConstant>();
  const auto* other_object = right.get<ObjectConstant>();
  if (object != nullptr && other_object != nullptr)
    return *object == *other_object || are_alike(*object, *other_object);
  const auto* integer = left.get<std::int64_t>();
  const auto* number = right.get<double>();
  if (integer != nullptr && number != nullptr) return static_cast<double>(*integer) == *number;
  return identical(left, right);
}

bool is_same_symbol(const BoundSymbol& left, const BoundSymbol& right, const AreAlike& are_alike) {
  const auto is_same = [&](const Argument& a, const Argument& b) { return is_same_argument(a, b, are_alike); };
  const auto is_same_part = [&](const BoundSymbol& a, const BoundSymbol& b) { return is_same_symbol(a, b, are_alike); };
  return left.op == right.op && identical(left.results, right.results) &&
         std::ranges::equal(left.arguments, right.arguments, is_same) &&
         std::ranges::equal(left.nested, right.nested, is_same_part);
}

}  // namespace

bool is_at_sizes(const Trace& general, SymbolValues symbols, const Trace& trace, const AreAlike& are_alike) {
  const Trace bound = at_sizes(general, symbols);
  const auto is_same = [&](const BoundSymbol& a, const BoundSymbol& b) { return is_same_symbol(a, b, are_alike); };
  const auto is_same_output = [&](const Argument& a, const Argument& b) { return is_same_argument(a, b, are_alike); };
  if (bound.inputs != trace.inputs || bound.value_count() != trace.value_count()) return false;
  if (!std::ranges::equal(bound.symbols, trace.symbols, is_same)) return false;
  if (!std::ranges::equal(bound.outputs, trace.outputs, is_same_output)) return false;
  for (std::uint32_t i = 0; i < bound.value_count(); ++i) {
    const TypePtr& left = bound.value(ValueId{i}).type;
    const TypePtr& right = trace.value(ValueId{i}).type;
    if ((left == nullptr) != (right == nullptr) || (left != nullptr && *left != *right)) return false;
  }
  return true;
}

void require_sizes_of_two(Trace& trace, const Trace& sizes_of) {
  for (std::uint32_t i = 0; i < sizes_of.value_count(); ++i) {
    const TensorType* type = sizes_of.tensor_type(ValueId{i});
    for (std::size_t d = 0; type != nullptr && d < type->sizes.size(); ++d) {
      const Dim& size = type->sizes[d];
      const std::optional<std::int64_t> least = size.is_concrete() ? 2 : least_value(size);
      if (least && *least >= 2) continue;
      if (size.hint < 2) {
        throw UserError(ErrorKind::kNotImplemented,
                        "expected sizes of two or more, got " + to_string(size) + " = " + std::to_string(size.hint));
      }
      Condition condition{Condition::Kind::kAtMost, Dim(2), size};
      if (std::ranges::find(trace.conditions, condition) == trace.conditions.end()) {
        trace.conditions.push_back(std::move(condition));
      }
    }
  }
}

}  // namespace thunder::ir
