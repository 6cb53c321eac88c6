/* The kernels for one dtype; see ada.c for the macros that stand for it. */

typedef struct { REAL value, slope, p; } NAME(ada_point);

/* ADA and its derivative at one x. NaN passes every comparison below unharmed and comes out as NaN. */
/* A learned alpha is held at `floor` from below; NaN stays NaN. */
#define HELD(a) ((a) < floor ? floor : (a))

INLINE NAME(ada_point) NAME(ada_at)(REAL x, REAL alpha, REAL c, REAL leak) {
    REAL p = x < 0 ? 0 : x;
    REAL t = c - alpha * p;
    int vanished = t < LOWEST;
    t = vanished ? LOWEST : t;
    t = t > HIGHEST ? HIGHEST : t;
    EXP_PARTS e = SPLIT_EXP(t);
    REAL scaled = e.mantissa * e.high;
    REAL value = (p * e.low) * scaled;
    REAL slope = (scaled * e.low) * (1 - alpha * p);
    NAME(ada_point) out;
    /* A leak of zero must give 0, not NaN, at -inf. */
    out.value = x < 0 ? (leak > 0 ? leak * x : 0) : vanished ? 0 : value;
    out.slope = x < 0 ? leak : vanished ? 0 : slope;
    out.p = vanished ? 0 : p;
    return out;
}

/* What one x adds to the gradients of alpha and c, for an upstream gradient g. */
#define ADD_SUMS(point, x, g, sum_alpha, sum_c)              \
    do {                                                     \
        REAL positive_ = (x) < 0 ? 0 : (point).value;        \
        sum_alpha -= (positive_ * (point).p) * (g);          \
        sum_c += positive_ * (g);                            \
    } while (0)

/* ---- ada, forward ---------------------------------------------------------------------------------------------- */

CLONES static void NAME(forward_run)(const STORAGE *restrict x, STORAGE *restrict y, int64_t n,
                                     REAL alpha, REAL c, REAL leak) {
    for (int64_t i = 0; i < n; i++) y[i] = STORE(NAME(ada_at)(LOAD(x[i]), alpha, c, leak).value);
}

CLONES static void NAME(forward_across)(const STORAGE *restrict x, STORAGE *restrict y, int64_t n,
                                        const REAL *restrict alpha, const REAL *restrict c, REAL leak, REAL floor) {
    for (int64_t i = 0; i < n; i++) y[i] = STORE(NAME(ada_at)(LOAD(x[i]), HELD(alpha[i]), c[i], leak).value);
}

/* Element i belongs to channel (i / inner) % channels. */
EXPORT void NAME(apical_ada_forward)(const STORAGE *x, STORAGE *y, int64_t n, const REAL *alpha, const REAL *c,
                                     int64_t channels, int64_t inner, double leak, double floor, int threads) {
    int64_t row = channels == 1 ? 1 : inner == 1 ? channels : inner;
    int64_t rows = n / row;
    int64_t pieces = n > GRAIN ? (rows < PIECES ? rows : PIECES) : 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t from = rows * k / pieces, to = rows * (k + 1) / pieces;
        if (channels == 1) {
            NAME(forward_run)(x + from, y + from, to - from, HELD(alpha[0]), c[0], (REAL)leak);
        } else if (inner == 1) {
            for (int64_t r = from; r < to; r++)
                NAME(forward_across)(x + r * row, y + r * row, row, alpha, c, (REAL)leak, (REAL)floor);
        } else {
            for (int64_t r = from; r < to; r++)
                NAME(forward_run)(x + r * row, y + r * row, row, HELD(alpha[r % channels]), c[r % channels], (REAL)leak);
        }
    }
}

/* ---- ada, backward: g has `step` 1, or 0 where one upstream value serves all (the gradient of a sum) ------------- */

INLINE void NAME(backward_body)(const STORAGE *restrict x, const STORAGE *restrict g, int64_t step,
                                STORAGE *restrict gx, int64_t n, REAL alpha, REAL c, REAL leak) {
    for (int64_t i = 0; i < n; i++) {
        NAME(ada_point) point = NAME(ada_at)(LOAD(x[i]), alpha, c, leak);
        gx[i] = STORE(LOAD(g[i * step]) * point.slope);
    }
}

CLONES static void NAME(backward_run)(const STORAGE *restrict x, const STORAGE *restrict g, int64_t step,
                                      STORAGE *restrict gx, int64_t n, REAL alpha, REAL c, REAL leak) {
    if (step) NAME(backward_body)(x, g, 1, gx, n, alpha, c, leak);
    else NAME(backward_body)(x, g, 0, gx, n, alpha, c, leak);
}

