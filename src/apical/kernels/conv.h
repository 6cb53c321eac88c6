/* Convolutions and pooling for one dtype; see conv.c. */

typedef REAL NAME(vector) __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
#define VECTOR NAME(vector)
#define LANES ((int64_t)(BYTES / sizeof(REAL)))

/* The first `count` values of a vector; a load leaves the others zero. */
INLINE void NAME(load)(VECTOR *v, const REAL *from, int64_t count) {
    if (count == LANES) *v = *(const VECTOR *)from;
    else {
        *v = (VECTOR){0};
        memcpy(v, from, (size_t)count * sizeof(REAL));
    }
}
INLINE void NAME(store)(REAL *to, const VECTOR *v, int64_t count) {
    if (count == LANES) *(VECTOR *)to = *v;
    else memcpy(to, v, (size_t)count * sizeof(REAL));
}

/* ---- forward, and the gradient of the input ----------------------------------------------------------------------- */

/* One pixel of a few results at once: the sum over `sources` images, in each over `high` x `wide` pixels, times the weights
 * [sources][rows][columns][results]. Backward, pixels run against the weights: steps are negative. */
typedef struct {
    const REAL *from, *weight, *bias;
    REAL *to;
    int64_t sources, high, wide;
    int64_t image, row, step;          /* from one source, row, pixel to the next */
    int64_t weight_image, weight_row;
    int64_t apart;                     /* from one result to the next */
} NAME(pixel);

INLINE void NAME(gather)(const NAME(pixel) *p, int64_t at, int results, int vectors, int64_t count) {
    VECTOR sum[RESULTS][2], x[2];
    UNROLL for (int a = 0; a < results; a++)
        UNROLL for (int v = 0; v < vectors; v++) sum[a][v] = (VECTOR){0} + (p->bias ? p->bias[a] : 0);
    for (int64_t s = 0; s < p->sources; s++)
        for (int64_t r = 0; r < p->high; r++) {
            const REAL *from = p->from + s * p->image + r * p->row + at;
            const REAL *weight = p->weight + s * p->weight_image + r * p->weight_row;
            for (int64_t i = 0; i < p->wide; i++, from += p->step, weight += results) {
                UNROLL for (int v = 0; v < vectors; v++) NAME(load)(&x[v], from + v * LANES, count);
                UNROLL for (int a = 0; a < results; a++)
                    UNROLL for (int v = 0; v < vectors; v++) sum[a][v] += x[v] * weight[a];
            }
        }
    UNROLL for (int a = 0; a < results; a++)
        UNROLL for (int v = 0; v < vectors; v++) NAME(store)(p->to + a * p->apart + at + v * LANES, &sum[a][v], count);
}

INLINE void NAME(gather_samples)(const NAME(pixel) *p, int64_t n, int results, int vectors) {
    int64_t at = 0;
    for (; at + vectors * LANES <= n; at += vectors * LANES) NAME(gather)(p, at, results, vectors, LANES);
    if (vectors > 1)
        for (; at + LANES <= n; at += LANES) NAME(gather)(p, at, results, 1, LANES);
    if (at < n) NAME(gather)(p, at, results, 1, n - at);
}

CLONES static void NAME(gather_pixel)(const NAME(pixel) *p, int64_t n, int64_t results) {
    switch (results) {
#if RESULTS > 6
    case RESULTS: NAME(gather_samples)(p, n, RESULTS, 2); break;
#endif
    case 6: NAME(gather_samples)(p, n, 6, 2); break;
    case 4: NAME(gather_samples)(p, n, 4, 2); break;
    case 2: NAME(gather_samples)(p, n, 2, 2); break;
    default: NAME(gather_samples)(p, n, 1, 2);
    }
}

/* How many of the `left` results to take next. */
static int64_t NAME(taken)(int64_t left) {
    return left >= RESULTS ? RESULTS : left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* Weights [networks][outputs][inputs][taps] in the order in which blocks of results read them: [networks], then for each
 * block [sources][taps][results]. Results are outputs, or inputs where `backward`. */
static REAL *NAME(ordered)(const REAL *weight, const convolution *c, int backward) {
    const int64_t taps = c->rows * c->columns, results = backward ? c->inputs : c->outputs;
    const int64_t sources = backward ? c->outputs : c->inputs;
    const int64_t apart = backward ? taps : c->inputs * taps, image = backward ? c->inputs * taps : taps;
    REAL *made = malloc((size_t)(c->networks * c->outputs * c->inputs * taps) * sizeof(REAL)), *to = made;
    if (!made) return NULL;
    for (int64_t k = 0; k < c->networks; k++, weight += c->outputs * c->inputs * taps)
        for (int64_t first = 0, some; first < results; first += some) {
            some = NAME(taken)(results - first);
            for (int64_t s = 0; s < sources; s++)
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t a = 0; a < some; a++) *to++ = weight[(first + a) * apart + s * image + t];
        }
    return made;
}

