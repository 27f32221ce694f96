/* cpuid: detects which variants of the kernels this machine can run.
 *
 * A level needs the processor's instructions and an operating system that saves its registers
 * (xgetbv). AVX2 means AVX2, FMA and F16C; AVX-512 means F, BW, DQ and VL in addition. All levels
 * give the same bits. No compiler start-up code (constructors) is used.
 * Threads: any; eng_cpu_force while kernels run changes the speed of later calls only.
 * Tests: tests/unit/engine/test_vecmath.c */
#ifndef CONFORMANCE_ENGINE_CPUID_H
#define CONFORMANCE_ENGINE_CPUID_H

enum eng_cpu_level { ENG_CPU_PLAIN, ENG_CPU_AVX2, ENG_CPU_AVX512, ENG_CPU_LEVELS };

/* The best level that this machine and this build can run. */
enum eng_cpu_level eng_cpu_best(void);

/* The level in use: the best one, or what eng_cpu_force set. */
enum eng_cpu_level eng_cpu_get(void);

/* Uses `level`, or the best one where the machine cannot run it; returns the level now in use. */
enum eng_cpu_level eng_cpu_force(enum eng_cpu_level level);

const char *eng_cpu_name(enum eng_cpu_level level);

#endif
