/* Reading and writing structures that grow at their end; see args.h.
 *
 * Threads: any. Tests: conformance/test_rules.c (abi_001_*, abi_002_*) */
#include "plugin/args.h"

#include <string.h>

#define ARGS_BYTES_MIN 8u /* struct_size and one more word: the smallest structure there is */
#define ARGS_BYTES_MAX                                                                             \
    65536u /* no structure of ours will be larger; keeps the tail scan bounded                     \
            */

static spec_status check_size(uint32_t struct_size, const char *name, struct spec_error *reterr)
{
    if (struct_size < ARGS_BYTES_MIN || struct_size > ARGS_BYTES_MAX)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: struct_size is %" PRIu32 ", expected sizeof of the structure", name,
                       struct_size);
    return SPEC_OK;
}

spec_status sc_plugin_args_read(void *dst, uint32_t our_bytes, const void *src, const char *name,
                                struct spec_error *reterr)
{
    if (src == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "%s is NULL, expected a structure", name);
    uint32_t struct_size;
    memcpy(&struct_size, src, sizeof(struct_size));
    spec_status status = check_size(struct_size, name, reterr);
    if (status != SPEC_OK)
        return status;
    const uint8_t *bytes = src;
    for (uint32_t i = our_bytes; i < struct_size; i++)
        if (bytes[i] != 0)
            return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                           "%s: byte %" PRIu32 " lies behind the %" PRIu32
                           " bytes known to version %u.%u and is not zero",
                           name, i, our_bytes, SPEC_ABI_MAJOR, SPEC_ABI_MINOR);
    uint32_t known_bytes = struct_size < our_bytes ? struct_size : our_bytes;
    memset(dst, 0, our_bytes);
    memcpy(dst, src, known_bytes);
    return SPEC_OK;
}

void sc_plugin_args_write(void *dst, const void *src, uint32_t our_bytes)
{
    uint32_t struct_size;
    memcpy(&struct_size, dst, sizeof(struct_size));
    uint32_t known_bytes = struct_size < our_bytes ? struct_size : our_bytes;
    memcpy((uint8_t *)dst + sizeof(struct_size), (const uint8_t *)src + sizeof(struct_size),
           known_bytes - sizeof(struct_size));
}

spec_status sc_plugin_args_check_output(const void *dst, const char *name,
                                        struct spec_error *reterr)
{
    if (dst == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "%s is NULL, expected a structure to write", name);
    uint32_t struct_size;
    memcpy(&struct_size, dst, sizeof(struct_size));
    return check_size(struct_size, name, reterr);
}
