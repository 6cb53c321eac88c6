/* The eager CPU kernels of ADA (Eqs. 3 and 6 of the paper) and of the pyramidal sum (Eq. 12).
 *
 * Plain C, no torch header: Python hands over raw pointers. `template.h` holds the arithmetic and is compiled once
 * per dtype; half types are widened to float on load and rounded to nearest even on store. The range functions carry
 * CLONES, so the loader picks the widest instruction set of the CPU; the drivers around them only split work, because
 * a function that OpenMP outlines would lose that choice.
 *
 * Sums for the gradients of alpha and c are cut into pieces that depend on the shape alone, never on the number of
 * threads, so that results repeat bit for bit.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(APICAL_NO_CLONES)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 8")
#define EXPORT __attribute__((visibility("default")))

/* What the arithmetic needs beside the data; the Python side declares the same fields in the same order. */
typedef struct {
    const void *alpha, *c;    /* `channels` values each, in the type of the arithmetic */
    int64_t channels, inner;  /* element i belongs to channel (i / inner) % channels */
    double leak, floor;       /* slope below zero; what a learned alpha is held at from below */
    double basal_leak;        /* pyramidal sum: slope of the basal branch below zero */
} parameters;

/* Torch starts threads above this many elements; so do we. */
#define GRAIN 32768
/* Work is cut into this many pieces at the most, whatever the number of threads. */
#define PIECES 64
#define PIECES_OF(n, units) ((n) > GRAIN ? ((units) < PIECES ? (units) : PIECES) : 1)
/* Elements that a sum adds up in the type of the arithmetic before it goes on in double. */
#define STRETCH 1024

#define UNPACK(with)                                                     \
    const REAL *alpha = (with)->alpha, *c = (with)->c;                   \
    const int64_t channels = (with)->channels, inner = (with)->inner;    \
    const REAL leak = (REAL)(with)->leak, floor = (REAL)(with)->floor;   \
    (void)threads /* unused without OpenMP */

/* A learned alpha is held at `floor` from below; NaN stays NaN. */
#define HELD(a) ((a) < floor ? floor : (a))

/* What one x adds to the gradients of alpha and c, for an upstream gradient g. */
#define POSITIVE(point, x) ((x) < 0 ? 0 : (point).value)
#define FOR_ALPHA(point, x, g) (-(POSITIVE(point, x) * (point).p) * (g))
#define FOR_C(point, x, g) (POSITIVE(point, x) * (g))

static double sum_of_pieces(const double *first, int64_t pieces, int64_t apart) {
    double sum = 0;
    for (int64_t k = 0; k < pieces; k++) sum += first[k * apart];
    return sum;
}

INLINE float bits_to_float(uint32_t u) { float f; memcpy(&f, &u, sizeof f); return f; }
INLINE uint32_t float_to_bits(float f) { uint32_t u; memcpy(&u, &f, sizeof u); return u; }
INLINE double bits_to_double(uint64_t u) { double d; memcpy(&d, &u, sizeof d); return d; }
INLINE uint64_t double_to_bits(double d) { uint64_t u; memcpy(&u, &d, sizeof u); return u; }

INLINE float load_bf16(uint16_t h) { return bits_to_float((uint32_t)h << 16); }
INLINE uint16_t store_bf16(float f) {
    uint32_t u = float_to_bits(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)(f == f ? rounded : 0x7fc0u);
}