/* x: [networks][inputs][height][width][n], or one for all networks where `shared`; y likewise with outputs. Returns 0, or 1
 * where memory ran out. */
EXPORT int NAME(apical_conv_forward)(const REAL *x, const REAL *weight, const REAL *bias, REAL *y, const convolution *c,
                                     int shared, int threads) {
    const int64_t high = c->height - c->rows + 1, wide = c->width - c->columns + 1, row = c->width * c->n;
    const int64_t taps = c->rows * c->columns, image = c->height * row;
    REAL *ordered = NAME(ordered)(weight, c, 0);
    if (!ordered) return 1;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t job = 0; job < c->networks * high; job++) {
        const int64_t k = job / high, i = job % high;
        NAME(pixel) p = {.sources = c->inputs, .high = c->rows, .wide = c->columns, .image = image, .row = row,
                         .step = c->n, .apart = high * wide * c->n};
        for (int64_t j = 0; j < wide; j++)
            for (int64_t first = 0, some; first < c->outputs; first += some) {
                some = NAME(taken)(c->outputs - first);
                p.from = x + (shared ? 0 : k * c->inputs * image) + i * row + j * c->n;
                p.to = y + ((k * c->outputs + first) * high * wide + i * wide + j) * c->n;
                p.weight = ordered + (k * c->outputs + first) * c->inputs * taps;
                p.bias = bias + k * c->outputs + first;
                p.weight_image = taps * some, p.weight_row = c->columns * some;
                NAME(gather_pixel)(&p, c->n, some);
            }
    }
    free(ordered);
    return 0;
}

/* The gradient of x from that of y: pixel (i, j) has part in pixels (i - r, j - s) of the result, where there are such. */
EXPORT int NAME(apical_conv_input)(const REAL *gy, const REAL *weight, REAL *gx, const convolution *c, int threads) {
    const int64_t high = c->height - c->rows + 1, wide = c->width - c->columns + 1, row = wide * c->n;
    const int64_t taps = c->rows * c->columns, image = high * row;
    REAL *ordered = NAME(ordered)(weight, c, 1);
    if (!ordered) return 1;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t job = 0; job < c->networks * c->height; job++) {
        const int64_t k = job / c->height, i = job % c->height;
        const int64_t r0 = i < high ? 0 : i - high + 1, r1 = MIN(c->rows, i + 1);
        NAME(pixel) p = {.sources = c->outputs, .high = r1 - r0, .image = image, .row = -row, .step = -c->n,
                         .apart = c->height * c->width * c->n};
        for (int64_t j = 0; j < c->width; j++) {
            const int64_t s0 = j < wide ? 0 : j - wide + 1, s1 = MIN(c->columns, j + 1);
            for (int64_t first = 0, some; first < c->inputs; first += some) {
                some = NAME(taken)(c->inputs - first);
                p.wide = s1 - s0;
                p.from = gy + k * c->outputs * image + (i - r0) * row + (j - s0) * c->n;
                p.to = gx + ((k * c->inputs + first) * c->height * c->width + i * c->width + j) * c->n;
                p.weight = ordered + (k * c->inputs + first) * c->outputs * taps + (r0 * c->columns + s0) * some;
                p.weight_image = taps * some, p.weight_row = c->columns * some;
                NAME(gather_pixel)(&p, c->n, some);
            }
        }
    }
    free(ordered);
    return 0;
}

/* ---- the gradient of weights and biases ---------------------------------------------------------------------------- */

/* sum[s][a] += gy[a] . x[s]: outputs `g_apart` apart, and the pixel under tap s beside the one under tap s - 1. Pixels of a row
 * and their samples are one stretch of `length` values in both. */
