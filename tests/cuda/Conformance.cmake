# The suite over CUDA memory, on the fake driver: with every destination of a load and every source
# of a store a device's (conformance/device/through_device.c), and by the tests that name such
# memory themselves.
#
#   conformance_device.K          all clauses under one policy, in parts: ./check runs these
#   conformance_device_all.K      all clauses, another policy and seed for each part
#   conformance_device_clauses.P  the clauses of device memory, under policy P
#   conformance_device_loads.P    clauses of loads under policy P: those that depend on the order
#                                 of streams, without those that spend their time on the disk or in
#                                 other processes
#   conformance_device_stores.P   clauses of stores, likewise; .mixed: every second layer of a
#                                 request lies in host memory
#
# Under ASan: the clauses of device memory and one part.
get_property(builder GLOBAL PROPERTY SC_CUDA_BUILT_BY)
if(builder STREQUAL "none")
  sc_add_ctest(NAME conformance_device COMMAND "${CMAKE_COMMAND}" -E echo
               "skipped: no CUDA compiler built kernels: nothing is delivered to a device"
               PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
  return()
endif()
add_dependencies(spec-conformance through_device fake_cuda_kernels)

# A small stage makes loads wait for boxes, and an attach cheap.
set(device_config "{\"disk_bytes\": \"256MiB\", \"segment_bytes\": \"8MiB\", \
\"staging_bytes\": \"32MiB\", \"max_requests\": 16, \"max_request_tokens\": 8192, \
\"gpu\": {\"staging_bytes\": \"8MiB\", \"store_bytes\": \"40MiB\", \"score_bytes\": \"8MiB\"}}")
set(load_clauses 008 040 050 052 053 054 055 056 057 058 059 061 062 063 064 065 066 067 068 069
    070 072 132 133 150 151 152 153 154 155 156 160 161 162 163 164 165 166 168 175 179 180 184
    185 196 199 200 201 202 203 204 205 206)
string(REPLACE ";" "," load_clauses "${load_clauses}")
set(store_clauses 080 081 082 083 084 085 086 087 089 090 091 100 101 110 111 120 121 122 123
    134 135 138 139 169 181 182 184 188 190)
string(REPLACE ";" "," store_clauses "${store_clauses}")

# sc_judge_device(NAME POLICY CONNECTOR LEVEL LABELS arguments ..)
# use_tls: the leak checker of clang 14 falls over a thread's storage here (signal 11 in its tracer,
# of a case that passed). Without it more is a leak, not less: what only such storage points to.
function(sc_judge_device name policy connector level labels)
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/stores-${name}")
  sc_add_ctest(NAME ${name} COMMAND spec-conformance "${connector}" --config "${device_config}"
               --require-hits --patience 60 --limit 800
               --dir "${CMAKE_CURRENT_BINARY_DIR}/stores-${name}" ${ARGN}
               TIMEOUT 1800 COST 60 LEVEL ${level} LABELS device ${labels}
               NEEDS fake_cuda_kernels spec_connector)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT
    "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:fake_cuda_kernels>;SC_FAKE_CUDA=${policy};\
SC_THROUGH_CONNECTOR=$<TARGET_FILE:spec_connector>;LSAN_OPTIONS=use_tls=0;\
${SC_FIBER_ENVIRONMENT}")
endfunction()

set(connector "$<TARGET_FILE:spec_connector>")
set(through "$<TARGET_FILE:through_device>")
foreach(policy eager lazy:1 starve:1 random:1)
  string(REPLACE ":" "." name "conformance_device_clauses.${policy}")
  sc_judge_device(${name} ${policy} "${connector}" all "" --only 199,200,201,202,203,204)
  # A connector that takes no device memory would skip them.
  set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "takes no CUDA memory")
endforeach()
foreach(part RANGE 1 3)
  sc_judge_device(conformance_device.${part} starve:1 "${through}" check noasan --one-set
                  --part ${part}/3)
endforeach()
set(parts lazy:1 starve:1 lazy:2 starve:2 lazy:3 starve:3)
list(LENGTH parts count)
foreach(policy ${parts})
  math(EXPR part "${part} + 1")
  set(labels noasan)
  if(part EQUAL 2) # a minute each under ASan
    set(labels "")
  endif()
  sc_judge_device(conformance_device_all.${part} ${policy} "${through}" all "${labels}" --one-set
                  --part ${part}/${count})
endforeach()
# The waiting side says what runs, not the seed: each policy once.
foreach(policy lazy:1 starve:1)
  string(REPLACE ":" "." name "conformance_device_loads.${policy}")
  sc_judge_device(${name} ${policy} "${through}" all noasan --one-set --only ${load_clauses})
endforeach()
foreach(policy eager random:1 random:2)
  string(REPLACE ":" "." name "conformance_device_stores.${policy}")
  sc_judge_device(${name} ${policy} "${through}" all noasan --one-set --only ${store_clauses})
endforeach()
sc_judge_device(conformance_device_stores.mixed random:3 "${through}" all noasan --one-set
                --only ${store_clauses})
set_property(TEST conformance_device_stores.mixed APPEND PROPERTY ENVIRONMENT
             "SC_THROUGH_STORES=mixed")
