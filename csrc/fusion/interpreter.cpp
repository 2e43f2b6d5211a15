#include "fusion/interpreter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/philox.h"
#include "fusion/element_arithmetic.h"

namespace thunder::fusion {
namespace {

using SizedAccess = BasicAccess<std::int64_t>;
using SizedInterval = BasicInterval<std::int64_t>;
using SizedPart = BasicPart<std::int64_t>;

bool is_integer(ComputeType type) { return type == ComputeType::kInteger || type == ComputeType::kBool; }

/// The elements of a value, row by row.
struct Elements {
  ComputeType type = ComputeType::kFloat;
  Extent extent = Extent::kElements;
  std::vector<double> reals;
  std::vector<std::int64_t> integers;

  [[nodiscard]] double real(std::size_t i) const {
    return is_integer(type) ? static_cast<double>(integers[i]) : reals[i];
  }
  [[nodiscard]] std::int64_t integer(std::size_t i) const {
    return is_integer(type) ? integers[i] : static_cast<std::int64_t>(reals[i]);
  }
};

class Interpreter {
 public:
  Interpreter(const SizedKernel& kernel, std::span<KernelArray> arrays)
      : kernel_(kernel),
        domain_(kernel.domain),
        arrays_(arrays),
        rows_(std::accumulate(domain_.outer.begin(), domain_.outer.end(), std::int64_t{1}, std::multiplies<>())),
        columns_(domain_.columns),
        totals_(kernel.sums.size()) {}

  bool run() {
    for (const KernelNode& node : kernel_.nodes) {
      values_.push_back(make(node));
      step(node, values_.back());
      if (!in_bounds_) return false;
    }
    return true;
  }

 private:
  using Kind = KernelNode::Kind;

  [[nodiscard]] const Elements& operand(const KernelNode& node, std::size_t i = 0) const {
    return values_[node.operands[i]];
  }
  [[nodiscard]] std::size_t count(Extent extent) const {
    if (extent == Extent::kConstant) return 1;
    return static_cast<std::size_t>(extent == Extent::kRows ? rows_ : rows_ * columns_);
  }
  [[nodiscard]] Elements make(const KernelNode& node) const {
    Elements made{node.type, node.extent, {}, {}};
    if (node.kind >= Kind::kStore) return made;
    is_integer(node.type) ? made.integers.resize(count(node.extent)) : made.reals.resize(count(node.extent));
    return made;
  }
  /// Where a value of one extent has what belongs to element `i` of another.
  [[nodiscard]] std::size_t place(const Elements& value, Extent extent, std::size_t i) const {
    if (value.extent == Extent::kConstant) return 0;
    const bool is_row = value.extent == Extent::kRows && extent == Extent::kElements;
    return is_row ? i / static_cast<std::size_t>(columns_) : i;
  }
  template <typename Visit>
  void for_each(Extent extent, const Visit& visit) const {
    for (std::size_t i = 0; i < count(extent); ++i) visit(i);
  }
  static void put(Elements& value, std::size_t i, const Elements& from, std::size_t j) {
    if (is_integer(value.type)) {
      value.integers[i] = from.integer(j);
    } else {
      value.reals[i] = from.real(j);
    }
  }

  // --- memory

