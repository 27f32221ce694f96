/* status: names and error texts. A text is formatted into a local buffer first, because an argument
 * may point into the error object that it replaces. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES (sizeof(((struct spec_error *)NULL)->text))

/* Returns the longest length <= `length` that does not end inside a UTF-8 sequence. Bytes that are
 * not UTF-8 are left. */
static size_t utf8_boundary(const char *text, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char byte = (unsigned char)text[length - back];
        if ((byte & 0xc0u) == 0x80u)
            continue; /* a continuation byte: its lead is before it */
        size_t need = byte >= 0xf0u ? 4 : byte >= 0xe0u ? 3 : byte >= 0xc0u ? 2 : 1;
        return need > back ? length - back : length;
    }
    return length;
}

void sc_status_text_finish(char *text, uint64_t text_bytes, int64_t wanted_bytes)
{
    if (wanted_bytes < 0)
        text[0] = '\0'; /* the format was refused: an empty text, not an old one */
    size_t length = strnlen(text, text_bytes - 1);
    if (wanted_bytes > (int64_t)length)
        length = utf8_boundary(text, length);
    text[length] = '\0';
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte == 0x7f)
            text[i] = ' '; /* one line, without escape sequences from a path or key */
    }
}

static void error_write(struct spec_error *reterr, spec_status code, int sys_errno,
                        const char *text)
{
    if (reterr->struct_size >= offsetof(struct spec_error, sys_errno))
        reterr->code = code;
    if (reterr->struct_size >= offsetof(struct spec_error, text))
        reterr->sys_errno = sys_errno;
    if (reterr->struct_size <= offsetof(struct spec_error, text))
        return;
    size_t room = reterr->struct_size - offsetof(struct spec_error, text);
    if (room > TEXT_BYTES)
        room = TEXT_BYTES;
    size_t length = strlen(text);
    if (length >= room)
        length = utf8_boundary(text, room - 1);
    memcpy(reterr->text, text, length);
    reterr->text[length] = '\0';
}

__attribute__((format(printf, 4, 0))) static spec_status
fail(struct spec_error *reterr, spec_status code, int sys_errno, const char *format, va_list args)
{
    if (reterr == NULL)
        return code;
    char reason_memory[96];
    char tail[sizeof(reason_memory) + 2] = "";
    if (sys_errno != 0) { /* else no ": Success" */
        const char *reason = strerror_r(sys_errno, reason_memory, sizeof(reason_memory));
        int tail_wanted = snprintf(tail, sizeof(tail), ": %s", reason);
        sc_status_text_finish(tail, sizeof(tail), tail_wanted);
    }
    char text[TEXT_BYTES];
    size_t room = sizeof(text) - strlen(tail); /* cuts a long path, not the reason */
    sc_status_text_finish(text, room, vsnprintf(text, room, format, args));
    size_t length = strlen(text), tail_length = strlen(tail);
    if (length < tail_length || strcmp(text + length - tail_length, tail) != 0)
        strcat(text, tail); /* a text that is passed on has it already */
    error_write(reterr, code, sys_errno, text);
    return code;
}

spec_status sc_fail(struct spec_error *reterr, spec_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    code = fail(reterr, code, 0, format, args);
    va_end(args);
    return code;
}

spec_status sc_fail_errno(struct spec_error *reterr, spec_status code, int sys_errno,
                          const char *format, ...)
{
    va_list args;
    va_start(args, format);
    code = fail(reterr, code, sys_errno, format, args);
    va_end(args);
    return code;
}

#define NAME(status) [SPEC_PENDING - (status)] = #status /* PENDING is the highest */

const char *sc_status_name(spec_status status)
{
    static const char *const names[] = {
        NAME(SPEC_PENDING),       NAME(SPEC_OK),          NAME(SPEC_E_INVALID),
        NAME(SPEC_E_UNSUPPORTED), NAME(SPEC_E_NO_MEMORY), NAME(SPEC_E_NO_SPACE),
        NAME(SPEC_E_IO),          NAME(SPEC_E_CORRUPT),   NAME(SPEC_E_BUSY),
        NAME(SPEC_E_TIMEOUT),     NAME(SPEC_E_DROPPED),   NAME(SPEC_E_FORKED),
        NAME(SPEC_E_LOCKED),      NAME(SPEC_E_VERSION),   NAME(SPEC_E_STALE),
        NAME(SPEC_E_POISONED),    NAME(SPEC_E_CONFIG)};
    uint32_t i = (uint32_t)SPEC_PENDING - (uint32_t)status;
    return i < sizeof(names) / sizeof(names[0]) ? names[i] : "SPEC_?";
}
