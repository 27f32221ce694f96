/* status: the ABI's status type and error texts, used everywhere. The code that detects an error
 * writes its text, once.
 *
 * Invariants: a text is one line, NUL-terminated, cut at a UTF-8 boundary. struct_size is never
 * written, and nothing is written past it: the creator of a spec_error sets it first.
 * Threads: any; the error object is the caller's. Tests: tests/unit/base/test_status.c */
#ifndef SC_BASE_STATUS_H
#define SC_BASE_STATUS_H

#include "abi/spec_connector.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes code and text into reterr (may be NULL) and returns code. */
spec_status sc_fail(struct spec_error *reterr, spec_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As sc_fail, with the system's error appended: "...: No space left on device". A long text is cut
 * before that reason; a text that already ends with it is left. */
spec_status sc_fail_errno(struct spec_error *reterr, spec_status code, int sys_errno,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Makes vsnprintf's output in text[text_bytes] one clean line: control characters become blanks.
 * A cut (wanted_bytes, vsnprintf's result, did not fit) moves back to a UTF-8 boundary.
 * Idempotent. */
void sc_status_text_finish(char *text, uint64_t text_bytes, int64_t wanted_bytes);

/* Returns a status's name, such as "SPEC_E_INVALID"; "SPEC_?" if unknown. Never NULL, static
 * memory. */
const char *sc_status_name(spec_status status);

#endif