INLINE void NAME(correlate)(const REAL *gy, int64_t g_apart, const REAL *x, int64_t x_apart, int64_t length, int outputs,
                            int columns, VECTOR *sums) {
    VECTOR sum[COLUMNS][OUTPUTS], g[OUTPUTS], own;
    UNROLL for (int s = 0; s < columns; s++)
        UNROLL for (int a = 0; a < outputs; a++) sum[s][a] = sums[s * outputs + a];
    int64_t at = 0;
    for (; at + LANES <= length; at += LANES) {
        UNROLL for (int a = 0; a < outputs; a++) NAME(load)(&g[a], gy + a * g_apart + at, LANES);
        UNROLL for (int s = 0; s < columns; s++) {
            NAME(load)(&own, x + s * x_apart + at, LANES);
            UNROLL for (int a = 0; a < outputs; a++) sum[s][a] += g[a] * own;
        }
    }
    if (at < length)
        UNROLL for (int s = 0; s < columns; s++) {
            NAME(load)(&own, x + s * x_apart + at, length - at);
            UNROLL for (int a = 0; a < outputs; a++) {
                NAME(load)(&g[0], gy + a * g_apart + at, length - at);
                sum[s][a] += g[0] * own;
            }
        }
    UNROLL for (int s = 0; s < columns; s++)
        UNROLL for (int a = 0; a < outputs; a++) sums[s * outputs + a] = sum[s][a];
}

#define CORRELATE(o, s) case 8 * o + s: NAME(correlate)(gy, g_apart, x, x_apart, length, o, s, sums); break;
CLONES static void NAME(correlate_stretch)(const REAL *gy, int64_t g_apart, const REAL *x, int64_t x_apart, int64_t length,
                                           int outputs, int columns, VECTOR *sums) {
    switch (8 * outputs + columns) {
#if OUTPUTS == 4
        CORRELATE(4, 5) CORRELATE(4, 4) CORRELATE(4, 3) CORRELATE(4, 2) CORRELATE(4, 1)
#endif
        CORRELATE(2, 5) CORRELATE(2, 4) CORRELATE(2, 3) CORRELATE(2, 2) CORRELATE(2, 1)
        CORRELATE(1, 5) CORRELATE(1, 4) CORRELATE(1, 3) CORRELATE(1, 2) CORRELATE(1, 1)
    }
}
#undef CORRELATE

CLONES static void NAME(add_stretch)(const REAL *g, int64_t length, VECTOR *sum) {
    VECTOR v;
    for (int64_t at = 0; at < length; at += LANES) {
        NAME(load)(&v, g + at, MIN(LANES, length - at));
        *sum += v;
    }
}

static REAL NAME(total)(const VECTOR *sum) {
    double all = 0;
    for (int i = 0; i < LANES; i++) all += (*sum)[i];
    return (REAL)all;
}

/* The gradients of a block of outputs of one network, with room for their sums: [inputs][rows][columns][outputs], and [outputs]
 * for biases. Row by row, so that gy is read from memory once. */
static void NAME(weights_of)(const REAL *gy, const REAL *x, REAL *gweight, REAL *gbias, const convolution *c, int outputs,
                             VECTOR *sums) {
    const int64_t high = c->height - c->rows + 1, wide = c->width - c->columns + 1, row = c->width * c->n;
    const int64_t taps = c->rows * c->columns, all = c->inputs * taps, g_apart = high * wide * c->n;
    const int64_t some = 1 + NEAR / (outputs * c->n * (int64_t)sizeof(REAL)); /* pixels at once */
    memset(sums, 0, (size_t)((all + 1) * outputs) * sizeof(VECTOR));
    for (int64_t i = 0; i < high; i++)
        for (int64_t j = 0; j < wide; j += some) {
            const REAL *g = gy + (i * wide + j) * c->n;
            const int64_t length = MIN(some, wide - j) * c->n;
            for (int64_t t = 0; t < c->inputs * c->rows; t++) {
                const REAL *from = x + (t / c->rows * c->height + i + t % c->rows) * row + j * c->n;
                for (int64_t s = 0, columns; s < c->columns; s += columns) {
                    columns = MIN(COLUMNS, c->columns - s);
                    NAME(correlate_stretch)(g, g_apart, from + s * c->n, c->n, length, outputs, (int)columns,
                                            sums + (t * c->columns + s) * outputs);
                }
            }
            for (int a = 0; a < outputs; a++) NAME(add_stretch)(g + a * g_apart, length, sums + all * outputs + a);
        }
    for (int a = 0; a < outputs; a++) {
        for (int64_t t = 0; t < all; t++) gweight[a * all + t] = NAME(total)(sums + t * outputs + a);
        gbias[a] = NAME(total)(sums + all * outputs + a);
    }
}