  [[nodiscard]] std::vector<std::int64_t> row_index(std::int64_t row) const {
    std::vector<std::int64_t> index(domain_.outer.size());
    for (std::size_t i = index.size(); i-- > 0; row /= domain_.outer[i]) index[i] = row % domain_.outer[i];
    return index;
  }
  [[nodiscard]] std::int64_t row_of(Extent extent, std::size_t i) const {
    return static_cast<std::int64_t>(extent == Extent::kElements ? i / static_cast<std::size_t>(columns_) : i);
  }
  [[nodiscard]] std::int64_t column_of(Extent extent, std::size_t i) const {
    return extent == Extent::kElements ? static_cast<std::int64_t>(i) % columns_ : 0;
  }
  [[nodiscard]] static std::int64_t column_offset(const SizedAccess& access, std::int64_t column) {
    if (access.run == 0) return column * access.inner_stride;
    return column / access.run * access.run_stride + column % access.run * access.inner_stride;
  }
  [[nodiscard]] std::int64_t offset(const SizedAccess& access, Extent extent, std::size_t i) const {
    const std::vector<std::int64_t> index = row_index(row_of(extent, i));
    std::int64_t result = column_offset(access, column_of(extent, i));
    for (std::size_t d = 0; d < index.size(); ++d) result += index[d] * access.outer_strides[d];
    return result;
  }
  /// In an array that lies as the domain, or its rows, do.
  [[nodiscard]] std::int64_t dense_offset(Extent extent, std::size_t i) const {
    const std::int64_t row = row_of(extent, i);
    const std::int64_t column = column_of(extent, i);
    if (extent != Extent::kElements) return row;
    if (domain_.interleaved) {
      const std::int64_t height = domain_.outer.back();
      return (row / height * columns_ + column) * height + row % height;
    }
    if (domain_.run == 0) return row * columns_ + column;
    return (column / domain_.run * rows_ + row) * domain_.run + column % domain_.run;
  }
  /// nullopt: the element is not in the part.
  [[nodiscard]] std::optional<std::int64_t> offset_in(const SizedPart& part, std::int64_t run, std::size_t i) const {
    const std::vector<std::int64_t> index = row_index(row_of(Extent::kElements, i));
    std::int64_t result = 0;
    const auto add = [&](const SizedInterval& interval, std::int64_t at) {
      result += (at - interval.begin) * interval.stride;
      return at >= interval.begin && at < interval.end;
    };
    bool is_inside = true;
    for (std::size_t d = 0; d < index.size(); ++d) is_inside = add(part.outer[d], index[d]) && is_inside;
    const std::int64_t width = run == 0 ? columns_ : run;
    const std::int64_t column = column_of(Extent::kElements, i);
    is_inside = add(part.runs, column / width) && is_inside;
    is_inside = add(part.columns, column % width) && is_inside;
    return is_inside ? std::make_optional(result) : std::nullopt;
  }

  void read(Elements& value, std::size_t i, std::uint32_t array, std::int64_t at) const {
    const KernelArray& from = arrays_[array];
    if (is_integer(value.type)) {
      value.integers[i] = from.integers[static_cast<std::size_t>(at)];
    } else {
      value.reals[i] = from.reals[static_cast<std::size_t>(at)];
    }
  }
  void write(std::uint32_t array, std::int64_t at, double real, std::int64_t integer) const {
    KernelArray& to = arrays_[array];
    if (is_integer(compute_type(to.dtype))) {
      to.integers[static_cast<std::size_t>(at)] = integer;
    } else {
      to.reals[static_cast<std::size_t>(at)] = round_to(real, to.dtype);
    }
  }
  void write_real(std::optional<std::uint32_t> array, std::int64_t at, double real) const {
    if (array) write(*array, at, real, static_cast<std::int64_t>(real));
  }

  // --- steps

  void step(const KernelNode& node, Elements& value) {
    switch (node.kind) {
      case Kind::kLoad:
        return load(node, value);
      case Kind::kGather:
        return gather(node, value);
      case Kind::kAssemble:
        return assemble(node, value);
      case Kind::kRandom:
        for (std::size_t i = 0; i < value.reals.size(); ++i) {
          const std::vector<std::int64_t>& state = arrays_[kernel_.accesses[node.index].array].integers;
          value.reals[i] = philox::uniform_at(state.data(), dense_offset(Extent::kElements, i));
        }
        return;
      case Kind::kRatio:
        return;  // a sized kernel has none
      case Kind::kConstant:
        if (is_integer(node.type)) {
          value.integers[0] = node.type == ComputeType::kBool ? node.number != 0 : node.integer;
        } else {
          value.reals[0] = node.type == ComputeType::kFloat ? round_to(node.number, ir::Dtype::kFloat32) : node.number;
        }
        return;
      case Kind::kElement:
        return element(node, value);
      case Kind::kRound:
        return for_each(node.extent, [&](std::size_t i) {
          if (is_integer(node.type)) {
            value.integers[i] = wrap_to(operand(node).integers[i], node.dtype);
          } else {
            value.reals[i] = round_to(operand(node).reals[i], node.dtype);
          }
        });
      case Kind::kConvert:
        return for_each(node.extent, [&](std::size_t i) {
          put(value, i, operand(node), i);
          if (node.type == ComputeType::kBool) value.integers[i] = operand(node).real(i) != 0;
        });
      case Kind::kExpand:
        return for_each(node.extent,
                        [&](std::size_t i) { put(value, i, operand(node), place(operand(node), node.extent, i)); });
      case Kind::kReduce:
        return reduce(node, value);
      case Kind::kMean:
      case Kind::kVariance:
        return moments(node, value);
      case Kind::kPick:
        return pick(node, value);
      case Kind::kScatterAdd:
        return scatter_add(node, value);
      case Kind::kStore:
        return store(node);
      case Kind::kColumnSum:
      case Kind::kColumnMoments:
        return column_sums(node);
      case Kind::kTotal:
        return total(node);
    }
  }

