/* Error texts of the reference engine; see error.h.
 *
 * Holds, Does not, Threads, Tests: as error.h.
 */
#include "conformance/engine/error.h"

#include <stdarg.h>
#include <stdio.h>

eng_status eng_fail(struct eng_error *err, eng_status code, const char *format, ...)
{
    if (err == NULL)
        return code;
    err->code = code;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    for (char *c = err->text; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r')
            *c = ' '; /* names from files may hold line ends; an error is one line */
    }
    return code;
}
