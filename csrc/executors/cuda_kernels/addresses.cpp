#include "executors/cuda_kernels/addresses.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "executors/cuda_kernels/element_text.h"

namespace thunder::executors::cuda {
namespace {

using fusion::Extent;
using SizedInterval = fusion::BasicInterval<std::int64_t>;

/// Threads of a last thread block may compute places behind the end.
constexpr double kMostBehind = 1 << 17;

double reach(std::int64_t size, std::int64_t stride) {
  return static_cast<double>(size) * std::abs(static_cast<double>(stride));
}

double reach_of(const Addresses::Part& part, const fusion::BasicDomain<std::int64_t>& domain) {
  double total = reach(domain.columns, part.columns.stride) + reach(domain.columns, part.runs.stride);
  for (std::size_t i = 0; i < part.outer.size(); ++i) total += reach(domain.outer[i], part.outer[i].stride);
  return total;
}

double reach_of(const Addresses::Access& access, const fusion::BasicDomain<std::int64_t>& domain) {
  double total = reach(domain.columns, access.inner_stride) + reach(access.table_rows, access.table_stride);
  for (std::size_t i = 0; i < access.outer_strides.size(); ++i)
    total += reach(domain.outer[i], access.outer_strides[i]);
  if (access.run != 0) total += reach(domain.columns / access.run, access.run_stride);
  for (const Addresses::Part& part : access.parts) total = std::max(total, reach_of(part, domain));
  return total;
}

}  // namespace

void Addresses::declare_indices(Lines& to) {
  const std::vector<std::int64_t>& outer = kernel_.domain.outer;
  if (outer.empty()) return;
  to.add("Index rest = row;");
  for (std::size_t i = outer.size(); i-- > 1;) {
    const std::string size = numbers_.index(outer[i], "size");
    to.add("const Index i", i, " = rest % ", size, ";");
    to.add("rest /= ", size, ";");
  }
  to.add("const Index i0 = rest;");
}

std::string Addresses::row_offset(const Access& access) {
  if (access.is_dense) {
    if (access.extent != Extent::kElements) return "row";
    const bool begins_at_row = !kernel_.domain.interleaved && kernel_.domain.run == 0;
    return begins_at_row && !kernel_.domain.outer.empty() ? "row * columns" : "0";
  }
  std::vector<std::string> terms;
  for (std::size_t i = 0; i < access.outer_strides.size(); ++i) {
    terms.push_back(numbers_.term(join("i", i), access.outer_strides[i], "stride"));
  }
  return sum_of(terms);
}

std::string Addresses::column_offset(const Access& access, std::string_view column) {
  if (access.extent != Extent::kElements) return "0";
  if (access.is_dense) {
    if (kernel_.domain.interleaved) return join("(row / height * columns + ", column, ") * height + row % height");
    if (kernel_.domain.run == 0) return std::string(column);
    return join("(", column, " / run * row_count + row) * run + ", column, " % run");
  }
  if (access.run == 0) return numbers_.term(column, access.inner_stride, "step");
  const std::string run = numbers_.index(access.run, "length");
  return sum_of({numbers_.term(join("(", column, " / ", run, ")"), access.run_stride, "run_stride"),
                 numbers_.term(join("(", column, " % ", run, ")"), access.inner_stride, "step")});
}

std::pair<std::string, std::string> Addresses::place_in(const SizedInterval& interval, const std::string& index,
                                                        std::int64_t size) {
  std::string condition;
  if (interval.begin > 0) condition = join(index, " >= ", numbers_.index(interval.begin, "begin"));
  if (interval.end < size) {
    condition += join(condition.empty() ? "" : " && ", index, " < ", numbers_.index(interval.end, "end"));
  }
  const std::string distance =
      interval.begin == 0 ? index : join("(", index, " - ", numbers_.index(interval.begin, "begin"), ")");
  return {condition, numbers_.term(distance, interval.stride, "stride")};
}

std::pair<std::string, std::string> Addresses::place_in(const Part& part, std::int64_t run, std::string_view column) {
  std::string condition;
  std::vector<std::string> terms;
  const auto add = [&](const SizedInterval& interval, const std::string& index, std::int64_t size) {
    const auto [inside, offset] = place_in(interval, index, size);
    if (!inside.empty()) condition += (condition.empty() ? "" : " && ") + inside;
    terms.push_back(offset);
  };
  for (std::size_t i = 0; i < part.outer.size(); ++i) add(part.outer[i], join("i", i), kernel_.domain.outer[i]);
  if (run == 0) {
    add(part.runs, "0", 1);
    add(part.columns, std::string(column), kernel_.domain.columns);
  } else {
    const std::string width = numbers_.index(run, "length");
    add(part.runs, join("(", column, " / ", width, ")"), kernel_.domain.columns / run);
    add(part.columns, join("(", column, " % ", width, ")"), run);
  }
  return {condition, sum_of(terms)};
}

std::string array_text(std::uint32_t number, ir::Dtype dtype) {
  return join("static_cast<", storage_text(dtype), "*>(p.arrays[", number, "])");
}

bool has_short_offsets(const fusion::SizedKernel& kernel, const Mapping& mapping, std::int64_t scratch_bytes) {
  const auto limit = static_cast<double>(INT32_MAX) - kMostBehind;
  const auto fits = [&](double number) { return number <= limit; };
  return fits(static_cast<double>(row_count(kernel)) * static_cast<double>(kernel.domain.columns)) &&
         fits(static_cast<double>(mapping.grid()) * mapping.thread_count()) &&
         fits(static_cast<double>(scratch_bytes)) && std::ranges::all_of(kernel.accesses, [&](const auto& access) {
           return fits(reach_of(access, kernel.domain));
         });
}

}  // namespace thunder::executors::cuda