  void load(const KernelNode& node, Elements& value) const {
    const SizedAccess& access = kernel_.accesses[node.index];
    for_each(node.extent, [&](std::size_t i) { read(value, i, access.array, offset(access, node.extent, i)); });
  }

  void gather(const KernelNode& node, Elements& value) {
    const SizedAccess& table = kernel_.accesses[node.index];
    for_each(node.extent, [&](std::size_t i) {
      const std::int64_t row = operand(node).integer(place(operand(node), node.extent, i));
      if (row < 0 || row >= table.table_rows) {
        in_bounds_ = false;
      } else {
        const std::int64_t at = row * table.table_stride + column_of(node.extent, i) * table.inner_stride;
        read(value, i, table.array, at);
      }
    });
  }

  void assemble(const KernelNode& node, Elements& value) const {
    const SizedAccess& access = kernel_.accesses[node.index];
    for_each(node.extent, [&](std::size_t i) {
      if (node.operand_count != 0) put(value, i, operand(node), place(operand(node), node.extent, i));
      for (const SizedPart& part : access.parts) {
        if (const auto at = offset_in(part, access.run, i)) read(value, i, part.array, *at);
      }
    });
  }

  void element(const KernelNode& node, Elements& value) const {
    for_each(node.extent, [&](std::size_t i) {
      double reals[3] = {0, 0, 0};
      std::int64_t integers[3] = {0, 0, 0};
      bool are_integers = true;
      for (std::size_t k = 0; k < node.operand_count; ++k) {
        const Elements& from = operand(node, k);
        const std::size_t at = place(from, node.extent, i);
        reals[k] = from.real(at);
        // A value that is compared with one from memory is equal to it where both were computed alike.
        if (operators::is_comparison(node.op) && from.type == ComputeType::kFloat) {
          reals[k] = round_to(reals[k], ir::Dtype::kFloat32);
        }
        integers[k] = from.integer(at);
        are_integers = are_integers && is_integer(from.type);
      }
      if (is_integer(node.type)) {
        value.integers[i] = are_integers ? compute(node.op, integers[0], integers[1], integers[2])
                                         : static_cast<std::int64_t>(compute(node.op, reals[0], reals[1], reals[2]));
      } else {
        value.reals[i] = compute(node.op, reals[0], reals[1], reals[2]);
      }
    });
  }

  void reduce(const KernelNode& node, Elements& value) const {
    const Elements& from = operand(node);
    const ElementOp op = node.reduction == Reduction::kSum   ? ElementOp::kAdd
                         : node.reduction == Reduction::kMax ? ElementOp::kMaximum
                                                             : ElementOp::kMinimum;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto first = static_cast<std::size_t>(row * columns_);
      const auto to = static_cast<std::size_t>(row);
      put(value, to, from, first);
      for (std::size_t i = first + 1; i < first + static_cast<std::size_t>(columns_); ++i) {
        if (is_integer(value.type)) {
          value.integers[to] = compute(op, value.integers[to], from.integer(i), 0);
        } else {
          value.reals[to] = compute(op, value.reals[to], from.real(i), 0);
        }
      }
    }
  }

