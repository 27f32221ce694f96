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
    # A third less time than -O2 -g. The product is compiled as it is shipped.
    target_compile_options(${target} PRIVATE -O1 -g1)
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

# sc_add_ctest(NAME x COMMAND program argument .. [LEVEL check] [LABELS asan device]
# [NEEDS target ..] [TIMEOUT 900] [COST 60] [ENVIRONMENT NAME=value ..] [PROPERTIES name value ..]):
# one ctest. All of ours are made here.
#
#   LEVEL    the first level of ./check whose gcc stage runs it: quick (the default), check (the
#            default of tests of a device), ci (needs the network, or minutes), all
#   LABELS   asan      ./check runs it under ASan, too. Without this label continuous integration
#                      does, if it is neither of LEVEL all nor of a device
#            noasan    never runs under ASan
#            tsan      runs under TSan
#            clang     runs as clang's release
#            device    runs on the CUDA driver that stands in for one, or on emulated kernels
#            mutant    judges code that is wrong on purpose
#            fault     breaks things on purpose
#   COST     its seconds under a sanitizer if they are many. In a new build directory ctest begins
#            with the expensive tests, so that no core waits for one test at the end.
#   NEEDS    targets that are built for it, besides those that COMMAND and ENVIRONMENT name
#
# Arguments that would silently change or lose a test are refused.
#
# A set is what one stage builds and runs: quick, check, ci, asan, asan_unit, tsan, clang. The sets
# of a ctest become labels of it, and the target SET_tests builds what the ctests of a set need.
set(SC_TEST_SETS quick check ci asan asan_unit tsan clang)
set(SC_TEST_LABELS asan noasan tsan clang device mutant fault)

# sc_check_ctest(NAME LABELS WORDS): refuses WORDS that no keyword took, labels that select nothing,
# and a name that is no file's name, since tests/timed.c writes one.
function(sc_check_ctest name labels words)
  if(words)
    message(FATAL_ERROR "test ${name}: unknown arguments: ${words}")
  endif()
  if(NOT name MATCHES "^[A-Za-z0-9_.:+-]+$")
    message(FATAL_ERROR "test ${name}: a name has letters, digits and _ . : + -")
  endif()
  foreach(label IN LISTS labels)
    if(NOT label IN_LIST SC_TEST_LABELS)
      message(FATAL_ERROR "test ${name}: label ${label}, expected one of: ${SC_TEST_LABELS}")
    endif()
  endforeach()
endfunction()

function(sc_test_sets ret_sets level labels)
  set(sets)
  if(level STREQUAL "quick")
    set(sets quick check ci)
  elseif(level STREQUAL "check")
    set(sets check ci)
  elseif(level STREQUAL "ci")
    set(sets ci)
  elseif(NOT level STREQUAL "all")
    message(FATAL_ERROR "LEVEL ${level}, expected quick, check, ci or all")
  endif()
  foreach(set asan tsan clang)
    if(set IN_LIST labels)
      list(APPEND sets ${set})
    endif()
  endforeach()
  if(NOT level MATCHES "^(ci|all)$")
    list(APPEND sets asan_unit)
    foreach(label asan noasan device)
      if(label IN_LIST labels)
        list(REMOVE_ITEM sets asan_unit)
      endif()
    endforeach()
  endif()
  set(${ret_sets} "${sets}" PARENT_SCOPE)
endfunction()

