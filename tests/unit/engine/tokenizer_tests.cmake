# Tests of the tokenizers; included by CMakeLists.txt beside this file.
sc_add_test(NAME test_engine_tokenizer SOURCES test_tokenizer.c LINKS eng)

# The fuzz target's corpus as a plain test.
sc_add_test(NAME test_engine_tokenizer_corpus
            SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_tokenizer.c LINKS eng LABELS asan)
target_compile_definitions(test_engine_tokenizer_corpus PRIVATE SC_FUZZ_REPLAY)
