/* version: the version text in the library, though nothing reads it, for `strings LIB | grep
 * ^spec_connector`. Tests: tests/unit/abi/test_elf.py */
#if defined(__has_attribute) && __has_attribute(retain)
#define KEPT __attribute__((used, retain)) /* retain: for linkers that drop unused sections */
#else
#define KEPT __attribute__((used))
#endif

static const char version[] KEPT = "spec_connector " SC_VERSION_TEXT;
