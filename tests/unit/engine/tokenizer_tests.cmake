# Tests of the tokenizers; included by CMakeLists.txt beside this file.
sc_add_test(NAME test_engine_tokenizer SOURCES test_tokenizer.c LINKS eng)
