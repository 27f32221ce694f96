/* Which version the plugin's file is of, for people who have the file alone:
 *
 *   strings libspec_connector.so | grep ^spec_connector
 *
 * Holds: the text is in the file, though nothing reads it.
 * Threads: any; constant. Tests: tests/unit/abi/test_elf.py */
static const char version[] __attribute__((used)) = "spec_connector " SC_VERSION_TEXT;
