/* The kernels for one dtype; see ada.c for the macros that stand for it. */

typedef struct { REAL value, slope, p; } NAME(ada_point);

/* ADA and its derivative at one x. NaN passes every comparison below unharmed and comes out as NaN. */
INLINE NAME(ada_point) NAME(ada_at)(REAL x, REAL alpha, REAL c, REAL leak) {
    /* These depend on c alone: the compiler takes them out of loops in which c is one value. */
    REAL top = c > HIGHEST ? HIGHEST : c;
    REAL lift = c < LIFTED_BELOW ? LIFT : 0;
    REAL unlift = c < LIFTED_BELOW ? UNLIFT : 1;
    REAL lowest = c < LIFTED_BELOW ? LOWEST : LOWEST_UNLIFTED;

    REAL p = x < 0 ? 0 : x;
    REAL t = top - alpha * p;
    int vanished = t < lowest;
    REAL e = LIFTED_EXP(vanished ? lowest : t, lift);
    NAME(ada_point) out;
    /* A leak of zero must give 0, not NaN, at -inf. */
    out.value = x < 0 ? (leak > 0 ? leak * x : 0) : vanished ? 0 : p * e * unlift;
    out.slope = x < 0 ? leak : vanished ? 0 : e * (1 - alpha * p) * unlift;
    out.p = vanished ? 0 : p;
    return out;
}

/* ---- ada, forward ---------------------------------------------------------------------------------------------- */

CLONES static void NAME(forward_run)(const STORAGE *restrict x, STORAGE *restrict y, int64_t n,
                                     REAL alpha, REAL c, REAL leak) {
    for (int64_t i = 0; i < n; i++) y[i] = STORE(NAME(ada_at)(LOAD(x[i]), alpha, c, leak).value);
}

CLONES static void NAME(forward_across)(const STORAGE *restrict x, STORAGE *restrict y, int64_t n,
                                        const REAL *restrict alpha, const REAL *restrict c, REAL leak, REAL floor) {
    for (int64_t i = 0; i < n; i++) y[i] = STORE(NAME(ada_at)(LOAD(x[i]), HELD(alpha[i]), c[i], leak).value);
}

EXPORT void NAME(apical_ada_forward)(const STORAGE *x, STORAGE *y, int64_t n, const parameters *with, int threads) {
    UNPACK(with);
    const int64_t unit = channels == 1 ? 1 : inner == 1 ? channels : inner;
    const int64_t units = n / unit;
    const int64_t pieces = PIECES_OF(n, units);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t to = units * (k + 1) / pieces * unit;
        for (int64_t from = units * k / pieces * unit, length; from < to; from += length) {
            length = unit > 1 ? unit : to - from;
            int64_t channel = from / inner % channels;
            if (channels > 1 && inner == 1)
                NAME(forward_across)(x + from, y + from, length, alpha, c, leak, floor);
            else
                NAME(forward_run)(x + from, y + from, length, HELD(alpha[channel]), c[channel], leak);
        }
    }
}

/* ---- ada, backward ---------------------------------------------------------------------------------------------- */

/* gx may be g: the pragma says that no element depends on another one. */
CLONES static void NAME(backward_run)(const STORAGE *restrict x, const STORAGE *g, STORAGE *gx,
                                      int64_t n, REAL alpha, REAL c, REAL leak) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) gx[i] = STORE(LOAD(g[i]) * NAME(ada_at)(LOAD(x[i]), alpha, c, leak).slope);
}

/* A loop of its own: beside the arithmetic above, which looks at the bits of numbers, compilers do not vectorise it.
 * Four sums at once, because one would wait for itself. */
INLINE REAL NAME(sum)(const REAL *restrict values, int64_t n) {
    REAL a = 0, b = 0, c = 0, d = 0;
    const int64_t quarter = n / 4;
#pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t i = 0; i < quarter; i++) {
        a += values[i];
        b += values[quarter + i];
        c += values[2 * quarter + i];
        d += values[3 * quarter + i];
    }
    for (int64_t i = 4 * quarter; i < n; i++) a += values[i];
    return (a + b) + (c + d);
}

/* Adds to sums[0] (alpha) and, with_c, to sums[1] (c). Short stretches in REAL, then double: long sums keep their
 * digits. */
