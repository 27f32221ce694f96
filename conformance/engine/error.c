/* error: error texts of the reference engine. See error.h. */
#include "conformance/engine/error.h"

#include <stdarg.h>
#include <stdio.h>

/* Bytes of the character at c: 0 where it is no well-formed UTF-8 (a name was cut inside one). */
static int character_bytes(const unsigned char *c)
{
    int bytes = *c < 0x80 ? 1 : *c < 0xc2 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : *c < 0xf5 ? 4 : 0;
    for (int i = 1; i < bytes; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 0; /* also the NUL that ends the text */
    }
    return bytes;
}

eng_status eng_fail(struct eng_error *err, eng_status code, const char *format, ...)
{
    if (err == NULL)
        return code;
    err->code = code;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    /* Names from files may hold line ends, terminal codes or half a character. */
    for (unsigned char *c = (unsigned char *)err->text; *c != '\0';) {
        int bytes = character_bytes(c);
        if (bytes == 0 || *c < 0x20 || *c == 0x7f)
            *c = '?';
        c += bytes == 0 ? 1 : bytes;
    }
    return code;
}
