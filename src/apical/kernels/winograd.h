/* Winograd's transforms for one dtype; see winograd.c. */

typedef REAL NAME(vector) __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
#define VECTOR NAME(vector)
#define LANES ((int64_t)(BYTES / sizeof(REAL)))
#define VECTORS (LINE / BYTES)
#define BLOCK ((int64_t)(LINE / sizeof(REAL)))

/* out = L in; with other steps from one row or column of L to the next, out = L' in. Unrolled, zeros and ones of L cost nothing. */
INLINE void NAME(multiply)(const double *matrix, int row, int column, int rows, int columns, const VECTOR *in, VECTOR *out) {
    UNROLL for (int i = 0; i < rows; i++) {
        VECTOR sum = {0};
        int started = 0;
        UNROLL for (int k = 0; k < columns; k++) {
            const REAL m = (REAL)matrix[i * row + k * column];
            if (m == 0) continue;
            sum = started ? sum + m * in[k] : m * in[k];
            started = 1;
        }
        out[i] = sum;
    }
}

/* One block of channels of a tile. `from` is its image, `to` its place in the first point. */
INLINE void NAME(spread_block)(const REAL *from, REAL *to, const tiling *t, const tile *at, const double *matrix, int points,
                               int pixels) {
    const int64_t pixel = t->channels, row = t->width * t->channels;
    VECTOR half[VECTORS][MOST][MOST], in[MOST], out[MOST];
    for (int v = 0; v < VECTORS; v++)
        for (int j = 0; j < pixels; j++) {
            UNROLL for (int i = 0; i < pixels; i++) {
                in[i] = (VECTOR){0};
                if (j >= at->left && j < at->right && i >= at->top && i < at->bottom)
                    in[i] = *(const VECTOR *)(from + (at->first + i * row + j * pixel + v * LANES));
            }
            NAME(multiply)(matrix, pixels, 1, points, pixels, in, out);
            UNROLL for (int p = 0; p < points; p++) half[v][p][j] = out[p];
        }
    for (int p = 0; p < points; p++)
        for (int v = 0; v < VECTORS; v++) {
            NAME(multiply)(matrix, pixels, 1, points, pixels, half[v][p], out);
            UNROLL for (int q = 0; q < points; q++) *(VECTOR *)(to + (p * points + q) * t->point + v * LANES) = out[q];
        }
}

/* The adjoint. Where tiles overlap it adds to what is there, but not to the first `done` channels of the block. */
INLINE void NAME(collect_block)(const REAL *from, const REAL *bias, REAL *to, const tiling *t, const tile *at, int64_t done,
                                const double *matrix, int points, int pixels, int overlap) {
    const int64_t pixel = t->channels, row = t->width * t->channels;
    VECTOR half[VECTORS][MOST][MOST], in[MOST], out[MOST];
    for (int p = 0; p < points; p++)
        for (int v = 0; v < VECTORS; v++) {
            UNROLL for (int q = 0; q < points; q++)
                in[q] = *(const VECTOR *)(from + (p * points + q) * t->point + v * LANES);
            NAME(multiply)(matrix, 1, pixels, pixels, points, in, out);
            UNROLL for (int j = 0; j < pixels; j++) half[v][j][p] = out[j];
        }
    for (int v = 0; v < VECTORS; v++) {
        const VECTOR start = bias ? *(const VECTOR *)(bias + v * LANES) : (VECTOR){0};
        for (int64_t j = at->left; j < at->right; j++) {
            NAME(multiply)(matrix, 1, pixels, pixels, points, half[v][j], out);
            UNROLL for (int i = 0; i < pixels; i++) {
                if (i < at->top || i >= at->bottom) continue;
                VECTOR *own = (VECTOR *)(to + (at->first + i * row + j * pixel + v * LANES));
                if (overlap)
                    for (int64_t c = 0; c < LANES && v * LANES + c < done; c++) out[i][c] = 0;
                *own = (overlap ? *own : start) + out[i];
            }
        }
    }
}

/* All tiles of one image. Where channels do not fill their last block, it begins earlier: there are BLOCK or more of them. */
LEVELLED static void NAME(spread_image)(const REAL *from, REAL *to, const tiling *t, int form) {
    switch (form) {
#define FORM(number, matrix, points, pixels, step, before)                                                            \
    case number:                                                                                                      \
        for (int64_t i = 0; i * step < t->height; i++)                                                                \
            for (int64_t j = 0; j * step < t->width; j++, to += t->channels) {                                        \
                const tile at = tile_at(t, i, j, pixels, step, before);                                               \
                for (int64_t next = 0, c; next < t->channels; next += BLOCK) {                                        \
                    c = MIN(next, t->channels - BLOCK);                                                               \
                    NAME(spread_block)(from + c, to + c, t, &at, matrix, points, pixels);                             \
                }                                                                                                     \
            }                                                                                                         \
        break;
        EACH_FORM(FORM)
#undef FORM
    }
}

LEVELLED static void NAME(collect_image)(const REAL *from, const REAL *bias, REAL *to, const tiling *t, int form) {
    switch (form) {
#define FORM(number, matrix, points, pixels, step, before)                                                            \
    case number:                                                                                                      \
        if (pixels > step) memset(to, 0, (size_t)(t->height * t->width * t->channels) * sizeof(REAL));                \
        for (int64_t i = 0; i * step < t->height; i++)                                                                \
            for (int64_t j = 0; j * step < t->width; j++, from += t->channels) {                                      \
                const tile at = tile_at(t, i, j, pixels, step, before);                                               \
                for (int64_t next = 0, c; next < t->channels; next += BLOCK) {                                        \
                    c = MIN(next, t->channels - BLOCK);                                                               \
                    NAME(collect_block)(from + c, bias ? bias + c : NULL, to + c, t, &at, next - c, matrix, points,   \
                                        pixels, pixels > step);                                                       \
                }                                                                                                     \
            }                                                                                                         \
        break;
        EACH_FORM(FORM)
#undef FORM
    }
}

EXPORT void NAME(apical_winograd_spread)(const REAL *from, REAL *to, const tiling *t, int form, int threads) {
    const int64_t image = t->height * t->width * t->channels, apart = tiles(t, form) * t->channels;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < t->images; n++) NAME(spread_image)(from + n * image, to + n * apart, t, form);
}

EXPORT void NAME(apical_winograd_collect)(const REAL *from, const REAL *bias, REAL *to, const tiling *t, int form, int threads) {
    const int64_t image = t->height * t->width * t->channels, apart = tiles(t, form) * t->channels;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < t->images; n++) NAME(collect_image)(from + n * apart, bias, to + n * image, t, form);
}
#undef VECTOR
#undef LANES
#undef VECTORS
#undef BLOCK
