/* clang_device: the CUDA names that our kernels use, as clang builtins: device code without a
 * toolkit (clang -x cuda --cuda-device-only -nocudainc -nocudalib).
 * Tests: the build without nvcc and NVRTC; ctest cuda_images_clang */
#ifndef SC_KERNELS_CUDA_CLANG_DEVICE_H
#define SC_KERNELS_CUDA_CLANG_DEVICE_H

#define __global__             __attribute__((global))
#define __device__             __attribute__((device))
#define __shared__             __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__        inline __attribute__((always_inline))

struct uint2 {
    unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
    unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct sc_dim {
    unsigned x, y, z;
};

#define SC_CLANG static __device__ __forceinline__
#define SC_SREG(name, sreg)                                                                        \
    SC_CLANG sc_dim name()                                                                         \
    {                                                                                              \
        return {(unsigned)__nvvm_read_ptx_sreg_##sreg##_x(),                                       \
                (unsigned)__nvvm_read_ptx_sreg_##sreg##_y(),                                       \
                (unsigned)__nvvm_read_ptx_sreg_##sreg##_z()};                                      \
    }
SC_SREG(sc_tid, tid)
SC_SREG(sc_ctaid, ctaid)
SC_SREG(sc_ntid, ntid)
SC_SREG(sc_nctaid, nctaid)
#define threadIdx sc_tid()
#define blockIdx  sc_ctaid()
#define blockDim  sc_ntid()
#define gridDim   sc_nctaid()

typedef unsigned sc_vector2 __attribute__((ext_vector_type(2)));
typedef unsigned sc_vector4 __attribute__((ext_vector_type(4)));

SC_CLANG unsigned char __ldg(const unsigned char *at)
{
    return __nvvm_ldg_uc(at);
}
SC_CLANG unsigned short __ldg(const unsigned short *at)
{
    return __nvvm_ldg_us(at);
}
SC_CLANG unsigned __ldg(const unsigned *at)
{
    return __nvvm_ldg_ui(at);
}
SC_CLANG uint2 __ldg(const uint2 *at)
{
    sc_vector2 value = __nvvm_ldg_ui2(reinterpret_cast<const sc_vector2 *>(at));
    return {value[0], value[1]};
}
SC_CLANG uint4 __ldg(const uint4 *at)
{
    sc_vector4 value = __nvvm_ldg_ui4(reinterpret_cast<const sc_vector4 *>(at));
    return {value[0], value[1], value[2], value[3]};
}
SC_CLANG unsigned __byte_perm(unsigned x, unsigned y, unsigned select)
{
    unsigned result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(select));
    return result;
}
SC_CLANG float __uint_as_float(unsigned bits)
{
    return __builtin_bit_cast(float, bits);
}
SC_CLANG unsigned __float_as_uint(float value)
{
    return __builtin_bit_cast(unsigned, value);
}
SC_CLANG float __fmaf_rn(float a, float b, float c)
{
    return __nvvm_fma_rn_f(a, b, c);
}
SC_CLANG float __fadd_rn(float a, float b)
{
    return __nvvm_add_rn_f(a, b);
}
SC_CLANG float __fmul_rn(float a, float b)
{
    return __nvvm_mul_rn_f(a, b);
}
SC_CLANG float __fdiv_rn(float a, float b)
{
    return __nvvm_div_rn_f(a, b);
}
SC_CLANG float __shfl_xor_sync(unsigned mask, float value, unsigned step)
{
    float result;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, %3;"
                 : "=f"(result)
                 : "f"(value), "r"(step), "r"(mask));
    return result;
}
#endif