EXPORT int NAME(apical_conv_weight)(const REAL *gy, const REAL *x, REAL *gweight, REAL *gbias, const convolution *c,
                                    int shared, int threads) {
    const int64_t high = c->height - c->rows + 1, wide = c->width - c->columns + 1;
    const int64_t all = c->inputs * c->rows * c->columns, image = c->height * c->width * c->n;
    const int64_t blocks = (c->outputs + OUTPUTS - 1) / OUTPUTS;
    int failed = 0;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1) reduction(| : failed)
    for (int64_t job = 0; job < c->networks * blocks; job++) {
        const int64_t k = job / blocks, from = job % blocks * OUTPUTS, to = MIN(from + OUTPUTS, c->outputs);
        VECTOR *sums = malloc((size_t)((all + 1) * OUTPUTS) * sizeof(VECTOR));
        failed |= !sums;
        for (int64_t o = from, some; sums && o < to; o += some) {
            some = to - o >= OUTPUTS ? OUTPUTS : to - o >= 2 ? 2 : 1;
            const int64_t first = k * c->outputs + o;
            NAME(weights_of)(gy + first * high * wide * c->n, x + (shared ? 0 : k * c->inputs * image),
                             gweight + first * all, gbias + first, c, (int)some, sums);
        }
        free(sums);
    }
    return failed;
}

/* ---- max-pooling of what an activation made of z ------------------------------------------------------------------- */

/* The first of these pixels, `first`, or one by one the others: where one is larger than the largest so far, or NaN, it wins. */
CLONES static void NAME(compete)(const REAL *restrict a, REAL *restrict most, uint8_t *restrict winner, int64_t n, int pixel) {
    if (pixel == 0) {
        memcpy(most, a, (size_t)n * sizeof(REAL));
        memset(winner, 0, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int wins = (a[i] > most[i]) | (a[i] != a[i]);
        most[i] = wins ? a[i] : most[i];
        winner[i] = wins ? (uint8_t)pixel : winner[i];
    }
}

CLONES static void NAME(pick)(const REAL *restrict z, REAL *restrict best, const uint8_t *restrict winner, int64_t n, int pixel) {
    for (int64_t i = 0; i < n; i++) best[i] = winner[i] == pixel ? z[i] : best[i];
}

CLONES static void NAME(put)(const REAL *restrict g, REAL *restrict gz, const uint8_t *restrict winner, int64_t n, int pixel) {
    for (int64_t i = 0; i < n; i++) gz[i] = winner[i] == pixel ? g[i] : 0;
}

/* Images a [groups][images][height][width][n], z with `branches` for each of them: [groups][branches][images]... In each window
 * of size x size pixels, `winner` is the one with the largest a (the first of equals), and `best` has the values of z there. */
EXPORT int NAME(apical_pool_forward)(const REAL *a, const REAL *z, REAL *best, uint8_t *winner, const pooling *p, int threads) {
    const int64_t high = p->height / p->size, wide = p->width / p->size, image = p->height * p->width * p->n;
    int failed = 0;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1) reduction(| : failed)
    for (int64_t m = 0; m < p->groups * p->images; m++) {
        const int64_t first = m / p->images * p->branches * p->images + m % p->images; /* of z */
        REAL *most = malloc((size_t)p->n * sizeof(REAL));
        failed |= !most;
        for (int64_t i = 0; most && i < high * wide; i++) {
            const int64_t corner = (i / wide * p->size * p->width + i % wide * p->size) * p->n;
            uint8_t *own = winner + (m * high * wide + i) * p->n;
            for (int64_t q = 0; q < p->size * p->size; q++)
                NAME(compete)(a + m * image + corner + PIXEL(p, q), most, own, p->n, (int)q);
            for (int64_t b = 0; b < p->branches; b++)
                for (int64_t q = 0; q < p->size * p->size; q++)
                    NAME(pick)(z + (first + b * p->images) * image + corner + PIXEL(p, q),
                               best + ((first + b * p->images) * high * wide + i) * p->n, own, p->n, (int)q);
        }
        free(most);
    }
    return failed;
}

/* The gradient of z from that of `best`: what a window got goes to its winner. */
EXPORT int NAME(apical_pool_backward)(const REAL *g, const uint8_t *winner, REAL *gz, const pooling *p, int threads) {
    const int64_t high = p->height / p->size, wide = p->width / p->size, image = p->height * p->width * p->n;
    const int whole = high * p->size == p->height && wide * p->size == p->width;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t m = 0; m < p->groups * p->branches * p->images; m++) {
        const int64_t of = m / (p->branches * p->images) * p->images + m % p->images; /* a */
        if (!whole) memset(gz + m * image, 0, (size_t)image * sizeof(REAL));
        for (int64_t i = 0; i < high * wide; i++) {
            const int64_t corner = (i / wide * p->size * p->width + i % wide * p->size) * p->n;
            for (int64_t q = 0; q < p->size * p->size; q++)
                NAME(put)(g + (m * high * wide + i) * p->n, gz + m * image + corner + PIXEL(p, q),
                          winner + (of * high * wide + i) * p->n, p->n, (int)q);
        }
    }
    return 0;
}
#undef VECTOR
#undef LANES
