/* args: reads and writes the host's versioned structures. Contract: args.h. */
#include "plugin/args/args.h"

#include <string.h>

/* Upper bound of struct_size: keeps the tail scan bounded. */
#define ARGS_BYTES_MAX 65536u

/* ---- Forms: the sizes that ABI-001 allows ---------------------------------------------------- */

#define END(object, member)                                                                        \
    ((uint16_t)(offsetof(struct object, member) + sizeof(((struct object *)0)->member)))
#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

/* Members behind `last` have 8 bytes. A new one of another size moves `last` and is listed. */
#define FORM(name, object, list, last)                                                             \
    const struct sc_plugin_args_form sc_plugin_form_##name = {.bytes = sizeof(struct object),      \
                                                              .end_count = COUNT(list),            \
                                                              .ends = (list),                      \
                                                              .even_from = END(object, last)};     \
    _Static_assert((sizeof(struct object) - END(object, last)) % 8 == 0, "a member is not listed")

static const uint16_t ALLOC[] = {END(spec_alloc, user)};
static const uint16_t MEMORY[] = {END(spec_memory, head_stride_bytes)};
static const uint16_t QUERIES[] = {END(spec_queries, head_stride_bytes),
                                   END(spec_queries, first_position), END(spec_queries, stream),
                                   END(spec_queries, scale), END(spec_queries, reserved)};
static const uint16_t LAYER_GROUP[] = {END(spec_layer_group, dtype)};
static const uint16_t MODEL[] = {END(spec_model, weights_id), END(spec_model, revision),
                                 END(spec_model, head_size_v), END(spec_model, reserved)};
static const uint16_t OPEN[] = {
    END(spec_open_params, model),         END(spec_open_params, alloc),
    END(spec_open_params, log),           END(spec_open_params, log_user),
    END(spec_open_params, log_level_max), END(spec_open_params, rank),
    END(spec_open_params, rank_count),    END(spec_open_params, reserved)};
static const uint16_t EXTRA_KEY[] = {END(spec_extra_key, value)};
static const uint16_t LOOKUP[] = {
    END(spec_lookup_params, token_count), END(spec_lookup_params, from_token),
    END(spec_lookup_params, max_tokens),  END(spec_lookup_params, multiple_of),
    END(spec_lookup_params, salt),        END(spec_lookup_params, lora)};
static const uint16_t LOOKUP_RESULT[] = {
    END(spec_lookup_result, matched_tokens), END(spec_lookup_result, provenance),
    END(spec_lookup_result, tier_bytes), END(spec_lookup_result, load_ns),
    END(spec_lookup_result, lease)};
static const uint16_t SELECT[] = {END(spec_select, count), END(spec_select, exact_ppm),
                                  END(spec_select, reserved)};
static const uint16_t IMPORTANT[] = {
    END(spec_important, row_count),       END(spec_important, next_position),
    END(spec_important, failed_position), END(spec_important, similarity),
    END(spec_important, threshold),       END(spec_important, wanted_bytes),
    END(spec_important, read_bytes),      END(spec_important, io_ops),
    END(spec_important, io_exposed_ns),   END(spec_important, probe_ns),
    END(spec_important, tier_rows),       END(spec_important, prefetched_rows),
    END(spec_important, exact_rows),      END(spec_important, provenance)};
static const uint16_t STORE[] = {END(spec_store_params, memory)};
static const uint16_t COMPUTED[] = {END(spec_computed, ns)};
static const uint16_t ATTACH[] = {END(spec_attach_params, lease)};
static const uint16_t STAGE[] = {END(spec_prefetch_to_host_params, request)};
static const uint16_t NEXT_CHUNK[] = {END(spec_next_chunk, token_count)};
static const uint16_t MAINTAIN[] = {END(spec_maintain_params, flags),
                                    END(spec_maintain_params, deadline_ns),
                                    END(spec_maintain_params, salt)};
static const uint16_t STATS[] = {END(spec_stats, matched_tokens)};

