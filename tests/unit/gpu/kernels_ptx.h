/* The two kernels that the tests of gpu/ launch, as PTX: what a real driver compiles. The fake has
 * them under the same names, by its table. A byte a thread, grid-stride; addresses are generic, so
 * that host memory is read over the bus. */
#ifndef TESTS_UNIT_GPU_KERNELS_PTX_H
#define TESTS_UNIT_GPU_KERNELS_PTX_H

/* %index of the thread, %stride of the grid, until %end. */
#define PTX_LOOP(body)                                                                             \
    "  mov.u32 %r1, %ctaid.x;\n"                                                                   \
    "  mov.u32 %r2, %ntid.x;\n"                                                                    \
    "  mov.u32 %r3, %tid.x;\n"                                                                     \
    "  mov.u32 %r4, %nctaid.x;\n"                                                                  \
    "  mul.wide.u32 %index, %r1, %r2;\n"                                                           \
    "  cvt.u64.u32 %stride, %r3;\n"                                                                \
    "  add.u64 %index, %index, %stride;\n"                                                         \
    "  mul.wide.u32 %stride, %r4, %r2;\n"                                                          \
    "NEXT:\n"                                                                                      \
    "  setp.ge.u64 %done, %index, %end;\n"                                                         \
    "  @%done bra DONE;\n" body "  add.u64 %index, %index, %stride;\n"                             \
    "  bra NEXT;\n"                                                                                \
    "DONE:\n"                                                                                      \
    "  ret;\n"                                                                                     \
    "}\n"
#define PTX_REGISTERS                                                                              \
    "{\n"                                                                                          \
    "  .reg .u64 %to, %from, %end, %index, %stride, %at;\n"                                        \
    "  .reg .u32 %r<6>;\n"                                                                         \
    "  .reg .u16 %byte;\n"                                                                         \
    "  .reg .pred %done;\n"

static const char kernels_ptx[] =
    "// kernels of the tests of gpu/\n"
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry fake_copy(.param .u64 to, .param .u64 from, .param .u64 bytes)\n" PTX_REGISTERS
    "  ld.param.u64 %to, [to];\n"
    "  ld.param.u64 %from, [from];\n"
    "  ld.param.u64 %end, [bytes];\n" PTX_LOOP(
        "  add.u64 %at, %from, %index;\n"
        "  ld.u8 %byte, [%at];\n"
        "  add.u64 %at, %to, %index;\n"
        "  st.u8 [%at], %byte;\n") ".visible .entry fake_fill(.param .u64 to, .param .u64 bytes, "
                                   ".param .u32 byte)\n" PTX_REGISTERS "  ld.param.u64 %to, [to];\n"
                                   "  ld.param.u64 %end, [bytes];\n"
                                   "  ld.param.u32 %r5, [byte];\n"
                                   "  cvt.u16.u32 %byte, %r5;\n" PTX_LOOP(
                                       "  add.u64 %at, %to, %index;\n"
                                       "  st.u8 [%at], %byte;\n");

#endif
