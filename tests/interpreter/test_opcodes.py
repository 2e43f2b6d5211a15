"""The opcode table is complete for the running Python."""

import opcode

from thunder.interpreter import _native

FIRST_PSEUDO_OPCODE = 256


def real_opcodes() -> dict[str, int]:
    """Opcodes that code objects can hold: no pseudo-instructions of the compiler, no instrumented variants."""
    return {
        name: number
        for name, number in opcode.opmap.items()
        if number < FIRST_PSEUDO_OPCODE and not name.startswith("INSTRUMENTED_")
    }


def inline_cache_units() -> dict[str, int]:
    units = getattr(opcode, "_inline_cache_entries", {})
    if isinstance(units, dict):
        return units
    return {name: units[number] for name, number in real_opcodes().items()}


def test_every_opcode_has_a_row() -> None:
    rows = {name: row[0] for name, row in _native._opcode_rows().items()}
    assert rows == real_opcodes()


def test_rows_have_the_cache_units_of_cpython() -> None:
    units = inline_cache_units()
    assert {name: row[2] for name, row in _native._opcode_rows().items()} == {
        name: units.get(name, 0) for name in real_opcodes()
    }