/* Adds to sums[0] (alpha) and sums[1] (c). Short stretches in REAL, then double: long sums keep their digits. */
INLINE void NAME(backward_sums_body)(const STORAGE *restrict x, const STORAGE *restrict g, int64_t step,
                                     STORAGE *restrict gx, int64_t n, REAL alpha, REAL c, REAL leak,
                                     double *restrict sums) {
    for (int64_t from = 0; from < n; from += 1024) {
        int64_t to = from + 1024 < n ? from + 1024 : n;
        REAL sum_alpha = 0, sum_c = 0;
#pragma omp simd reduction(+ : sum_alpha, sum_c)
        for (int64_t i = from; i < to; i++) {
            REAL xi = LOAD(x[i]), gi = LOAD(g[i * step]);
            NAME(ada_point) point = NAME(ada_at)(xi, alpha, c, leak);
            gx[i] = STORE(gi * point.slope);
            ADD_SUMS(point, xi, gi, sum_alpha, sum_c);
        }
        sums[0] += sum_alpha;
        sums[1] += sum_c;
    }
}

CLONES static void NAME(backward_sums_run)(const STORAGE *restrict x, const STORAGE *restrict g, int64_t step,
                                           STORAGE *restrict gx, int64_t n, REAL alpha, REAL c, REAL leak,
                                           double *restrict sums) {
    if (step) NAME(backward_sums_body)(x, g, 1, gx, n, alpha, c, leak, sums);
    else NAME(backward_sums_body)(x, g, 0, gx, n, alpha, c, leak, sums);
}

CLONES static void NAME(backward_across)(const STORAGE *restrict x, const STORAGE *restrict g, int64_t step,
                                         STORAGE *restrict gx, int64_t n, const REAL *restrict alpha,
                                         const REAL *restrict c, REAL leak, REAL floor) {
    for (int64_t i = 0; i < n; i++) {
        NAME(ada_point) point = NAME(ada_at)(LOAD(x[i]), HELD(alpha[i]), c[i], leak);
        gx[i] = STORE(LOAD(g[i * step]) * point.slope);
    }
}

CLONES static void NAME(backward_sums_across)(const STORAGE *restrict x, const STORAGE *restrict g, int64_t step,
                                              STORAGE *restrict gx, int64_t n, const REAL *restrict alpha,
                                              const REAL *restrict c, REAL leak, REAL floor, double *restrict sum_alpha,
                                              double *restrict sum_c) {
    for (int64_t i = 0; i < n; i++) {
        REAL xi = LOAD(x[i]), gi = LOAD(g[i * step]);
        NAME(ada_point) point = NAME(ada_at)(xi, HELD(alpha[i]), c[i], leak);
        gx[i] = STORE(gi * point.slope);
        ADD_SUMS(point, xi, gi, sum_alpha[i], sum_c[i]);
    }
}

/* sums: NULL, or 2 * channels doubles for the gradients of alpha, then c. Returns 0, or 1 where memory ran out. */
EXPORT int NAME(apical_ada_backward)(const STORAGE *x, const STORAGE *g, int64_t step, STORAGE *gx, int64_t n,
                                     const REAL *alpha, const REAL *c, int64_t channels, int64_t inner, double leak,
                                     double floor, double *sums, int threads) {
    int64_t row = channels == 1 ? 1 : inner == 1 ? channels : inner;
    int64_t rows = n / row;
    int64_t pieces = n > GRAIN ? (rows < PIECES ? rows : PIECES) : 1;
    double *partial = NULL;
    if (sums) {
        partial = calloc((size_t)(pieces * 2 * channels), sizeof(double));
        if (!partial) return 1;
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t from = rows * k / pieces, to = rows * (k + 1) / pieces;
        double *own = sums ? partial + k * 2 * channels : NULL;
        if (channels == 1) {
            if (sums)
                NAME(backward_sums_run)(x + from, g + from * step, step, gx + from, to - from, HELD(alpha[0]), c[0],
                                        (REAL)leak, own);
            else
                NAME(backward_run)(x + from, g + from * step, step, gx + from, to - from, HELD(alpha[0]), c[0], (REAL)leak);
            continue;
        }
        for (int64_t r = from; r < to; r++) {
            const STORAGE *xr = x + r * row, *gr = g + r * row * step;
            STORAGE *out = gx + r * row;
            int64_t channel = r % channels;
            double pair[2] = {0, 0};
            if (inner == 1 && sums)
                NAME(backward_sums_across)(xr, gr, step, out, row, alpha, c, (REAL)leak, (REAL)floor, own, own + channels);
            else if (inner == 1)
                NAME(backward_across)(xr, gr, step, out, row, alpha, c, (REAL)leak, (REAL)floor);
            else if (sums)
                NAME(backward_sums_run)(xr, gr, step, out, row, HELD(alpha[channel]), c[channel], (REAL)leak, pair);
            else
                NAME(backward_run)(xr, gr, step, out, row, HELD(alpha[channel]), c[channel], (REAL)leak);
            if (inner != 1 && sums) {
                own[channel] += pair[0];
                own[channels + channel] += pair[1];
            }
        }
    }
    if (sums) {
        memset(sums, 0, (size_t)(2 * channels) * sizeof(double));
        for (int64_t k = 0; k < pieces; k++)
            for (int64_t i = 0; i < 2 * channels; i++) sums[i] += partial[k * 2 * channels + i];
        free(partial);
    }
    return 0;
}