INLINE float load_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t body = (uint32_t)(h & 0x7fffu) << 13;
    /* Multiplying by 2^112 moves the exponent into place, subnormals included. */
    float finite = bits_to_float(body) * 0x1p112f;
    uint32_t bits = (h & 0x7c00u) == 0x7c00u ? (body | 0x7f800000u) : float_to_bits(finite);
    return bits_to_float(bits | sign);
}
INLINE uint16_t store_f16(float f) {
    uint32_t u = float_to_bits(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t body = u & 0x7fffffffu;
    uint32_t normal = (body - 0x38000000u + 0xfffu + ((body >> 13) & 1u)) >> 13;
    /* Adding 0.5 lines a subnormal's bits up with the end of the mantissa and rounds it. */
    uint32_t subnormal = float_to_bits(bits_to_float(body) + 0.5f) - 0x3f000000u;
    uint32_t finite = body < 0x38800000u ? subnormal : normal;
    finite = body >= 0x477ff000u ? 0x7c00u : finite;
    return (uint16_t)(sign | (body > 0x7f800000u ? 0x7e00u : finite));
}

/* e^t * 2^lift. Adding SHIFT = 1.5 * 2^(mantissa bits) rounds t/ln2 to an integer k and leaves k + lift in the low bits,
 * from where one shift moves it onto the exponent. The lift keeps the result normal where e^t itself is not. */
INLINE float lifted_exp_f32(float t, float lift) {
    const float shift = 12582912.0f + lift;
    float z = t * 1.44269504088896341f + shift;
    float n = z - shift;
    float r = t - n * 0.693359375f;
    r = r - n * -2.12194440054690583e-4f;
    /* The best polynomial of this degree that is 1 at 0: off by 9.2e-8 at most for |r| <= ln2 / 2. */
    float m = 0.00829027192531583f;
    m = m * r + 0.04189815970954199f;
    m = m * r + 0.16667638130236204f;
    m = m * r + 0.499991478401751f;
    m = m * r + 0.9999997063123534f;
    m = m * r + 1.0f;
    return bits_to_float(float_to_bits(m) + (float_to_bits(z) << 23));
}

INLINE double lifted_exp_f64(double t, double lift) {
    const double shift = 6755399441055744.0 + lift;
    double z = t * 1.4426950408889634074 + shift;
    double n = z - shift;
    double r = t - n * 6.93145751953125e-1;
    r = r - n * 1.42860682030941723212e-6;
    double m = 1.0 / 6227020800.0;
    m = m * r + 1.0 / 479001600.0;
    m = m * r + 1.0 / 39916800.0;
    m = m * r + 1.0 / 3628800.0;
    m = m * r + 1.0 / 362880.0;
    m = m * r + 1.0 / 40320.0;
    m = m * r + 1.0 / 5040.0;
    m = m * r + 1.0 / 720.0;
    m = m * r + 1.0 / 120.0;
    m = m * r + 1.0 / 24.0;
    m = m * r + 1.0 / 6.0;
    m = m * r + 0.5;
    m = m * r + 1.0;
    m = m * r + 1.0;
    return bits_to_double(double_to_bits(m) + (double_to_bits(z) << 52));
}

#define IDENTITY(v) (v)

/* LIFT is worn while c < LIFTED_BELOW, where e^c * 2^LIFT is far from overflow. LOWEST: below it e^t * 2^LIFT would not be
 * normal, and max(0,x) * e^t is less than the smallest subnormal times any x that alpha >= 1e-4 allows. */
#define NAME(f) f##_f32
#define STORAGE float
#define REAL float
#define LOAD IDENTITY
#define STORE IDENTITY
#define LIFTED_EXP lifted_exp_f32
#define LIFT 32.0f
#define UNLIFT 0x1p-32f
#define LIFTED_BELOW 60.0f
#define LOWEST -108.0f
#define LOWEST_UNLIFTED -86.0f
#define HIGHEST 88.0f
#include "template.h"
#include "norm.h"
#include "neurons.h"
#undef NAME
#undef STORAGE
#undef LOAD
#undef STORE

#define NAME(f) f##_bf16
#define STORAGE uint16_t
#define LOAD load_bf16
#define STORE store_bf16
#include "template.h"
#undef NAME
#undef LOAD
#undef STORE

#define NAME(f) f##_f16
#define LOAD load_f16
#define STORE store_f16
#include "template.h"
#undef NAME
#undef STORAGE
#undef REAL
#undef LOAD
#undef STORE
#undef LIFTED_EXP
#undef LIFT
#undef UNLIFT
#undef LIFTED_BELOW
#undef LOWEST
#undef LOWEST_UNLIFTED
#undef HIGHEST

#define NAME(f) f##_f64
#define STORAGE double
#define REAL double
#define LOAD IDENTITY
#define STORE IDENTITY
#define LIFTED_EXP lifted_exp_f64
#define LIFT 64.0
#define UNLIFT 0x1p-64
#define LIFTED_BELOW 600.0
#define LOWEST -750.0
#define LOWEST_UNLIFTED -706.0
#define HIGHEST 709.0
#include "template.h"

/* Which instruction set the loader chose: 4 and 3 are the x86-64 levels, 0 is what the compiler targets by default. */
EXPORT int apical_cpu_level(void) {
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(APICAL_NO_CLONES)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) return 4;
    if (__builtin_cpu_supports("x86-64-v3")) return 3;
#endif
    return 0;
}
