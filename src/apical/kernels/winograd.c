/* The transforms of Winograd's convolution, 3x3 with a padding of one pixel: y = A'[(G g G') . (B' d B)]A for each tile d.
 *
 * `spread` takes the tiles of images to their points, L d L'; `collect` is its adjoint, L' p L, and adds where tiles overlap. So
 * input (L = B'), output (L = A) and weights (L = G, images of 3x3 pixels) need nothing else, forward and backward: what is spread
 * forward is collected backward. Between them stand products of matrices, one for each point, which torch computes.
 *
 * Images are [image][row][column][channel], points are [point][image and tile][channel]. Vectors are channels.
 *
 * These loops wait for memory, so one build for AVX2 serves AVX-512 too; the Python side calls nothing of it on a lesser processor.
 * Why drivers only split the work is told in ada.c.
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(APICAL_NO_CLONES)
#define LEVEL 3
#define LEVELLED __attribute__((target("arch=x86-64-v3")))
#define BYTES 32
#else
#define LEVEL 0
#define LEVELLED
#define BYTES 16
#endif

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
#define UNROLL _Pragma("GCC unroll 8")
#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Images on one side; on the other, `point` values from one point to the next. The Python side declares the same fields. */
typedef struct {
    int64_t images, height, width, channels, point;
} tiling;

/* L [points][pixels] of each form. F(4x4, 3x3) has the points 0, S, -S, T, -T and infinity: with 5/8 and 3/2 results have less
 * than half of the rounding errors that they have with 1 and 2, and input and output have exact coefficients. */
#define S 0.625
#define T 1.5
#define SS (S * S)
#define TT (T * T)
static const double INPUT_4[] = {SS * TT, 0, -SS - TT, 0, 1, 0, 0, -S * TT, -TT, S, 1, 0, 0, S * TT, -TT, -S, 1, 0,
                                 0, -T * SS, -SS, T, 1, 0, 0, T * SS, -SS, -T, 1, 0, 0, SS * TT, 0, -SS - TT, 0, 1};
static const double OUTPUT_4[] = {1, 0, 0, 0, 1, S, SS, S * SS, 1, -S, SS, -S * SS,
                                  1, T, TT, T * TT, 1, -T, TT, -T * TT, 0, 0, 0, 1};
#define FOR_S (2 * SS * (SS - TT))
#define FOR_T (2 * TT * (TT - SS))
static const double WEIGHT_4[] = {1 / (SS * TT), 0, 0, 1 / FOR_S, S / FOR_S, SS / FOR_S, 1 / FOR_S, -S / FOR_S, SS / FOR_S,
                                  1 / FOR_T, T / FOR_T, TT / FOR_T, 1 / FOR_T, -T / FOR_T, TT / FOR_T, 0, 0, 1};
/* An image of at most two pixels a side: its padding is zero, so y0 = g1 d0 + g2 d1 and y1 = g0 d0 + g1 d1 take three products,
 * g1 (d0 + d1), (g2 - g1) d1 and (g0 - g1) d0. */
static const double INPUT_2[] = {1, 1, 0, 1, 1, 0};
static const double OUTPUT_2[] = {1, 1, 1, 0, 0, 1};
static const double WEIGHT_2[] = {0, 1, 0, 0, -1, 1, 1, -1, 0};

/* F(number, L, points, pixels of a tile, from one tile to the next, pixels of the first tile before the image). */
#define EACH_FORM(F)                                                                                                  \
    F(0, INPUT_4, 6, 6, 4, 1) F(1, OUTPUT_4, 6, 4, 4, 0) F(2, WEIGHT_4, 6, 3, 3, 0)                                   \
    F(3, INPUT_2, 3, 2, 2, 0) F(4, OUTPUT_2, 3, 2, 2, 0) F(5, WEIGHT_2, 3, 3, 3, 0)
#define MOST 6 /* points or pixels */

static const int64_t STEPS[] = {
#define STEP(number, matrix, points, pixels, step, before) step,
    EACH_FORM(STEP)
#undef STEP
};

static int64_t tiles(const tiling *t, int form) {
    const int64_t step = STEPS[form];
    return (t->height + step - 1) / step * ((t->width + step - 1) / step);
}

/* The first pixel of a tile, which may lie outside of its image, and which rows and columns of the tile lie inside. */
typedef struct {
    int64_t first, top, bottom, left, right;
} tile;

INLINE tile tile_at(const tiling *t, int64_t i, int64_t j, int pixels, int step, int before) {
    const int64_t y = i * step - before, x = j * step - before;
    return (tile){(y * t->width + x) * t->channels, y < 0 ? -y : 0, MIN(t->height - y, pixels),
                  x < 0 ? -x : 0, MIN(t->width - x, pixels)};
}

/* The apical_cpu_level that the processor must have. */
EXPORT int apical_winograd_level(void) { return LEVEL; }

/* Bytes of channels that are taken at once: a line of the cache, since the lines of all points often share one place in it. */
#define LINE 64

#define REAL float
#define NAME(f) f##_f32
#include "winograd.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(f) f##_f64
#include "winograd.h"
