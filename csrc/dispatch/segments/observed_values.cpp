#include "dispatch/segments/observed_values.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "bridge/number.h"
#include "tracer/data_dependence.h"

namespace thunder::dispatch {
namespace {

void append_number(Observed& observed, const c10::Scalar& number) {
  observed.push_back(static_cast<std::int64_t>(bridge::kind_of(number)));
  if (number.isComplex()) {
    observed.push_back(std::bit_cast<std::int64_t>(number.toComplexDouble().real()));
    observed.push_back(std::bit_cast<std::int64_t>(number.toComplexDouble().imag()));
  } else {
    observed.push_back(number.isFloatingPoint() ? std::bit_cast<std::int64_t>(number.toDouble()) : number.toLong());
  }
}

void append_sizes(Observed& observed, at::IntArrayRef sizes) {
  observed.push_back(std::ssize(sizes));
  observed.insert(observed.end(), sizes.begin(), sizes.end());
}

void append_contents(Observed& observed, const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().cpu().contiguous();
  observed.push_back(static_cast<std::int64_t>(plain.scalar_type()));
  append_sizes(observed, plain.sizes());
  const auto bytes = static_cast<std::size_t>(plain.nbytes());
  const std::size_t begin = observed.size();
  observed.resize(begin + (bytes + sizeof(std::int64_t) - 1) / sizeof(std::int64_t));
  std::memcpy(observed.data() + begin, plain.const_data_ptr(), bytes);
}

void append_expected(Expected& expected, const ir::BoundSymbol& check, const ir::Trace& trace) {
  if (check.op == tracer::check_shape_operator()) {
    const auto& sizes = std::get<ir::ArgumentList>(check.arguments[1].content);
    expected.emplace_back(std::ssize(sizes));
    for (const ir::Argument& size : sizes) {
      const auto* dim = size.get<ir::Dim>();
      expected.push_back(dim != nullptr ? *dim : ir::Dim(std::get<std::int64_t>(size.content)));
    }
    return;
  }
  Observed observed;
  if (check.op == tracer::check_number_operator()) {
    append_number(observed, tracer::scalar_of(check.arguments[1]));
  } else {
    append_contents(observed, tracer::expected_contents(check, trace));
  }
  expected.insert(expected.end(), observed.begin(), observed.end());
}

}  // namespace

Observed observe(const Observation& observation, const std::vector<at::Tensor>& values) {
  Observed observed;
  for (const ir::ValueId id : observation.values) {
    const at::Tensor& value = values[index_of(id)];
    if (observation.check == tracer::check_number_operator()) {
      append_number(observed, bridge::unwrap_number(value));
    } else if (observation.check == tracer::check_shape_operator()) {
      append_sizes(observed, value.sizes());
    } else {
      append_contents(observed, value);
    }
  }
  return observed;
}

bool may_be(const Expected& expected, const Observed& observed) {
  const auto may_be_equal = [](const ir::Dim& dim, std::int64_t number) {
    return !dim.is_concrete() || dim.hint == number;
  };
  return std::ranges::equal(expected, observed, may_be_equal);
}

std::vector<Expected> expected_after(std::span<const Segment> segments, const ir::Trace& recorded) {
  std::vector<Expected> all;
  std::size_t next = 0;
  for (const Segment& segment : segments) {
    Expected& expected = all.emplace_back();
    for (std::size_t i = 0; i < segment.observation.values.size(); ++i) {
      while (!tracer::is_check(*recorded.symbols[next].op)) ++next;
      append_expected(expected, recorded.symbols[next++], recorded);
    }
  }
  return all;
}

}  // namespace thunder::dispatch
