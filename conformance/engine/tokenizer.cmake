# Tokenizers of the reference engine; included by CMakeLists.txt beside this file.
set(ENG_TOK_SOURCES
  tokenizer.c tokenizer_bytes.c tokenizer_json.c tokenizer_merge.c tokenizer_scores.c
  tokenizer_vocab.c tokenizer_words.c unicode.c unicode_tables.c)
