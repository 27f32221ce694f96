/* One status type everywhere: the ABI's. Whoever decides an error writes its text, once.
 *
 * Holds: a text is one line, NUL-ended, cut at a UTF-8 boundary; struct_size is never written, and
 * nothing is written past it: who makes a struct spec_error sets struct_size first.
 * Does not: allocate, log.
 * Threads: any; the error object is the caller's.
 * Tests: tests/unit/base/test_status.c */
#ifndef SC_BASE_STATUS_H
#define SC_BASE_STATUS_H

#include "abi/spec_connector.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes code and text into reterr (NULL is fine) and returns code. */
spec_status sc_fail(struct spec_error *reterr, spec_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, with the system's error number and its text appended: "...: No space left on device".
 * A text that is too long is cut before the reason, never in it; one that ends with it (it is
 * passed on) is left. */
spec_status sc_fail_errno(struct spec_error *reterr, spec_status code, int sys_errno,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Makes what vsnprintf left in text[text_bytes] one clean line: control characters become blanks, a
 * cut (wanted_bytes, vsnprintf's result, did not fit) is moved back to a UTF-8 boundary.
 * Idempotent; log lines use it too. */
void sc_status_text_finish(char *text, uint64_t text_bytes, int64_t wanted_bytes);

/* "SPEC_E_INVALID" for a status; "SPEC_?" for an unknown one. Never NULL, static memory. */
const char *sc_status_name(spec_status status);

#endif