FORM(alloc, spec_alloc, ALLOC, user);
FORM(memory, spec_memory, MEMORY, head_stride_bytes);
FORM(queries, spec_queries, QUERIES, reserved);
FORM(layer_group, spec_layer_group, LAYER_GROUP, dtype);
FORM(model, spec_model, MODEL, reserved);
FORM(open, spec_open_params, OPEN, reserved);
FORM(extra_key, spec_extra_key, EXTRA_KEY, value);
FORM(lookup, spec_lookup_params, LOOKUP, lora);
FORM(lookup_result, spec_lookup_result, LOOKUP_RESULT, lease);
FORM(select, spec_select, SELECT, reserved);
FORM(important, spec_important, IMPORTANT, provenance);
FORM(store, spec_store_params, STORE, memory);
FORM(computed, spec_computed, COMPUTED, ns);
FORM(attach, spec_attach_params, ATTACH, lease);
FORM(next_chunk, spec_next_chunk, NEXT_CHUNK, token_count);
FORM(maintain, spec_maintain_params, MAINTAIN, salt);
FORM(prefetch_to_host, spec_prefetch_to_host_params, STAGE, request);
FORM(stats, spec_stats, STATS, matched_tokens);

/* ---- Reading and writing --------------------------------------------------------------------- */

static bool ends_a_member(const struct sc_plugin_args_form *form, uint32_t struct_size)
{
    for (uint32_t i = 0; i < form->end_count; i++)
        if (form->ends[i] == struct_size)
            return true;
    return struct_size >= form->even_from && (struct_size - form->even_from) % 8 == 0;
}

static spec_status check_size(uint32_t struct_size, const struct sc_plugin_args_form *form,
                              const char *name, struct spec_error *reterr)
{
    if (struct_size < form->ends[0] || struct_size > ARGS_BYTES_MAX)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: struct_size is %" PRIu32 ", expected sizeof of the structure: %" PRIu32
                       ", at least %u",
                       name, struct_size, form->bytes, form->ends[0]);
    if (struct_size < form->bytes && !ends_a_member(form, struct_size))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: struct_size is %" PRIu32 ", which ends inside a member", name,
                       struct_size);
    return SPEC_OK;
}

spec_status sc_plugin_args_read(void *dst, const struct sc_plugin_args_form *form, const void *src,
                                const char *name, struct spec_error *reterr)
{
    if (src == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "%s is NULL, expected a structure", name);
    uint32_t struct_size;
    memcpy(&struct_size, src, sizeof(struct_size));
    spec_status status = check_size(struct_size, form, name, reterr);
    if (status != SPEC_OK)
        return status;
    const uint8_t *bytes = src;
    uint32_t our_bytes = form->bytes;
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

spec_status sc_plugin_args_read_at(void *dst, const struct sc_plugin_args_form *form,
                                   const void *array, uint64_t i, const char *name,
                                   struct spec_error *reterr)
{
    uint32_t stride, struct_size; /* first: a larger one would reach behind the element */
    memcpy(&stride, array, sizeof(stride));
    const void *element = (const uint8_t *)array + i * stride;
    memcpy(&struct_size, element, sizeof(struct_size));
    if (struct_size != stride)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s[%" PRIu64 "] has another struct_size than the first", name, i);
    return sc_plugin_args_read(dst, form, element, name, reterr);
}

void sc_plugin_args_write(void *dst, const void *src, uint32_t our_bytes)
{
    uint32_t struct_size;
    memcpy(&struct_size, dst, sizeof(struct_size));
    uint32_t known_bytes = struct_size < our_bytes ? struct_size : our_bytes;
    memcpy((uint8_t *)dst + sizeof(struct_size), (const uint8_t *)src + sizeof(struct_size),
           known_bytes - sizeof(struct_size));
}

spec_status sc_plugin_args_check_output(const void *dst, const struct sc_plugin_args_form *form,
                                        const char *name, struct spec_error *reterr)
{
    if (dst == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "%s is NULL, expected a structure to write", name);
    uint32_t struct_size;
    memcpy(&struct_size, dst, sizeof(struct_size));
    return check_size(struct_size, form, name, reterr);
}
