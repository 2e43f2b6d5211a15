"""Failures that are known and not fixed: docs/maintainers/fuzzing.md lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_DATA = "data changed behind autograd's back between a call and its backward"
_RESIZED = "resize_ of an input that is not contiguous"
_ENUMERATION = "values of members of enumerations are not guarded"
_UNCHANGED = "a write that changes no metadata of an input leaves its history as it is"
_FULL_CACHE = "compiled calls are no uses of a full lru_cache, which drops another result"

# Statements that so many scripts have that they may hide something else: without them, the script must pass.
_CAUSES = {
    _DATA: r"\.data\b",
    _RESIZED: r"resize_\(",
    _ENUMERATION: r"\._value_ = ",
    _FULL_CACHE: r"summed\(",
    _UNCHANGED: r"\.(squeeze|transpose|swapaxes)_\(",
}

# (kind, what the message and the smallest script match, why)
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "raises",
        r"Expected a value of type 'Tensor' for argument 'other' but instead found type 'float'[^\0]*"
        r"with (Dispatched|torch\.utils)",
        "a dispatch mode hands a number on to a comparison that wants a tensor",
    ),
    (
        "number",
        r"^step[^\n]*\.grad: [^\n]*\n.*first\(r\d+\)\.(retain_grad|register_hook)\(",
        "the gradient of a view of an input by way of another result is left out",
    ),
    (
        "stride",
        r"^step[^\n]* (second\[\d+\]|r\d+(\[\d+\])?|[^\n]*\.grad) stride: [^\n]*\n"
        r".*(\.t_?\(\)|\.mT|::2\]|\.(swapaxes|transpose|permute)\().*(autograd\.grad|vjp)\(",
        "gradients by inputs that are not contiguous",
    ),
    (
        "stride",
        r"^step[^\n]* stride: [^\n]*\n.*(requires_grad_|Parameter)\(.*\w\[\w+ > 0\] = ",
        "what is filled by a mask and requires grad is laid out in order",
    ),
    (
        "raises",
        r"modified by an inplace operation.*, where eager raises nothing\n",
        "an input is saved for the backward where eager saves what is computed of it",
    ),
    (
        "raises nothing",
        r"in eager RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
        r"operation.*\nwith seen\(\):\n(    [^\n]*\n)*?    "
        r"(first\(r\d+\)|r\d+|x|y|z)(\[0\] = |\.(data\.|detach\(\)\.)?\w+_\()",
        "an input or a result is written to after the call, and the backward computes from something else",
    ),
    (
        "raises nothing",
        r"in eager RuntimeError: Trying to backward through the graph a second time",
        "eager saves a constant, which is none of a compiled function's saved values",
    ),
    ("number", r"\.grad: .*\.data\b", _DATA),
    (
        "raises nothing",
        r"in eager RuntimeError: When use_reentrant=True, torch\.utils\.checkpoint is incompatible",
        "eager refuses autograd.grad through a reentrant checkpoint",
    ),
    (
        "raises",
        r"backward through the graph a second time.*\.backward\(",
        "a backward inside released what it went through",
    ),
    (
        "raises|raises other",
        r"the gradient of a result of a compiled function is asked for",
        "gradients between results are refused",
    ),
    (
        "missing",
        r"^step[^\n]* r\d+(\[\d+\])*\.grad type is missing.*\.retain_grad\(",
        "gradients between results are refused",
    ),
    (
        "memory",  # ours lies in memory of its own
        r"^step[^\n]* (\S+\.grad) memory: expected [^\n]*, got \('\1', 0\)",
        "eager lets gradients that are views of one tensor share memory",
    ),
    (
        "more",
        r"\.grad \w+ is '[^\n]*', which eager has not.*\.(squeeze|transpose|swapaxes)_\(",
        _UNCHANGED,
    ),
    ("number", r"expected nan, got -?inf.*gelu", "oneDNN's gelu of infinity is NaN"),
    ("number|value", r"^step[^\n]*: at \(.*resize_\(", _RESIZED),
    (
        "written",
        r"^step[^\n]* written: expected True, got False\n.*(\.(t|squeeze|unsqueeze)_\(|inference_mode)",
        "t_, and writes to buffers in inference mode, do not move the version counter",
    ),
    (
        "value",
        r"^step[^\n]* Doubling\.(?:seen value|given[^:\n]*): .*\n( +)with [^\n]*Doubling\(\)[^\n]*:\n"
        r"(\1 +[^\n]*\n)*\1 +[^\n]*(?<!torch\.)\bfunc\.\w+\(",
        "a function mode sees the calls that thunder's transforms make, which are not torch.func's",
    ),
    (
        "is_inference",
        r"^step[^\n]* is_inference: expected False, got True\n.*func\.(vjp|jacrev)\(.*inference_mode",
        "results of vjp in inference mode are inference tensors",
    ),
    ("number|value", r"^step.*\.RED\._value_ = ", _ENUMERATION),
    (
        "raises",
        r"derivative for set_ is not implemented.*\.set_\(",
        "a compiled function is one node, behind which PyTorch also calls nodes that no gradient comes to",
    ),
    (
        "raises",
        r"out != nullptr INTERNAL ASSERT FAILED.*retain_grad\(",
        "PyTorch cannot write in place to a later result of a node, of which the gradient is retained",
    ),
    (
        "raises",
        r"Inference tensors cannot be saved for backward.*inference_mode",
        "an input made in inference mode is saved where eager saves a copy of it",
    ),
    ("raises", r"Holder\.program = .*copy\.copy\(f\)", "a copy of a compiled method does not look the method up anew"),
    (
        "raises|dtype",
        r"(got torch\.complex64|dtype: ).*complex64.*func\.jvp\(",
        "a complex tangent of real numbers, which has no meaning, stays complex",
    ),
    (
        "requires_grad",
        r"\.grad requires_grad: expected False, got True\n.*(zeros\(0|tensor\(\[\]|\[:0\]).*create_graph=True",
        "eager's gradient of an empty tensor, written to through a view, is a constant",
    ),
    (
        "value",
        r"^step[^\n]* Dispatched\.seen value: .*with Dispatched\(\):\n +backward\(",
        "a dispatch mode around a backward sees the operations of the compiled one",
    ),
    (
        "raises nothing",
        r"in eager RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
        r"operation.*class Pair\(.*Pair\.apply\(.*\w_\(",
        "a tensor of which a backward reads the shape only is written to behind the function that saved it",
    ),
    ("raises nothing", r"function that returns multiple views.*func\.", "results of transforms are no views"),
    ("number|value", r"^step.*maxsize=2.*summed\(", _FULL_CACHE),
    (
        "length|value",
        r"^step[^\n]* outside.*register_multi_grad_hook\(",
        "a compiled function is one node, through which gradients of None come to inputs too",
    ),
    (
        "number|value",
        r"expected [^\n]*, got nan.*clamp\(max=",
        "PyTorch 2.11's clamp with NaN gives the numbers themselves",
    ),
    (
        "raises",
        r"linalg\.inv: The diagonal element[^\0]*try:.*\.(mul|add)_\(.*inference_mode\(",
        "a kernel's error in a try, in inference mode, where an inference tensor is written to",
    ),
    (
        "raises",
        r"allow_mutation_on_saved_tensors.*, where eager raises nothing\n",
        "a compiled function is one node, through which gradients of None come to inputs too",
    ),
    (
        "number",
        r"^step[^\n]*\.grad: .*register_post_accumulate_grad_hook\(",
        "hooks on leaves run when the compiled backward is done",
    ),
    (
        "raises nothing",
        r"output \d of Linalg\w+Backward0",
        "a write to a result of several of a kernel that saves another one",
    ),
)


def reasons(kind: str, message: str, text: str) -> Iterator[str]:
    """Yield why a failure may be known."""
    everything = f"{message}\n{text}"
    for kinds, pattern, why in _KNOWN:
        if re.fullmatch(kinds, kind) and re.search(pattern, everything, re.DOTALL):
            yield why


def without_cause(why: str, text: str) -> str:
    """Return a script without the statements that a known failure is put down to; nothing where these must stay."""
    if why not in _CAUSES:
        return ""
    rest = re.sub(rf"(?m)^( *)[^\n]*{_CAUSES[why]}[^\n]*$", r"\1pass", text)
    try:
        compile(rest, "script.py", "exec")
    except SyntaxError:
        return ""
    return rest