INLINE void NAME(backward_sums_body)(const STORAGE *restrict x, const STORAGE *g, STORAGE *gx, int64_t n, REAL alpha,
                                     REAL c, REAL leak, int with_c, double *restrict sums) {
    REAL for_alpha[STRETCH], for_c[STRETCH];
    for (int64_t from = 0; from < n; from += STRETCH) {
        int64_t length = from + STRETCH < n ? STRETCH : n - from;
#pragma omp simd
        for (int64_t i = 0; i < length; i++) {
            REAL xi = LOAD(x[from + i]), gi = LOAD(g[from + i]);
            NAME(ada_point) point = NAME(ada_at)(xi, alpha, c, leak);
            gx[from + i] = STORE(gi * point.slope);
            for_alpha[i] = FOR_ALPHA(point, xi, gi);
            if (with_c) for_c[i] = FOR_C(point, xi, gi);
        }
        sums[0] += NAME(sum)(for_alpha, length);
        if (with_c) sums[1] += NAME(sum)(for_c, length);
    }
}

CLONES static void NAME(backward_sums_run)(const STORAGE *restrict x, const STORAGE *g, STORAGE *gx, int64_t n,
                                           REAL alpha, REAL c, REAL leak, int with_c, double *restrict sums) {
    if (with_c) NAME(backward_sums_body)(x, g, gx, n, alpha, c, leak, 1, sums);
    else NAME(backward_sums_body)(x, g, gx, n, alpha, c, leak, 0, sums);
}

CLONES static void NAME(backward_across)(const STORAGE *restrict x, const STORAGE *g, STORAGE *gx, int64_t n,
                                         const REAL *restrict alpha, const REAL *restrict c, REAL leak, REAL floor,
                                         double *restrict sum_alpha, double *restrict sum_c) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL xi = LOAD(x[i]), gi = LOAD(g[i]);
        NAME(ada_point) point = NAME(ada_at)(xi, HELD(alpha[i]), c[i], leak);
        gx[i] = STORE(gi * point.slope);
        sum_alpha[i] += FOR_ALPHA(point, xi, gi);
        sum_c[i] += FOR_C(point, xi, gi);
    }
}

static STORAGE *NAME(copies)(const STORAGE *value, int64_t n) {
    STORAGE *same = malloc((size_t)n * sizeof(STORAGE));
    for (int64_t i = 0; same && i < n; i++) same[i] = *value;
    return same;
}

/* gx may be g. g has `step` 1, or 0 where one upstream value serves all (the gradient of a sum): then runs read it from `same`, a
 * stretch of copies. galpha, gc: NULL, or room for the gradients of alpha and c. Returns 0, or 1 where memory ran out. */
EXPORT int NAME(apical_ada_backward)(const STORAGE *x, const STORAGE *g, int64_t step, STORAGE *gx, int64_t n,
                                     const parameters *with, REAL *galpha, REAL *gc, int threads) {
    UNPACK(with);
    const int sums = galpha || gc;
    const int64_t unit = channels == 1 ? 1 : inner == 1 ? channels : inner;
    const int64_t units = n / unit;
    const int64_t pieces = PIECES_OF(n, units);
    const int64_t longest = unit > 1 ? unit : step ? n : STRETCH;
    /* Each piece sums up for itself; room for nothing would be cleared and paged in all the same. */
    const int across = channels > 1 && inner == 1, adds = sums || across;
    double *partial = calloc(adds ? (size_t)(pieces * 2 * channels) : 1, sizeof(double));
    STORAGE *same = step ? NULL : NAME(copies)(g, longest);
    if (!partial || !(step || same)) {
        free(partial);
        free(same);
        return 1;
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        double *own = partial + (adds ? k * 2 * channels : 0);
        int64_t to = units * (k + 1) / pieces * unit;
        for (int64_t from = units * k / pieces * unit, length; from < to; from += length) {
            length = to - from < longest ? to - from : longest;
            int64_t channel = from / inner % channels;
            const STORAGE *xr = x + from, *gr = step ? g + from : same;
            double pair[2] = {0, 0};
            if (across)
                NAME(backward_across)(xr, gr, gx + from, length, alpha, c, leak, floor, own, own + channels);
            else if (sums)
                NAME(backward_sums_run)(xr, gr, gx + from, length, HELD(alpha[channel]), c[channel], leak, gc != NULL,
                                        pair);
            else
                NAME(backward_run)(xr, gr, gx + from, length, HELD(alpha[channel]), c[channel], leak);
            if (!sums) continue;
            own[channel] += pair[0];
            own[channels + channel] += pair[1];
        }
    }
    for (int64_t i = 0; i < channels; i++) {
        if (galpha) galpha[i] = (REAL)sum_of_pieces(partial + i, pieces, 2 * channels);
        if (gc) gc[i] = (REAL)sum_of_pieces(partial + channels + i, pieces, 2 * channels);
    }
    free(partial);
    free(same);
    return 0;
}

