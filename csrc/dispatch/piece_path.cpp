#include "dispatch/piece_path.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tracer/numbers.h"

namespace thunder::dispatch {
namespace {

/// What the program looks at was computed operation by operation while it was traced, and must come out the same.
std::shared_ptr<const CompiledPiece> compile_piece(compile::Piece piece, compile::Options options) {
  options.fuse = options.fuse && piece.meeting.check == nullptr;
  // A backward that computes again what was computed of such memory finds it written to.
  if (piece.reads_overwritten) options.rematerialize = passes::Recompute::kNothing;
  std::shared_ptr<compile::Compiled> program;
  if (!piece.is_bare && !piece.trace.symbols.empty()) program = compile::compile(piece.trace, options);
  return std::make_shared<const CompiledPiece>(CompiledPiece{std::move(piece), std::move(program)});
}

std::size_t common_steps(const std::vector<compile::Piece>& pieces, const std::vector<Met>& met,
                         const PiecePath& other) {
  std::size_t count = 0;
  while (count < pieces.size() && count < other.steps.size()) {
    if (!compile::same_piece(pieces[count], other.steps[count].shared->get()->piece)) break;
    ++count;
    if (met[count - 1] != other.steps[count - 1].met) break;
  }
  return count;
}

bool has_outputs(const compile::Piece& piece, const std::vector<ir::ValueId>& outputs) {
  return std::ranges::all_of(
      outputs, [&](ir::ValueId id) { return std::ranges::find(piece.outputs, id) != piece.outputs.end(); });
}

std::shared_ptr<SharedPiece> share(const std::shared_ptr<SharedPiece>& shared, const compile::Piece& piece,
                                   const compile::Options& options) {
  const auto known = shared->get();
  if (!has_outputs(known->piece, piece.outputs)) {
    shared->set(compile_piece(compile::with_outputs(known->piece, piece.outputs), options));
  }
  return shared;
}

void find_dying(PiecePath& path, const std::vector<compile::Piece>& pieces) {
  std::vector<std::int64_t> last(path.value_count, -1);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    for (const auto* ids : {&pieces[k].inputs, &pieces[k].outputs, &pieces[k].meeting.values}) {
      for (const ir::ValueId id : *ids) last[index_of(id)] = static_cast<std::int64_t>(k);
    }
  }
  for (const ir::Argument& output : path.outputs)
    ir::for_each_value(output, [&](ir::ValueId id) { last[index_of(id)] = -1; });
  for (std::size_t i = 0; i < last.size(); ++i) {
    if (last[i] >= 0)
      path.steps[static_cast<std::size_t>(last[i])].dying.push_back(ir::ValueId{static_cast<std::uint32_t>(i)});
  }
}

}  // namespace

PiecePath make_path(const ir::Trace& recorded, std::span<const PiecePath* const> others,
                    const compile::Options& options) {
  PiecePath path;
  const ir::Trace trace = compile::defer_effects(recorded);
  std::optional<std::vector<compile::Piece>> pieces = compile::cut_at_checks(trace);
  if (!pieces) return path;
  const std::vector<Met> met = expected_after(*pieces, trace);
  const PiecePath* nearest = nullptr;
  std::size_t common = 0;
  for (const PiecePath* other : others) {
    const std::size_t count = common_steps(*pieces, met, *other);
    if (count > common) common = count, nearest = other;
  }
  bool is_last_certain = true;  // no number in it that Python could raise for
  path.inputs = trace.inputs;
  path.outputs = trace.outputs;
  path.value_count = trace.value_count();
  for (std::size_t k = 0; k < pieces->size(); ++k) {
    PiecePath::Step& step = path.steps.emplace_back();
    step.met = met[k];
    if (k < common) {
      step.shared = share(nearest->steps[k].shared, (*pieces)[k], options);
    } else {
      step.shared = std::make_shared<SharedPiece>();
      step.shared->set(compile_piece((*pieces)[k], options));
    }
    const auto& symbols = (*pieces)[k].trace.symbols;
    const auto has = [&](auto&& predicate) { return std::ranges::any_of(symbols, predicate); };
    is_last_certain &= !has([](const ir::BoundSymbol& symbol) { return symbol.op == tracer::number_operator(); });
    path.draws_random |= (k + 1 < pieces->size() || !is_last_certain) &&
                         has([](const ir::BoundSymbol& symbol) { return symbol.op->random; });
  }
  find_dying(path, *pieces);
  return path;
}

}  // namespace thunder::dispatch
