# The numeric kernels. Each level's file has the flags of its instructions; cpuid.c learns by
# definitions which levels are linked and chooses at run time.
set(ENG_MATH_SOURCES cpuid.c pool.c halffloat.c vecmath.c gemm.c attention.c kernels_plain.c)
set(ENG_KERNEL_OPTIONS -O3 -ffp-contract=off)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # the unrolled tiles are past what it tracks, which it notes
  list(APPEND ENG_KERNEL_OPTIONS -fno-var-tracking-assignments)
endif()
set(ENG_LEVEL_DEFINITIONS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND ENG_MATH_SOURCES kernels_avx2.c kernels_avx512.c)
  list(APPEND ENG_LEVEL_DEFINITIONS ENG_HAVE_AVX2 ENG_HAVE_AVX512)
  set_source_files_properties(kernels_avx2.c PROPERTIES COMPILE_OPTIONS
    "${ENG_KERNEL_OPTIONS};-mavx2;-mfma;-mf16c")
  set_source_files_properties(kernels_avx512.c PROPERTIES COMPILE_OPTIONS
    "${ENG_KERNEL_OPTIONS};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mfma;-mf16c")
endif()
set_source_files_properties(kernels_plain.c PROPERTIES COMPILE_OPTIONS "${ENG_KERNEL_OPTIONS}")
set_source_files_properties(attention.c PROPERTIES COMPILE_OPTIONS "${ENG_KERNEL_OPTIONS}")
set_source_files_properties(cpuid.c vecmath.c PROPERTIES COMPILE_DEFINITIONS
  "${ENG_LEVEL_DEFINITIONS}")
