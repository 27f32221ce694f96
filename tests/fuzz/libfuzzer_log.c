/* What libFuzzer does to logs: mostly bends them (mutate.h), now and then makes one, or has its own
 * way with the bytes. Only built with SC_FUZZ.
 *
 * Threads: one.
 * Tests: it is one. */
#include "tests/fuzz/mutate.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    if (seed % 32 == 0)
        return fuzz_log_make(fuzz_form(), seed, data, max_size);
    if (seed % 8 == 1)
        return LLVMFuzzerMutate(data, size, max_size);
    return fuzz_log_bend(fuzz_form(), seed, data, size, max_size);
}