/* ---- the pyramidal sum: z is [outer][2][width], basal then apical; y is [outer][width] ---------------------------- */

INLINE REAL NAME(basal_at)(REAL x, REAL leak) { return x < 0 ? (leak > 0 ? leak * x : 0) : x; }

CLONES static void NAME(sum_run)(const STORAGE *restrict basal, const STORAGE *restrict apical, STORAGE *restrict y,
                                 int64_t n, REAL alpha, REAL c, REAL leak, REAL basal_leak) {
    for (int64_t i = 0; i < n; i++)
        y[i] = STORE(NAME(basal_at)(LOAD(basal[i]), basal_leak) + NAME(ada_at)(LOAD(apical[i]), alpha, c, leak).value);
}

CLONES static void NAME(sum_across)(const STORAGE *restrict basal, const STORAGE *restrict apical, STORAGE *restrict y,
                                    int64_t n, const REAL *restrict alpha, const REAL *restrict c, REAL leak,
                                    REAL floor, REAL basal_leak) {
    for (int64_t i = 0; i < n; i++)
        y[i] = STORE(NAME(basal_at)(LOAD(basal[i]), basal_leak) +
                     NAME(ada_at)(LOAD(apical[i]), HELD(alpha[i]), c[i], leak).value);
}

/* `outputs` channels a group, `groups` groups, and per channel `inner` elements: width = outputs * inner. */
EXPORT void NAME(apical_pyramidal_forward)(const STORAGE *z, STORAGE *y, int64_t n, int64_t groups, int64_t outputs,
                                           const parameters *with, int threads) {
    UNPACK(with);
    const REAL basal_leak = (REAL)with->basal_leak;
    const int64_t width = outputs * inner;
    const int64_t unit = channels == 1 ? 1 : inner == 1 ? width : inner;
    const int64_t units = n / unit;
    const int64_t pieces = PIECES_OF(n, units);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t to = units * (k + 1) / pieces * unit;
        for (int64_t from = units * k / pieces * unit, length; from < to; from += length) {
            int64_t row = from / width, within = from % width;
            const STORAGE *basal = z + row * 2 * width + within, *apical = basal + width;
            length = unit > 1 ? unit : width - within < to - from ? width - within : to - from;
            int64_t channel = channels == 1 ? 0 : row % groups * outputs + within / inner;
            if (channels > 1 && inner == 1)
                NAME(sum_across)(basal, apical, y + from, length, alpha + channel, c + channel, leak, floor, basal_leak);
            else
                NAME(sum_run)(basal, apical, y + from, length, HELD(alpha[channel]), c[channel], leak, basal_leak);
        }
    }
}

#define SLOPE_OF_BASAL(x) ((x) <= 0 ? basal_leak : 1)

CLONES static void NAME(sum_backward_run)(const STORAGE *restrict basal, const STORAGE *restrict apical,
                                          const STORAGE *restrict g, STORAGE *restrict gbasal,
                                          STORAGE *restrict gapical, int64_t n, REAL alpha, REAL c, REAL leak,
                                          REAL basal_leak) {
    for (int64_t i = 0; i < n; i++) {
        REAL b = LOAD(basal[i]), gi = LOAD(g[i]);
        gbasal[i] = STORE(gi * SLOPE_OF_BASAL(b));
        gapical[i] = STORE(gi * NAME(ada_at)(LOAD(apical[i]), alpha, c, leak).slope);
    }
}

