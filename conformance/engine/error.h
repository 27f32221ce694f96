/* error: a status and one line of text.
 *
 * The engine judges the plugin and shares no code with it, so these are not the ABI's statuses. The
 * code that detects an error writes the text, once: what, where, what was expected.
 *
 * Invariants: a text is UTF-8 without control characters, ended by NUL; longer texts are cut.
 * Threads: any; the memory is the caller's.
 * Tests: tests/unit/engine/test_safetensors.c, test_config.c (each error's text). */
#ifndef CONFORMANCE_ENGINE_ERROR_H
#define CONFORMANCE_ENGINE_ERROR_H

typedef int eng_status;

#define ENG_OK            0
#define ENG_E_INVALID     (-1) /* the caller's argument */
#define ENG_E_INPUT       (-2) /* a file says something wrong, or too little */
#define ENG_E_UNSUPPORTED (-3) /* right, but this engine cannot do it */
#define ENG_E_NO_MEMORY   (-4)
#define ENG_E_SYSTEM      (-5) /* a system call failed; the text holds strerror */
#define ENG_E_RESTART     (-6) /* a hook asks that the pass is computed again (rows were lost) */

#define ENG_ERROR_TEXT_BYTES 512

struct eng_error {
    eng_status code;
    char text[ENG_ERROR_TEXT_BYTES];
};

/* Writes the text (err may be NULL) and returns code, so that `return eng_fail(...)` reads well. */
eng_status eng_fail(struct eng_error *err, eng_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
