# Imported targets of what the build takes from the running Python's packages: torch, oneTBB, Python itself.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
if(NOT Python_Development.Module_FOUND)
  message(FATAL_ERROR "Python.h was not found for ${Python_EXECUTABLE}. On Debian: "
                      "apt-get install python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}-dev")
endif()

set(environment_script "${CMAKE_CURRENT_LIST_DIR}/environment.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${environment_script}")
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${environment_script}"
  OUTPUT_VARIABLE environment_variables
  ERROR_VARIABLE environment_error
  RESULT_VARIABLE environment_result)
if(environment_result)
  message(FATAL_ERROR "${environment_error}")
endif()
cmake_language(EVAL CODE "${environment_variables}")
message(STATUS "torch ${THUNDER_TORCH_VERSION}: ${THUNDER_TORCH_ROOT}")
message(STATUS "oneTBB: ${THUNDER_TBB_LIBRARY}")

find_package(Threads REQUIRED)

add_library(thunder_tbb INTERFACE)
target_include_directories(thunder_tbb SYSTEM INTERFACE "${THUNDER_TBB_INCLUDE}")
target_link_libraries(thunder_tbb INTERFACE "${THUNDER_TBB_LIBRARY}" Threads::Threads)

# libtorch without Python.
add_library(thunder_torch INTERFACE)
target_include_directories(
  thunder_torch SYSTEM INTERFACE "${THUNDER_TORCH_ROOT}/include"
                                 "${THUNDER_TORCH_ROOT}/include/torch/csrc/api/include")
target_link_libraries(thunder_torch INTERFACE "${THUNDER_TORCH_ROOT}/lib/libc10.so"
                                              "${THUNDER_TORCH_ROOT}/lib/libtorch_cpu.so")

# libtorch's Python half: `THPVariable`, and pybind11, whose headers torch ships.
add_library(thunder_torch_python INTERFACE)
# GCC 12 takes members of an inlined c10::SmallVector for uninitialized.
target_compile_options(thunder_torch_python INTERFACE -Wno-maybe-uninitialized)
target_link_libraries(thunder_torch_python INTERFACE thunder_torch "${THUNDER_TORCH_ROOT}/lib/libtorch_python.so")

# The interpreter's own symbols are left for the running Python to provide.
add_library(thunder_python INTERFACE)
target_include_directories(thunder_python SYSTEM INTERFACE ${Python_INCLUDE_DIRS})
# Type objects are written as CPython writes them: the fields that are not named are zero.
target_compile_options(thunder_python INTERFACE -Wno-missing-field-initializers)
