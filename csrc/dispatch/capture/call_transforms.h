#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <vector>

#include "compile/options.h"
#include "dispatch/call/specialization.h"
#include "dispatch/capture/torch_hooks.h"
#include "interpreter/provenance/tracker.h"

namespace thunder::dispatch {

/// Reads, as the program would, the parameters that transforms added beside those that it read: they become inputs.
/// False with a Python exception set.
[[nodiscard]] bool take_added_parameters(PyObject* module, const TorchHooks& hooks, interpreter::Tracker& tracker);

/// Refuses a program that hands out or changes a parameter that a transform replaced: what it sees is not what there
/// is.
void require_as_seen(const TorchHooks& hooks, std::span<const std::size_t> written,
                     const interpreter::Structure& structure, const OutputPlan& plan);

/// Applies the user's transforms to the traces of a call, before anything else happens to them: changes `computation`,
/// and what of the specialization follows from its inputs.
void transform_call(const Traced& traced, const TorchHooks& hooks, const compile::Options& options,
                    ir::Trace& computation, Specialization& specialization);
/// Turns positions among the computation's inputs into numbers of what the guards find.
void count_by_guards(std::span<const Specialization::Taken> taken, std::vector<std::uint32_t>& inputs);

/// The prologue as a trace: it returns what the computation takes.
[[nodiscard]] ir::Trace prologue_of(const Specialization& specialization);

}  // namespace thunder::dispatch
