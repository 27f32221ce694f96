# Images of kernels/cuda/kernels.cu (kernels/cuda/images.h) by the first builder that is there:
# nvcc, NVRTC, clang; or none, which is in order. Everywhere: no contraction, no fast math.
#
#   -DSC_CUDA=OFF              none
#   -DSC_CUDA_BUILDER=clang    that one, or an error: auto (the default), nvcc, nvrtc, clang, none
#   -DSC_NVRTC=path            the library; wheels are built with NVRTC 12.9, whose cubins run with
#                              drivers from 525 on (those of nvcc 13 from 580)
option(SC_CUDA "Build CUDA kernels into the plugin, where a compiler for them is found" ON)
set(SC_CUDA_BUILDER auto CACHE STRING "Who builds CUDA kernels: auto, nvcc, nvrtc, clang, none")
find_program(SC_PYTHON3 python3)
find_library(SC_NVRTC NAMES libnvrtc.so.12 libnvrtc.so.13 libnvrtc.so
             PATHS /usr/local/cuda/lib64 /usr/local/cuda/lib)
find_program(SC_CLANG_CUDA NAMES clang++ clang++-14 clang++-15 clang++-16 clang++-17)

set(SC_CUDA_SOURCE "${CMAKE_SOURCE_DIR}/kernels/cuda/kernels.cu")
set(SC_CUDA_NVCC_FLAGS -std=c++17 -fmad=false -O3 -I "${CMAKE_SOURCE_DIR}")
set(SC_CUDA_CLANG_FLAGS -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib
    -nogpuinc -nogpulib -Wno-unknown-cuda-version -std=c++17 -O3 -ffp-contract=off
    -I "${CMAKE_SOURCE_DIR}")

# Whether each builder can: nvcc from 12.8 on, which knows sm_100.
function(sc_cuda_has_nvcc ret_has)
  set(${ret_has} FALSE PARENT_SCOPE)
  if(SC_NVCC)
    execute_process(COMMAND "${SC_NVCC}" --version OUTPUT_VARIABLE said ERROR_QUIET)
    if(said MATCHES "release ([0-9.]+)" AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.8)
      set(${ret_has} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(sc_cuda_has_nvrtc ret_has ret_targets)
  set(${ret_has} FALSE PARENT_SCOPE)
  if(SC_NVRTC AND SC_PYTHON3)
    execute_process(COMMAND "${SC_PYTHON3}" "${CMAKE_SOURCE_DIR}/kernels/cuda/nvrtc_build.py"
                            "${SC_NVRTC}" OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE code
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(code EQUAL 0 AND said)
      set(${ret_has} TRUE PARENT_SCOPE)
      set(${ret_targets} "${said}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(sc_cuda_has_clang ret_has)
  set(${ret_has} FALSE PARENT_SCOPE)
  if(SC_CLANG_CUDA)
    execute_process(COMMAND "${SC_CLANG_CUDA}" --print-targets OUTPUT_VARIABLE said ERROR_QUIET)
    if(said MATCHES "nvptx64")
      set(${ret_has} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets ret_files to the images, and writes their list into `folder`. A third argument: another
# source than the product's, of a program that has kernels of its own (bench/cuda).
function(sc_cuda_images folder ret_files)
  set(source "${SC_CUDA_SOURCE}")
  if(ARGC GREATER 2)
    set(source "${ARGV2}")
  endif()
  get_filename_component(beside "${source}" DIRECTORY)
  file(GLOB inputs CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu"
       "${CMAKE_SOURCE_DIR}/kernels/cuda/*.h" "${beside}/*.cu" "${beside}/*.h")
  sc_cuda_has_nvcc(has_nvcc)
  sc_cuda_has_nvrtc(has_nvrtc targets)
  sc_cuda_has_clang(has_clang)
  set(builder none)
  foreach(one clang nvrtc nvcc) # the last that is there
    if(SC_CUDA AND has_${one} AND SC_CUDA_BUILDER MATCHES "^(auto|${one})$")
      set(builder ${one})
    endif()
  endforeach()
  if(SC_CUDA AND NOT SC_CUDA_BUILDER MATCHES "^(auto|${builder})$")
    message(FATAL_ERROR "SC_CUDA_BUILDER is ${SC_CUDA_BUILDER}, which is not there, or too old")
  endif()
  message(STATUS "CUDA kernels: built by ${builder}")
  set_property(GLOBAL PROPERTY SC_CUDA_BUILT_BY "${builder}")
  set(files)
  set(rows)
  if(builder STREQUAL "nvcc")
    set(files "${folder}/kernels.fatbin")
    set(rows "X(fatbin, 80, 0, \"${folder}/kernels.fatbin\")")
    set(gencode)
    foreach(target 80 90 100)
      list(APPEND gencode -gencode arch=compute_${target},code=sm_${target})
    endforeach()
    add_custom_command(OUTPUT ${files} DEPENDS ${inputs} VERBATIM
      COMMAND "${SC_NVCC}" ${SC_CUDA_NVCC_FLAGS} -fatbin --compress-mode=size ${gencode}
              -gencode arch=compute_80,code=compute_80 -o ${files} "${source}")
  elseif(builder STREQUAL "nvrtc")
    foreach(target ${targets})
      list(APPEND files "${folder}/kernels_sm_${target}.cubin")
      string(APPEND rows "X(sm_${target}, ${target}, 1, \"${folder}/kernels_sm_${target}.cubin\") ")
    endforeach()
    list(APPEND files "${folder}/kernels_compute_80.ptx")
    string(APPEND rows "X(ptx, 80, 2, \"${folder}/kernels_compute_80.ptx\")")
    set(script "${CMAKE_SOURCE_DIR}/kernels/cuda/nvrtc_build.py")
    add_custom_command(OUTPUT ${files} DEPENDS ${inputs} "${script}" VERBATIM
      COMMAND "${SC_PYTHON3}" "${script}" "${SC_NVRTC}" "${CMAKE_SOURCE_DIR}" "${folder}"
              "${source}")
  elseif(builder STREQUAL "clang")
    set(files "${folder}/kernels_clang.ptx")
    set(rows "X(ptx, 80, 2, \"${files}\")")
    add_custom_command(OUTPUT ${files} DEPENDS ${inputs} VERBATIM
      COMMAND "${SC_CLANG_CUDA}" ${SC_CUDA_CLANG_FLAGS} -S -o ${files} "${source}")
  endif()
  file(CONFIGURE OUTPUT "${folder}/sc_cuda_image_files.h"
       CONTENT "#define SC_CUDA_IMAGE_FILES(X) ${rows}\n")
  set(${ret_files} "${files}" PARENT_SCOPE)
endfunction()