function(sc_add_ctest)
  if(DEFINED SC_TESTS AND NOT SC_TESTS)
    return()
  endif()
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE ${last})
    if("${ARGV${i}}" STREQUAL "" OR "${ARGV${i}}" MATCHES ";")
      message(FATAL_ERROR "${ARGV}: an argument is empty or has a semicolon, and a list would \
lose it or make it two")
    endif()
  endforeach()
  cmake_parse_arguments(ARG "" "NAME;LEVEL;TIMEOUT;COST"
                        "COMMAND;LABELS;NEEDS;PROPERTIES;ENVIRONMENT" ${ARGN})
  list(APPEND ARG_LABELS ${SC_FOLDER_LABELS})
  sc_check_ctest("${ARG_NAME}" "${ARG_LABELS}" "${ARG_UNPARSED_ARGUMENTS}")
  if(NOT ARG_LEVEL AND "device" IN_LIST ARG_LABELS)
    set(ARG_LEVEL check)
  elseif(NOT ARG_LEVEL)
    set(ARG_LEVEL quick)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900) # ends what hangs; judges no speed
  endif()
  list(POP_FRONT ARG_COMMAND program)
  if(TARGET "${program}")
    set(program "$<TARGET_FILE:${program}>")
  endif()
  string(REGEX MATCHALL "\\$<TARGET_FILE(_DIR)?:[^>]+>" files
         "${program};${ARG_COMMAND};${ARG_ENVIRONMENT}")
  list(TRANSFORM files REPLACE "^.*:(.+)>$" "\\1")
  list(APPEND ARG_NEEDS ${files})
  add_test(NAME ${ARG_NAME} COMMAND timed "${CMAKE_BINARY_DIR}/times/${ARG_NAME}"
           "${program}" ${ARG_COMMAND})
  sc_test_sets(sets ${ARG_LEVEL} "${ARG_LABELS}")
  list(APPEND ARG_LABELS ${sets})
  list(REMOVE_DUPLICATES ARG_LABELS)
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
                       ${ARG_PROPERTIES})
  if(ARG_COST)
    set_tests_properties(${ARG_NAME} PROPERTIES COST ${ARG_COST})
  endif()
  if(ARG_ENVIRONMENT)
    set_tests_properties(${ARG_NAME} PROPERTIES ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  foreach(set IN LISTS sets)
    set_property(GLOBAL APPEND PROPERTY SC_SET_TARGETS_${set} ${ARG_NEEDS})
  endforeach()
endfunction()

# SET_tests for every set: what its ctests need.
function(sc_add_set_targets)
  foreach(set IN LISTS SC_TEST_SETS)
    get_property(targets GLOBAL PROPERTY SC_SET_TARGETS_${set})
    list(REMOVE_DUPLICATES targets)
    add_custom_target(${set}_tests DEPENDS timed ${targets})
  endforeach()
endfunction()

# TSan's cases of a test program: tests/unit/thread_cases.c. Its ctests are told the names by their
# environment, so that one object serves all programs; by the property ENVIRONMENT_MODIFICATION, so
# that no other ENVIRONMENT replaces them.
function(sc_thread_cases target)
  target_link_libraries(${target} PRIVATE thread_cases)
  target_link_options(${target} PRIVATE "-Wl,--wrap=_cmocka_run_group_tests")
  if(NOT SC_SANITIZE)
    target_link_options(${target} PRIVATE "-Wl,--wrap=pthread_create")
  endif()
endfunction()

# sc_add_test(NAME test_radix SOURCES test_radix.c LINKS sc_hashing [PARTS 3] [THREADS ..]
# [ONE_THREAD] and what sc_add_ctest takes): a cmocka program, run by ctest. It finds shared data
# and the source tree by definitions.
#
#   PARTS        a long one runs as so many ctests NAME.1, NAME.2, ... beside each other
#                (tests/unit/parts.h)
#   THREADS      the cases that begin threads: TSan's stage runs these only. ONE_THREAD: no case
#                does, and TSan's stage leaves the program out (tests/unit/thread_cases.c, which
#                fails if that is not so)
# SC_FOLDER_LABELS, which a folder may set: labels of all of its tests.
function(sc_add_test)
  cmake_parse_arguments(ARG "ONE_THREAD" "NAME;LEVEL;TIMEOUT;COST;PARTS"
                        "SOURCES;LINKS;LABELS;NEEDS;PROPERTIES;ENVIRONMENT;THREADS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR (ARG_THREADS AND (ARG_ONE_THREAD OR ARG_PARTS)))
    message(FATAL_ERROR "test ${ARG_NAME}: unknown arguments ${ARG_UNPARSED_ARGUMENTS}, or THREADS \
with ONE_THREAD or PARTS: a part lacks cases that THREADS names")
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  sc_target_defaults(${ARG_NAME})
  target_compile_definitions(${ARG_NAME} PRIVATE SC_SHARED_DIR="${SC_SHARED_DIR}"
                             SC_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             SC_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_LINKS} cmocka)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                        "${CMAKE_BINARY_DIR}/tests")
  set_target_properties(${ARG_NAME} PROPERTIES SC_LEVEL "${ARG_LEVEL}"
                        SC_LABELS "${ARG_LABELS};${SC_FOLDER_LABELS}")
  if(ARG_THREADS)
    list(APPEND ARG_LABELS tsan)
  endif()
  if((ARG_ONE_THREAD AND NOT SC_SANITIZE) OR
     (ARG_THREADS AND (NOT SC_SANITIZE OR SC_SANITIZE MATCHES thread)))
    sc_thread_cases(${ARG_NAME})
    string(REPLACE ";" "," threads "${ARG_THREADS}")
    list(APPEND ARG_PROPERTIES ENVIRONMENT_MODIFICATION "SC_THREAD_CASES=set:${threads}")
  endif()
  set(rest LEVEL "${ARG_LEVEL}" TIMEOUT "${ARG_TIMEOUT}" COST "${ARG_COST}" LABELS ${ARG_LABELS}
      NEEDS ${ARG_NEEDS} PROPERTIES ${ARG_PROPERTIES} ENVIRONMENT ${ARG_ENVIRONMENT})
  if(ARG_PARTS)
    foreach(part RANGE 1 ${ARG_PARTS})
      sc_add_ctest(NAME ${ARG_NAME}.${part} COMMAND ${ARG_NAME} --part ${part}/${ARG_PARTS} ${rest})
    endforeach()
  else()
    sc_add_ctest(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${rest})
  endif()
endfunction()
