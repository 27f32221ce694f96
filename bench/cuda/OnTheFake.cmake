# bench-cuda --size tiny, in a store of its own: it ends with 0, and every figure works.
file(REMOVE_RECURSE "${STORE}")
file(MAKE_DIRECTORY "${STORE}")
execute_process(COMMAND "${PROGRAM}" --size tiny --dir "${STORE}" OUTPUT_VARIABLE said
                RESULT_VARIABLE code)
message("${said}")
file(REMOVE_RECURSE "${STORE}")
if(NOT code STREQUAL "0" OR NOT said MATCHES "41 figures: all ways work" OR
   said MATCHES "not measured|skipped")
  message(FATAL_ERROR "bench-cuda ended with ${code}")
endif()