CLONES static void NAME(basal_backward_run)(const STORAGE *restrict basal, const STORAGE *restrict g,
                                            STORAGE *restrict gbasal, int64_t n, REAL basal_leak) {
    for (int64_t i = 0; i < n; i++) gbasal[i] = STORE(LOAD(g[i]) * SLOPE_OF_BASAL(LOAD(basal[i])));
}

CLONES static void NAME(sum_backward_across)(const STORAGE *restrict basal, const STORAGE *restrict apical,
                                             const STORAGE *restrict g, STORAGE *restrict gbasal,
                                             STORAGE *restrict gapical, int64_t n, const REAL *restrict alpha,
                                             const REAL *restrict c, REAL leak, REAL floor, REAL basal_leak,
                                             double *restrict sum_alpha, double *restrict sum_c) {
    for (int64_t i = 0; i < n; i++) {
        REAL b = LOAD(basal[i]), a = LOAD(apical[i]), gi = LOAD(g[i]);
        NAME(ada_point) point = NAME(ada_at)(a, HELD(alpha[i]), c[i], leak);
        gbasal[i] = STORE(gi * SLOPE_OF_BASAL(b));
        gapical[i] = STORE(gi * point.slope);
        sum_alpha[i] += FOR_ALPHA(point, a, gi);
        sum_c[i] += FOR_C(point, a, gi);
    }
}

/* As apical_ada_backward; gz has the layout of z, g that of y. */
EXPORT int NAME(apical_pyramidal_backward)(const STORAGE *z, const STORAGE *g, int64_t step, STORAGE *gz, int64_t n,
                                           int64_t groups, int64_t outputs, const parameters *with, REAL *galpha,
                                           REAL *gc, int threads) {
    UNPACK(with);
    const int sums = galpha || gc;
    const REAL basal_leak = (REAL)with->basal_leak;
    const int64_t width = outputs * inner;
    const int64_t unit = channels == 1 ? 1 : inner == 1 ? width : inner;
    const int64_t units = n / unit;
    const int64_t pieces = PIECES_OF(n, units);
    const int64_t longest = unit > 1 ? unit : !step && STRETCH < width ? STRETCH : width;
    const int across = channels > 1 && inner == 1, adds = sums || across;
    double *partial = calloc(adds ? (size_t)(pieces * 2 * channels) : 1, sizeof(double));
    STORAGE *same = step ? NULL : NAME(copies)(g, longest);
    if (!partial || !(step || same)) {
        free(partial);
        free(same);
        return 1;
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        double *own = partial + (adds ? k * 2 * channels : 0);
        int64_t to = units * (k + 1) / pieces * unit;
        for (int64_t from = units * k / pieces * unit, length; from < to; from += length) {
            int64_t row = from / width, within = from % width, at = row * 2 * width + within;
            length = width - within < to - from ? width - within : to - from;
            length = length < longest ? length : longest;
            int64_t channel = channels == 1 ? 0 : row % groups * outputs + within / inner;
            const STORAGE *gr = step ? g + from : same;
            double pair[2] = {0, 0};
            if (across)
                NAME(sum_backward_across)(z + at, z + at + width, gr, gz + at, gz + at + width, length, alpha + channel,
                                          c + channel, leak, floor, basal_leak, own + channel, own + channels + channel);
            else if (sums) {
                NAME(basal_backward_run)(z + at, gr, gz + at, length, basal_leak);
                NAME(backward_sums_run)(z + at + width, gr, gz + at + width, length, HELD(alpha[channel]), c[channel],
                                        leak, gc != NULL, pair);
            } else
                NAME(sum_backward_run)(z + at, z + at + width, gr, gz + at, gz + at + width, length,
                                       HELD(alpha[channel]), c[channel], leak, basal_leak);
            if (!sums) continue;
            own[channel] += pair[0];
            own[channels + channel] += pair[1];
        }
    }
    for (int64_t i = 0; i < channels; i++) {
        if (galpha) galpha[i] = (REAL)sum_of_pieces(partial + i, pieces, 2 * channels);
        if (gc) gc[i] = (REAL)sum_of_pieces(partial + channels + i, pieces, 2 * channels);
    }
    free(partial);
    free(same);
    return 0;
}
#undef SLOPE_OF_BASAL
