# Tests of the numeric kernels.
sc_add_test(NAME test_engine_pool SOURCES test_pool.c LINKS eng)
sc_add_test(NAME test_engine_gemm SOURCES test_gemm.c LINKS eng m)
sc_add_test(NAME test_engine_attention SOURCES test_attention.c LINKS eng m)
sc_add_test(NAME test_engine_vecmath SOURCES test_vecmath.c LINKS eng m)