  /// Mean, and variance of a population times its size, of the elements that `at` gives.
  template <typename At>
  [[nodiscard]] static std::pair<double, double> moments_of(std::int64_t count, const At& at) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += at(i);
    const double mean = sum / static_cast<double>(count);
    double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) squares += (at(i) - mean) * (at(i) - mean);
    return {mean, squares};
  }
  void moments(const KernelNode& node, Elements& value) const {
    const bool is_mean = node.kind == Kind::kMean;
    const Elements& from = operand(node, is_mean ? 0 : 1);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto at = [&](std::int64_t i) { return from.real(static_cast<std::size_t>(row * columns_ + i)); };
      const auto [mean, squares] = moments_of(columns_, at);
      value.reals[static_cast<std::size_t>(row)] =
          is_mean ? mean : squares / (static_cast<double>(columns_) - node.number);
    }
  }

  /// The element of row `row` at the column that `columns` says; nullopt: there is none.
  std::optional<std::size_t> element_at(const Elements& columns, std::int64_t row) {
    const std::int64_t column = columns.integer(place(columns, Extent::kRows, static_cast<std::size_t>(row)));
    if (column < 0 || column >= columns_) {
      in_bounds_ = false;
      return std::nullopt;
    }
    return static_cast<std::size_t>(row * columns_ + column);
  }
  void pick(const KernelNode& node, Elements& value) {
    for (std::int64_t row = 0; row < rows_; ++row) {
      if (const auto at = element_at(operand(node, 1), row))
        put(value, static_cast<std::size_t>(row), operand(node), *at);
    }
  }
  void scatter_add(const KernelNode& node, Elements& value) {
    for_each(node.extent, [&](std::size_t i) { put(value, i, operand(node), i); });
    const Elements& added = operand(node, 2);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto at = element_at(operand(node, 1), row);
      if (!at) continue;
      const std::size_t from = place(added, Extent::kRows, static_cast<std::size_t>(row));
      if (is_integer(value.type)) {
        value.integers[*at] += added.integer(from);
      } else {
        value.reals[*at] += added.real(from);
      }
    }
  }

  void store(const KernelNode& node) {
    const SizedAccess& access = kernel_.accesses[node.index];
    const Elements& from = operand(node);
    if (node.operand_count > 1) return store_rows(node, access);
    for_each(node.extent, [&](std::size_t i) {
      if (access.is_dense) {
        write(access.array, dense_offset(node.extent, i), from.real(i), from.integer(i));
      } else if (access.parts.empty()) {
        write(access.array, offset(access, node.extent, i), from.real(i), from.integer(i));
      } else if (const auto at = offset_in(access.parts[0], access.run, i)) {
        write(access.parts[0].array, *at, from.real(i), from.integer(i));
      }
    });
  }

  void store_rows(const KernelNode& node, const SizedAccess& table) {
    const Elements& from = operand(node);
    const Elements& rows = operand(node, 1);
    for_each(node.extent, [&](std::size_t i) {
      const std::int64_t row = rows.integer(place(rows, node.extent, i));
      if (row < 0 || row >= table.table_rows) {
        in_bounds_ = false;
        return;
      }
      write(table.array, offset(table, node.extent, i) + row * table.table_stride, from.real(i), from.integer(i));
    });
  }

  void column_sums(const KernelNode& node) const {
    const auto& sum = kernel_.sums[node.index];
    const Elements& from = operand(node);
    const std::int64_t height = rows_ / sum.blocks;
    for (std::int64_t block = 0; block < sum.blocks; ++block) {
      for (std::int64_t column = 0; column < columns_; ++column) {
        const auto at = [&](std::int64_t i) {
          return from.real(static_cast<std::size_t>((block * height + i) * columns_ + column));
        };
        const auto [mean, squares] = moments_of(height, at);
        const std::int64_t place = block * columns_ + column;
        if (node.kind == Kind::kColumnSum) {
          write_real(sum.array, place, mean * static_cast<double>(height) * sum.scale);
        } else {
          write_real(sum.array, place, mean);
          write_real(sum.variance, place, squares / static_cast<double>(height) * sum.scale);
        }
      }
    }
  }

  void total(const KernelNode& node) {
    const auto& sum = kernel_.sums[node.index];
    double all = 0;
    for_each(node.extent, [&](std::size_t i) { all += operand(node).real(i); });
    totals_[node.index] = all * sum.scale;
    write_real(sum.array, 0, sum.divisor ? all * sum.scale / totals_[*sum.divisor] : all * sum.scale);
  }

  const SizedKernel& kernel_;
  const BasicDomain<std::int64_t>& domain_;
  std::span<KernelArray> arrays_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<Elements> values_;
  std::vector<double> totals_;
  bool in_bounds_ = true;
};

}  // namespace

bool interpret(const SizedKernel& kernel, std::span<KernelArray> arrays) { return Interpreter(kernel, arrays).run(); }

}  // namespace thunder::fusion
