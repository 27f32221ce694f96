/* A call that stands in the table and waits for its feature: ABI-132.
 *
 * Holds: it answers SPEC_E_UNSUPPORTED, writes no output, and the connector stays usable.
 * Does not, Threads, Tests: as fixture.h. */
#include "conformance/suite.h"

static void abi_132_next_chunk_in_version_0_2_is_unsupported(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(191, 10);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct spec_next_chunk chunk = {
        .struct_size = sizeof(chunk), .request = found.request, .budget_tokens = 5};
    assert_status(fx->api->next_chunk(fx->conn, &chunk, &fx->error), SPEC_E_UNSUPPORTED);
    assert_int_equal(chunk.token_count, 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

const struct conf_test CONF_LATER[] = {
    OPENED(abi_132_next_chunk_in_version_0_2_is_unsupported),
    END,
};
