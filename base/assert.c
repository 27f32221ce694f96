/* assert: keeps the first broken invariant's place; poison is marked before sc_assert_failed
 * returns. */
#include "base/assert.h"

#include <stddef.h>

#ifdef SC_ASSERT_ABORTS
#include <stdio.h>
#include <stdlib.h>
#endif

void sc_assert_failed(struct sc_poison *poison, const char *expression, const char *file,
                      uint32_t line)
{
#ifdef SC_ASSERT_ABORTS
    (void)poison;
    fprintf(stderr, "%s:%u: broken invariant: %s\n", file, (unsigned)line, expression);
    abort();
#else
    if (poison == NULL)
        return;
    const char *none = NULL;
    if (atomic_compare_exchange_strong(&poison->expression, &none, expression)) {
        atomic_store(&poison->file, file);
        atomic_store(&poison->line, line);
    }
    atomic_store(&poison->broken, 1u);
#endif
}
