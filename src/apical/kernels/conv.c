/* Convolutions and max-pooling of k networks at once, for the stacked trainer.
 *
 * Images are [channels][height][width][n]: the samples of a batch stand last. A convolution then adds n-vectors, each times
 * one weight. So it fills whole vectors whatever the size of the kernel and the number of channels, it copies no patches, and
 * dense layers take its result as it is. Forward and the gradient of the input are one loop, `gather`; the gradient of the
 * weights is `correlate`. Stride 1, no padding. How CLONES and drivers share the work is told in ada.c.
 *
 * The order of every sum depends on shapes alone, so results repeat bit for bit with any number of threads.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(APICAL_NO_CLONES)
#define X86_LEVELS
#endif

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
#define UNROLL _Pragma("GCC unroll 8")
#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* `networks` alike: (inputs, height, width) -> (outputs, height - rows + 1, width - columns + 1), n samples each. The Python
 * side declares the same fields in the same order. */
typedef struct {
    int64_t networks, inputs, outputs, height, width, rows, columns, n;
} convolution;

/* Images that are pooled in windows of size x size, at most 16 x 16. */
typedef struct {
    int64_t groups, branches, images, height, width, size, n;
} pooling;

/* From the corner of a window to its pixel q. */
#define PIXEL(p, q) (((q) / (p)->size * (p)->width + (q) % (p)->size) * (p)->n)

/* Bytes of a gradient that stay in the first-level cache while all weights see them. */
#define NEAR 16384

/* Compilers keep sums in registers where a vector is exactly one. So all is compiled for AVX-512 ("wide") and for the rest
 * ("narrow"), and the Python side picks by apical_cpu_level. RESULTS, OUTPUTS and COLUMNS: as many sums as there are registers. */
#ifdef X86_LEVELS
#define CLONES __attribute__((target("arch=x86-64-v4")))
#define BYTES 64
#define RESULTS 8
#define OUTPUTS 4
#define COLUMNS 5
#define REAL float
#define NAME(f) f##_wide_f32
#include "conv.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(f) f##_wide_f64
#include "conv.h"
#undef REAL
#undef NAME
#undef CLONES
#undef BYTES
#undef RESULTS
#undef OUTPUTS
#define CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#define BYTES 32
#else
#define COLUMNS 5
#define CLONES
#define BYTES 16
#endif
#define RESULTS 6
#define OUTPUTS 2
#define REAL float
#define NAME(f) f##_narrow_f32
#include "conv.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(f) f##_narrow_f64
#include "conv.h"
