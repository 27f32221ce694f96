# Helpers that every folder's CMakeLists.txt uses, so that flags stand in one place.

set(SC_WARNINGS -Wall -Wextra -Wshadow -Wpointer-arith -Wcast-qual -Wvla -Wundef -Wformat=2
    -Wwrite-strings -Wimplicit-fallthrough
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>)

# Flags that every target of ours has: warnings, the include root, GNU interfaces, sanitizers.
# SC_TEST_CODE, which a folder may set: its targets are code of tests.
function(sc_target_defaults target)
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE ${SC_WARNINGS} -fno-math-errno -ffp-contract=off)
  if(SC_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(SC_TEST_CODE AND CMAKE_C_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -O1 -g1) # a third less time; the product stays as shipped
  endif()
  if(SC_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SC_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    if(SC_SANITIZE MATCHES undefined AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
      # What reports these two is in the runtime for C++ alone, and C programs link C++ of tests.
      target_compile_options(${target} PRIVATE
                             $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=function,vptr>)
    endif()
    # Unrolled, the kernels' checks take minutes to compile; reports need lines, not variables.
    target_compile_options(${target} PRIVATE -fno-unroll-loops -g1)
    target_link_options(${target} PRIVATE -fsanitize=${SC_SANITIZE})
    target_compile_definitions(${target} PRIVATE SC_SANITIZED) # long tests take samples
    if(SC_SANITIZE MATCHES thread)
      target_compile_definitions(${target} PRIVATE SC_SANITIZED_THREAD)
    endif()
  endif()
endfunction()

# sc_add_folder(NAME sc_store SOURCES a.c b.c LINKS sc_base ...): a static library for one folder.
function(sc_add_folder)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LINKS" ${ARGN})
  add_library(${ARG_NAME} STATIC ${ARG_SOURCES})
  sc_target_defaults(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PUBLIC ${ARG_LINKS})
endfunction()

# sc_add_program(NAME spec-engine SOURCES main.c LINKS eng ...): a program in build/bin.
function(sc_add_program)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LINKS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  sc_target_defaults(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_LINKS})
endfunction()

# NAME.1 .. NAME.count, of the ctests that are parts of one program.
function(sc_part_names ret_names name count)
  set(names)
  foreach(part RANGE 1 ${count})
    list(APPEND names ${name}.${part})
  endforeach()
  set(${ret_names} ${names} PARENT_SCOPE)
endfunction()

# TSan's cases of a test program: tests/unit/thread_cases.c
function(sc_thread_cases target)
  set(names)
  foreach(name ${ARGN})
    string(APPEND names "\"${name}\", ")
  endforeach()
  target_sources(${target} PRIVATE "${CMAKE_SOURCE_DIR}/tests/unit/thread_cases.c")
  target_compile_definitions(${target} PRIVATE "SC_THREAD_CASES=${names}")
  target_link_options(${target} PRIVATE "-Wl,--wrap=_cmocka_run_group_tests")
  if(NOT SC_SANITIZE)
    target_link_options(${target} PRIVATE "-Wl,--wrap=pthread_create")
  endif()
endfunction()

# sc_add_test(NAME test_radix SOURCES test_radix.c LINKS sc_hashing [LABELS slow] [TIMEOUT 900]
# [COST 60] [PARTS 3]): a cmocka program, run by ctest. It finds shared data and the source tree by
# definitions. COST: its seconds under a sanitizer, where they are many: in a new build directory
# ctest begins with what takes long, so that no core waits for one test at the end. PARTS: a long
# one runs as so many ctests NAME.1, NAME.2, ... beside each other (tests/unit/parts.h). THREADS:
# the cases that begin threads, all that TSan's stage runs of it; ONE_THREAD: none does, and it is
# not for TSan (tests/unit/thread_cases.c, which fails where that is not so).
# SC_FOLDER_LABELS, which a folder may set: labels of all of its tests.
function(sc_add_test)
  cmake_parse_arguments(ARG "ONE_THREAD" "NAME;TIMEOUT;COST;PARTS" "SOURCES;LINKS;LABELS;THREADS"
                        ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  sc_target_defaults(${ARG_NAME})
  target_compile_definitions(${ARG_NAME} PRIVATE SC_SHARED_DIR="${SC_SHARED_DIR}"
                             SC_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             SC_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_LINKS} cmocka)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                        "${CMAKE_BINARY_DIR}/tests")
  list(APPEND ARG_LABELS ${SC_FOLDER_LABELS})
  if(ARG_THREADS)
    list(APPEND ARG_LABELS tsan)
  endif()
  if((ARG_ONE_THREAD AND NOT SC_SANITIZE) OR
     (ARG_THREADS AND (NOT SC_SANITIZE OR SC_SANITIZE MATCHES thread)))
    sc_thread_cases(${ARG_NAME} ${ARG_THREADS})
  endif()
  set(names ${ARG_NAME})
  if(ARG_PARTS)
    sc_part_names(names ${ARG_NAME} ${ARG_PARTS})
    foreach(part RANGE 1 ${ARG_PARTS})
      add_test(NAME ${ARG_NAME}.${part} COMMAND ${ARG_NAME} --part ${part}/${ARG_PARTS})
    endforeach()
  else()
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900) # ends what hangs; judges no speed
  endif()
  set_tests_properties(${names} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  if(ARG_COST)
    set_tests_properties(${names} PROPERTIES COST ${ARG_COST})
  endif()
  if(ARG_LABELS)
    set_tests_properties(${names} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
  foreach(stage tsan clang)
    if("${stage}" IN_LIST ARG_LABELS)
      set_property(GLOBAL APPEND PROPERTY SC_STAGE_TARGETS_${stage} ${ARG_NAME})
    endif()
  endforeach()
endfunction()
