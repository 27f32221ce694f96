/* Fuzz target: a safetensors file of any bytes.
 *
 * Holds: what is accepted lies inside the file, tiles its data, has bytes = shape x dtype and names
 * in order; every byte of it can be read. What is refused has one line of text and gives nothing;
 * nothing leaks.
 * Threads: one.
 * Tests: tests/fuzz/replay.c with tests/fuzz/corpus/weights */
#include "conformance/engine/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int fuzz_was_accepted;

static uint64_t check_tensor(const struct eng_tensor *tensor)
{
    uint64_t bytes = eng_tensor_dtype_bytes(tensor->dtype);
    uint64_t sum = 0;
    FUZZ_CHECK(bytes >= 1 && bytes <= 8);
    FUZZ_CHECK(tensor->rank <= ENG_TENSOR_RANK_MAX);
    for (uint32_t i = 0; i < tensor->rank; i++)
        bytes *= tensor->shape[i];
    FUZZ_CHECK(bytes == tensor->bytes);
    for (uint64_t i = 0; i < tensor->bytes; i++)
        sum += tensor->data[i];
    FUZZ_CHECK(sum <= 255 * tensor->bytes);
    return tensor->bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eng_tensors *tensors = NULL;
    struct eng_error error = {0};
    int fd = memfd_create("weights", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(write(fd, data, size) == (ssize_t)size);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    eng_status status = eng_tensors_open_file(path, &tensors, &error);
    close(fd);
    fuzz_was_accepted = status == ENG_OK;
    if (status != ENG_OK) {
        FUZZ_CHECK(tensors == NULL && error.code == status && error.text[0] != '\0');
        for (const char *at = error.text; *at != '\0'; at++)
            FUZZ_CHECK((unsigned char)*at >= 0x20 && *at != 0x7f);
        return 0;
    }
    uint64_t total = 0;
    uint64_t count = eng_tensors_count(tensors);
    for (uint64_t i = 0; i < count; i++) {
        const struct eng_tensor *tensor = eng_tensors_at(tensors, i);
        FUZZ_CHECK(i == 0 || strcmp(eng_tensors_at(tensors, i - 1)->name, tensor->name) < 0);
        FUZZ_CHECK(eng_tensors_find(tensors, tensor->name) == tensor);
        total += check_tensor(tensor);
    }
    FUZZ_CHECK(total + 8 <= size);
    eng_tensors_close(tensors);
    return 0;
}
