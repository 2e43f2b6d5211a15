#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "dispatch/call/thread_state.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure.h"

namespace thunder::dispatch {

// When a program that is traced has returned: they refuse one that no compiled call can repeat. Each throws UserError.

[[noreturn]] void refuse_change(const std::string& change);
/// Refuses a program that leaves a mode or setting of the thread or the process changed, other than grad mode: later
/// calls would not change it.
void require_restored(const ThreadState& before);
/// Refuses a program that assigns to variables which a backward reads: it has what they held before.
void require_same_variables(const interpreter::Tracker& tracker);
/// The number that the next handle of a hook gets; 0: none was made yet.
[[nodiscard]] std::int64_t next_hook_id();
/// Whether a program keeps a handle of a hook, or its number, which it made since the next number was `first`: other
/// calls would keep the same number.
[[nodiscard]] bool keeps_hook_number(const interpreter::Structure& structure, std::int64_t first);
/// The line that registers the first hook whose number is kept, as far as `journal` tells.
[[nodiscard]] ir::SourceLocation registration_line(const interpreter::Journal& journal, std::int64_t first);
/// Outputs are built as plain tensors, or get a class that was there before, and nothing else that the program gave
/// them. Parameters, which switch `__torch_function__` off, do not hand their type on.
void require_plain_output(PyObject* output, interpreter::Tracker& tracker);

}  // namespace thunder::dispatch
