# Third-party libraries. What the plugin uses is linked in statically, so that its NEEDED list stays
# libc, libm and ld-linux; programs (engine, tools, tests) may link shared.

# sc_static_library(TARGET xxx HEADER json-c/json.h ARCHIVE libjson-c.a PACKAGE libjson-c-dev). One
# message names the packages of all that is missing.
set(SC_MISSING)
function(sc_static_library)
  cmake_parse_arguments(ARG "" "TARGET;HEADER;ARCHIVE;PACKAGE" "" ${ARGN})
  find_path(${ARG_TARGET}_INCLUDE ${ARG_HEADER})
  find_library(${ARG_TARGET}_ARCHIVE NAMES ${ARG_ARCHIVE})
  if(NOT ${ARG_TARGET}_INCLUDE OR NOT ${ARG_TARGET}_ARCHIVE)
    set(SC_MISSING ${SC_MISSING} ${ARG_PACKAGE} PARENT_SCOPE)
    return()
  endif()
  add_library(${ARG_TARGET} STATIC IMPORTED GLOBAL)
  set_target_properties(${ARG_TARGET} PROPERTIES IMPORTED_LOCATION "${${ARG_TARGET}_ARCHIVE}"
                        INTERFACE_INCLUDE_DIRECTORIES "${${ARG_TARGET}_INCLUDE}")
endfunction()

sc_static_library(TARGET sc_json_c HEADER json-c/json.h ARCHIVE libjson-c.a
                  PACKAGE libjson-c-dev)
sc_static_library(TARGET sc_msgpack_c HEADER msgpack.h ARCHIVE libmsgpackc.a
                  PACKAGE libmsgpack-dev)
sc_static_library(TARGET sc_xxhash HEADER xxhash.h ARCHIVE libxxhash.a PACKAGE libxxhash-dev)
sc_static_library(TARGET sc_md HEADER sha2.h ARCHIVE libmd.a PACKAGE libmd-dev)
sc_static_library(TARGET sc_liburing HEADER liburing.h ARCHIVE liburing.a PACKAGE liburing-dev)

# spec-conformance and tests link it.
find_path(SC_CMOCKA_INCLUDE cmocka.h)
find_library(SC_CMOCKA NAMES cmocka)
if(SC_CMOCKA AND SC_CMOCKA_INCLUDE)
  add_library(cmocka UNKNOWN IMPORTED GLOBAL)
  set_target_properties(cmocka PROPERTIES IMPORTED_LOCATION "${SC_CMOCKA}"
                        INTERFACE_INCLUDE_DIRECTORIES "${SC_CMOCKA_INCLUDE}")
elseif(SC_TESTS)
  list(APPEND SC_MISSING libcmocka-dev)
endif()
if(SC_MISSING)
  list(JOIN SC_MISSING " " packages)
  message(FATAL_ERROR "libraries or headers are missing. On Debian: apt-get install ${packages}")
endif()

# BLAS is a contender in benchmarks only; nothing that is judged links it.
find_library(SC_OPENBLAS NAMES openblas)

# nvcc is detected and never needed: cmake/CudaImages.cmake has other builders of kernels, or none.
find_program(SC_NVCC nvcc PATHS /usr/local/cuda/bin)
