#include "dispatch/met.h"

#include <bit>
#include <cstring>
#include <iterator>

#include "bridge/number.h"
#include "tracer/data_dependence.h"

namespace thunder::dispatch {
namespace {

void append_number(Met& met, const c10::Scalar& number) {
  met.push_back(static_cast<std::int64_t>(bridge::kind_of(number)));
  if (number.isComplex()) {
    met.push_back(std::bit_cast<std::int64_t>(number.toComplexDouble().real()));
    met.push_back(std::bit_cast<std::int64_t>(number.toComplexDouble().imag()));
  } else {
    met.push_back(number.isFloatingPoint() ? std::bit_cast<std::int64_t>(number.toDouble()) : number.toLong());
  }
}

void append_sizes(Met& met, at::IntArrayRef sizes) {
  met.push_back(std::ssize(sizes));
  met.insert(met.end(), sizes.begin(), sizes.end());
}

void append_contents(Met& met, const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().cpu().contiguous();
  met.push_back(static_cast<std::int64_t>(plain.scalar_type()));
  append_sizes(met, plain.sizes());
  const auto bytes = static_cast<std::size_t>(plain.nbytes());
  const std::size_t begin = met.size();
  met.resize(begin + (bytes + sizeof(std::int64_t) - 1) / sizeof(std::int64_t));
  std::memcpy(met.data() + begin, plain.const_data_ptr(), bytes);
}

void append_expected(Met& met, const ir::BoundSymbol& check, const ir::Trace& trace) {
  if (check.op == tracer::check_number_operator()) {
    append_number(met, tracer::scalar_of(check.arguments[1]));
  } else if (check.op == tracer::check_shape_operator()) {
    std::vector<std::int64_t> sizes;
    for (const ir::Argument& size : std::get<ir::ArgumentList>(check.arguments[1].content)) {
      sizes.push_back(std::get<std::int64_t>(size.content));
    }
    append_sizes(met, sizes);
  } else {
    append_contents(met, tracer::expected_contents(check, trace));
  }
}

}  // namespace

Met meet(const compile::Meeting& meeting, const std::vector<at::Tensor>& values) {
  Met met;
  for (const ir::ValueId id : meeting.values) {
    const at::Tensor& value = values[index_of(id)];
    if (meeting.check == tracer::check_number_operator()) {
      append_number(met, bridge::unwrap_number(value));
    } else if (meeting.check == tracer::check_shape_operator()) {
      append_sizes(met, value.sizes());
    } else {
      append_contents(met, value);
    }
  }
  return met;
}

std::vector<Met> expected_after(std::span<const compile::Piece> pieces, const ir::Trace& recorded) {
  std::vector<Met> all;
  std::size_t next = 0;
  for (const compile::Piece& piece : pieces) {
    Met& met = all.emplace_back();
    for (std::size_t i = 0; i < piece.meeting.values.size(); ++i) {
      while (!tracer::is_check(*recorded.symbols[next].op)) ++next;
      append_expected(met, recorded.symbols[next++], recorded);
    }
  }
  return all;
}

}  // namespace thunder::dispatch
