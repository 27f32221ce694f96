/* Pinning host memory: what is refused, what children see, what is left. */
#include "gpu/pin.h"
#include "tests/unit/gpu/attached.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  4096u
#define BYTES (16u * PAGE)

static void pages_are_registered_and_back(void **state)
{
    (void)state;
    struct attached it;
    struct sc_gpu_pin pin = {0};
    attached_open(&it);
    uint8_t *memory = sc_alloc_huge(&it.alloc, BYTES);
    assert_non_null(memory);
    assert_int_equal(sc_gpu_pin(it.device, memory, BYTES, &pin, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_pin_address(&pin, memory + 100), pin.device_at + 100);
    assert_non_null(strstr(fake_leaks(), "1 registrations"));
    sc_gpu_unpin(&pin);
    assert_null(pin.device);
    sc_gpu_unpin(&pin); /* zeros: nothing */
    assert_non_null(strstr(fake_leaks(), "0 registrations"));
    sc_alloc_free(&it.alloc, memory);
    attached_close(&it);
}

static void refused(struct attached *it, void *memory, uint64_t bytes, spec_status expected,
                    const char *words)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_gpu_pin pin = {.bytes = 7};
    assert_int_equal(sc_gpu_pin(it->device, memory, bytes, &pin, &error), expected);
    assert_int_equal(pin.bytes, 7);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void what_cannot_be_pinned_says_why(void **state)
{
    (void)state;
    struct attached it;
    struct sc_gpu_pin pin = {0};
    attached_open(&it);
    uint8_t *memory = sc_alloc_huge(&it.alloc, BYTES);
    refused(&it, NULL, BYTES, SPEC_E_INVALID, "not whole pages");
    refused(&it, memory, 0, SPEC_E_INVALID, "not whole pages");
    refused(&it, memory + 64, PAGE, SPEC_E_INVALID, "not whole pages");
    refused(&it, memory, PAGE + 1, SPEC_E_INVALID, "not whole pages");
    fake_fault("cuMemHostRegister", 1, SC_CU_OUT_OF_MEMORY);
    refused(&it, memory, BYTES, SPEC_E_UNSUPPORTED, "cannot be pinned: CUDA 2");
    fake_fault("cuMemHostGetDevicePointer", 1, SC_CU_OUT_OF_MEMORY);
    refused(&it, memory, BYTES, SPEC_E_UNSUPPORTED, "have no address: CUDA 2");
    assert_non_null(strstr(fake_leaks(), "0 registrations"));
    assert_int_equal(sc_gpu_pin(it.device, memory, BYTES, &pin, NULL), SPEC_OK);
    refused(&it, memory + PAGE, PAGE, SPEC_E_UNSUPPORTED, "cannot be pinned: CUDA 712");
    assert_false(sc_gpu_has_failed(it.device)); /* a refusal closes nothing */
    (void)sc_gpu_check(it.device, SC_CU_LAUNCH_FAILED, "a call", NULL);
    refused(&it, memory, PAGE, SPEC_E_UNSUPPORTED, "closed since a call: CUDA 719");
    sc_gpu_unpin(&pin); /* on a closed device too */
    sc_alloc_free(&it.alloc, memory);
    attached_close(&it);
}

/* Whether a child of now reads that byte: 1, or dies by SIGSEGV: 0. */
static int child_reads(const volatile uint8_t *byte)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would print */
        (void)*byte;
        _exit(0);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV ? 0 : 1;
}

static void children_have_no_pinned_pages(void **state)
{
    (void)state;
    struct attached it;
    struct sc_gpu_pin pin = {0};
    attached_open(&it);
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memory[BYTES - 1] = 1;
    assert_int_equal(child_reads(memory), 1);
    assert_int_equal(sc_gpu_pin(it.device, memory, BYTES - PAGE, &pin, NULL), SPEC_OK);
    assert_int_equal(child_reads(memory), 0);
    assert_int_equal(child_reads(memory + BYTES - 1), 1); /* behind it */
    sc_gpu_unpin(&pin);
    assert_int_equal(child_reads(memory), 1);
    fake_fault("cuMemHostRegister", 1, SC_CU_OUT_OF_MEMORY);
    assert_int_equal(sc_gpu_pin(it.device, memory, BYTES, &pin, NULL), SPEC_E_UNSUPPORTED);
    assert_int_equal(child_reads(memory), 1);
    munmap(memory, BYTES);
    attached_close(&it);
}

static void a_forked_child_touches_nothing(void **state)
{
    (void)state;
    struct attached it;
    struct sc_gpu_pin pin = {0}, other = {0};
    attached_open(&it);
    uint8_t *memory = sc_alloc_huge(&it.alloc, BYTES);
    assert_int_equal(sc_gpu_pin(it.device, memory, BYTES, &pin, NULL), SPEC_OK);
    uint64_t calls = fake_calls();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static uint8_t page[2 * PAGE];
        uint8_t *whole = page + (PAGE - (uintptr_t)page % PAGE) % PAGE;
        bool is_refused = sc_gpu_pin(it.device, whole, PAGE, &other, NULL) == SPEC_E_UNSUPPORTED;
        sc_gpu_unpin(&pin);
        sc_gpu_device_detach(it.device);
        _exit(is_refused && fake_calls() == calls ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    sc_gpu_unpin(&pin);
    sc_alloc_free(&it.alloc, memory);
    attached_close(&it);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_registered_and_back),
        cmocka_unit_test(what_cannot_be_pinned_says_why),
        cmocka_unit_test(children_have_no_pinned_pages),
        cmocka_unit_test(a_forked_child_touches_nothing),
    };
    if (argc > 1) /* for the mutants */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
