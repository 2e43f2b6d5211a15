// Compiled with the flags of one layer and the header of another: see test_layering.py.
#include THUNDER_PROBE_HEADER
