/* Fuzz target: the configuration's text, as a file (any byte) and, where it can be, inline.
 *
 * Holds: what is accepted satisfies every bound that its users rely on, and both ways agree; what
 * is refused has one line of text and has changed nothing; nothing leaks.
 * Does not: let the input name a file of the machine.
 * Threads: one.
 * Tests: tests/fuzz/replay.c with tests/fuzz/corpus/config */
#include "base/config.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int fuzz_was_accepted;

static void check_accepted(const struct sc_config *config)
{
    FUZZ_CHECK(memchr(config->path, '\0', sizeof(config->path)) != NULL);
    FUZZ_CHECK(config->path[0] != '\0');
    FUZZ_CHECK(strlen(config->path) <= SC_LIMIT_PATH_BYTES - SC_LIMIT_PATH_NAME_BYTES);
    FUZZ_CHECK(config->preset < SC_PRESETS);
    FUZZ_CHECK(config->chunk_tokens >= 16 && config->chunk_tokens <= 256);
    FUZZ_CHECK((config->chunk_tokens & (config->chunk_tokens - 1)) == 0);
    FUZZ_CHECK(config->disk_bytes == 0 || config->disk_bytes >= config->segment_bytes);
    FUZZ_CHECK(config->segment_bytes >= 1u << 20 && config->segment_bytes <= 1u << 30);
    FUZZ_CHECK(config->segment_bytes % (1u << 20) == 0);
    FUZZ_CHECK(config->staging_bytes >= 16u << 20);
    FUZZ_CHECK(config->evict_policy <= SC_POLICY_LFU && config->host_policy <= SC_POLICY_SCORE);
    FUZZ_CHECK(config->upper_policy <= SC_POLICY_SCORE + 1);
    FUZZ_CHECK(config->upper_bytes == SC_CONFIG_AUTO || config->upper_bytes <= 1024ull << 40);
    FUZZ_CHECK(config->io_backend <= SC_BACKEND_PREAD);
    FUZZ_CHECK(config->io_threads >= 1 && config->io_threads <= SC_LIMIT_THREADS);
    FUZZ_CHECK(config->io_op_bytes >= 65536 && config->io_op_bytes <= 8u << 20);
    FUZZ_CHECK(config->io_op_bytes % 4096 == 0);
    FUZZ_CHECK(config->max_requests >= 1 && config->max_requests <= SC_LIMIT_REQUESTS);
    FUZZ_CHECK(config->max_request_tokens >= 1);
    FUZZ_CHECK(config->max_request_tokens <= SC_LIMIT_REQUEST_TOKENS);
    FUZZ_CHECK(config->retain_ppm <= 1000000 && config->mass_ppm <= 1000000);
    FUZZ_CHECK(config->budget <= SPEC_BUDGET_MASS && config->metric <= SPEC_METRIC_RANDOM);
    FUZZ_CHECK(config->identify <= SC_IDENTIFY_STATIC && config->predictor <= SC_PREDICTOR_HINT);
    FUZZ_CHECK(config->probe_heads <= SC_LIMIT_PROBE_HEADS && config->unit >= 1);
}

static spec_status parse(const char *text, struct sc_config *ret_config)
{
    struct sc_alloc alloc;
    struct spec_error error = {.struct_size = sizeof(error)};
    sc_alloc_init(&alloc);
    memset(ret_config, 0x5a, sizeof(*ret_config));
    spec_status status = sc_config_parse(&alloc, text, ret_config, &error);
    FUZZ_CHECK(atomic_load(&alloc.live_blocks) == 0);
    if (status == SPEC_OK) {
        check_accepted(ret_config);
        return status;
    }
    FUZZ_CHECK(status == SPEC_E_CONFIG || status == SPEC_E_UNSUPPORTED);
    FUZZ_CHECK(error.code == status && strncmp(error.text, "config: ", 8) == 0);
    FUZZ_CHECK(strlen(error.text) > 8);
    for (const char *at = error.text; *at != '\0'; at++)
        FUZZ_CHECK((unsigned char)*at >= 0x20 && *at != 0x7f);
    const unsigned char *bytes = (const unsigned char *)ret_config;
    for (size_t i = 0; i < sizeof(*ret_config); i++)
        FUZZ_CHECK(bytes[i] == 0x5a);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sc_config from_file, inline_config;
    int fd = memfd_create("config", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(write(fd, data, size) == (ssize_t)size);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    spec_status status = parse(path, &from_file);
    close(fd);
    fuzz_was_accepted = status == SPEC_OK;

    size_t blank = 0;
    while (blank < size && memchr(" \t\r\n", data[blank], 4) != NULL)
        blank++;
    bool is_inline = blank < size && data[blank] == '{' && memchr(data, '\0', size) == NULL;
    if (!is_inline)
        return 0;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    FUZZ_CHECK(parse(text, &inline_config) == status);
    if (status == SPEC_OK)
        FUZZ_CHECK(strcmp(inline_config.path, from_file.path) == 0);
    free(text);
    return 0;
}
