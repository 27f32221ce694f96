/* Which version the plugin's file is of, for people who have the file alone:
 *
 *   strings libspec_connector.so | grep ^spec_connector
 *
 * Holds: the text is in the file, though nothing reads it.
 * Threads: any; constant. Tests: tests/unit/abi/test_elf.py */
#if defined(__has_attribute) && __has_attribute(retain)
#define KEPT __attribute__((used, retain)) /* by linkers that drop unused sections, too */
#else
#define KEPT __attribute__((used))
#endif

static const char version[] KEPT = "spec_connector " SC_VERSION_TEXT;
