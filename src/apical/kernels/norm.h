/* Batch norm, the activation behind it and the pyramidal sum in one, for float; included by ada.c.
 *
 *     y = f(u' + residual)             one branch: a standard neuron
 *     y = f'(u' + residual) + f''(u'') two branches: basal and apical       with u = weight * (z - mean) / deviation + bias
 *
 * f is ADA or (leaky) ReLU, f' is (leaky) ReLU. torch makes a tensor of u and one of each activation; here z is read once or
 * twice, and y is written. Backward, the gradient of u is written where that of z will stand, summed up while it is in the
 * cache, and turned into it.
 *
 * Both layouts are strips of rows. Images in torch's layout: a row is a channel of a sample, and the strip has one weight.
 * Channels last: a row is a pixel, and its columns have a weight each (`across`).
 */

typedef struct {
    int64_t samples, groups, outputs, inner;  /* y is [samples][outputs][inner], or, with `last`, [samples][inner][outputs] */
    int64_t branches, ada, last, training;    /* z has `branches` times the channels: group by group, basal, then apical */
    double alpha, c, leak, basal_leak;        /* of ADA; leak also of a second (leaky) ReLU; basal_leak of the first one */
    double eps, momentum;
    const float *weight, *bias;               /* per channel of z, or NULL */
    float *running_mean, *running_var;        /* read where not training, else updated; or NULL */
    float *mean, *inverse, *scale, *shift;    /* room, filled by forward, read by backward; inverse: of the deviation */
} norm;

typedef struct { double count, mean, squares; } moments;

/* The moments of two sets of numbers together. */
INLINE void merge(moments *a, double count, double mean, double squares) {
    double total = a->count + count, apart = mean - a->mean, share = count / total;
    a->squares += squares + apart * apart * a->count * share;
    a->mean += apart * share;
    a->count = total;
}

/* The elements of one channel. A stretch stays in the cache for its mean and then its squares. */
CLONES static void moments_of_run(const float *z, int64_t step, int64_t rows, int64_t width, moments *into) {
    for (int64_t row = 0; row < rows; row++, z += step)
        for (int64_t from = 0; from < width; from += STRETCH) {
            int64_t n = width - from < STRETCH ? width - from : STRETCH;
            float mean = sum_f32(z + from, n) / (float)n, squares = 0;
#pragma omp simd reduction(+ : squares)
            for (int64_t i = 0; i < n; i++) squares += (z[from + i] - mean) * (z[from + i] - mean);
            merge(into, (double)n, mean, squares);
        }
}

/* The columns of pixels, STRETCH elements or a row at a time; `room` is for 2 * width numbers. */
CLONES static void moments_across(const float *z, int64_t rows, int64_t width, float *restrict room, moments *into) {
    const int64_t most = width < STRETCH ? STRETCH / width : 1;
    float *restrict mean = room, *restrict squares = room + width;
    for (int64_t from = 0; from < rows; from += most, z += most * width) {
        int64_t n = rows - from < most ? rows - from : most;
        for (int64_t i = 0; i < width; i++) mean[i] = squares[i] = 0;
        for (int64_t row = 0; row < n; row++)
            for (int64_t i = 0; i < width; i++) mean[i] += z[row * width + i];
        for (int64_t i = 0; i < width; i++) mean[i] /= (float)n;
        for (int64_t row = 0; row < n; row++)
            for (int64_t i = 0; i < width; i++)
                squares[i] += (z[row * width + i] - mean[i]) * (z[row * width + i] - mean[i]);
        for (int64_t i = 0; i < width; i++) merge(into + i, (double)n, mean[i], squares[i]);
    }
}

/* What a strip of rows of y, and of z, is made of: `apart`: from the basal to the apical branch in z, `further`: in weights. */
typedef struct {
    int64_t rows, width, z_step, y_step, apart, further;
} strip;

INLINE float activated(float u, int ada, const norm *with, double leak) {
    return ada ? ada_at_f32(u, (float)with->alpha, (float)with->c, (float)leak).value : basal_at_f32(u, (float)leak);
}

INLINE float slope_at(float u, int ada, const norm *with, double leak) {
    return ada ? ada_at_f32(u, (float)with->alpha, (float)with->c, (float)leak).slope : u <= 0 ? (float)leak : 1;
}

#define FIRST_LEAK(with) ((with)->branches == 1 && (with)->ada ? (with)->leak : (with)->basal_leak)

/* Called with literals for `branches`, `ada`, `across` and `added`, so that each loop is compiled for its own case. */
INLINE void norm_forward_strip(const float *restrict z, const float *restrict residual, float *restrict y,
                               const float *restrict scale, const float *restrict shift, const strip *at, const norm *with,
                               int branches, int ada, int across, int added) {
    const double first = FIRST_LEAK(with), second = with->leak;
    const float *restrict z2 = z + at->apart, *restrict scale2 = scale + at->further, *restrict shift2 = shift + at->further;
    for (int64_t row = 0; row < at->rows; row++) {
        for (int64_t i = 0; i < at->width; i++) {
            const int64_t k = across ? i : 0;
            float u = z[i] * scale[k] + shift[k] + (added ? residual[i] : 0);
            float value = activated(u, branches == 1 && ada, with, first);
            if (branches == 2) value += activated(z2[i] * scale2[k] + shift2[k], ada, with, second);
            y[i] = value;
        }
        z += at->z_step;
        z2 += at->z_step;
        y += at->y_step;
        if (added) residual += at->y_step;
    }
}

/* The gradient of u into gz, and that of its basal part into gresidual. */
INLINE void norm_backward_strip(const float *restrict z, const float *restrict residual, const float *restrict g,
                                float *restrict gz, float *restrict gresidual, const float *restrict scale,
                                const float *restrict shift, const strip *at, const norm *with, int branches, int ada,
                                int across, int added) {
    const double first = FIRST_LEAK(with), second = with->leak;
    const float *restrict z2 = z + at->apart, *restrict scale2 = scale + at->further, *restrict shift2 = shift + at->further;
    float *restrict gz2 = gz + at->apart;
    for (int64_t row = 0; row < at->rows; row++) {
        for (int64_t i = 0; i < at->width; i++) {
            const int64_t k = across ? i : 0;
            float u = z[i] * scale[k] + shift[k] + (added ? residual[i] : 0);
            float gu = g[i] * slope_at(u, branches == 1 && ada, with, first);
            gz[i] = gu;
            if (added) gresidual[i] = gu;
            if (branches == 2) gz2[i] = g[i] * slope_at(z2[i] * scale2[k] + shift2[k], ada, with, second);
        }
        z += at->z_step;
        z2 += at->z_step;
        gz += at->z_step;
        gz2 += at->z_step;
        g += at->y_step;
        if (added) {
            residual += at->y_step;
            gresidual += at->y_step;
        }
    }
}

#define EACH_CASE(CALL)                                                                                              \
    switch ((with->branches == 2) * 8 + (with->ada != 0) * 4 + (with->last != 0) * 2 + (residual != NULL)) {         \
        case 0: CALL(1, 0, 0, 0); break;                                                                             \
        case 1: CALL(1, 0, 0, 1); break;                                                                             \
        case 2: CALL(1, 0, 1, 0); break;                                                                             \
        case 3: CALL(1, 0, 1, 1); break;                                                                             \
        case 4: CALL(1, 1, 0, 0); break;                                                                             \
        case 5: CALL(1, 1, 0, 1); break;                                                                             \
        case 6: CALL(1, 1, 1, 0); break;                                                                             \
        case 7: CALL(1, 1, 1, 1); break;                                                                             \
        case 8: CALL(2, 0, 0, 0); break;                                                                             \
        case 9: CALL(2, 0, 0, 1); break;                                                                             \
        case 10: CALL(2, 0, 1, 0); break;                                                                            \
        case 11: CALL(2, 0, 1, 1); break;                                                                            \
        case 12: CALL(2, 1, 0, 0); break;                                                                            \
        case 13: CALL(2, 1, 0, 1); break;                                                                            \
        case 14: CALL(2, 1, 1, 0); break;                                                                            \
        default: CALL(2, 1, 1, 1);                                                                                   \
    }

CLONES static void norm_forward_any(const float *z, const float *residual, float *y, const float *scale, const float *shift,
                                    const strip *at, const norm *with) {
#define CALL(branches, ada, across, added) \
    norm_forward_strip(z, residual, y, scale, shift, at, with, branches, ada, across, added)
    EACH_CASE(CALL)
#undef CALL
}

CLONES static void norm_backward_any(const float *z, const float *residual, const float *g, float *gz, float *gresidual,
                                     const float *scale, const float *shift, const strip *at, const norm *with) {
#define CALL(branches, ada, across, added) \
    norm_backward_strip(z, residual, g, gz, gresidual, scale, shift, at, with, branches, ada, across, added)
    EACH_CASE(CALL)
#undef CALL
}

/* Adds the sum of gu to into[0] and that of gu * (z - mean) to into[1]. */
CLONES static void products_of_run(const float *restrict z, const float *restrict gu, int64_t width, float mean,
                                   double *restrict into) {
    for (int64_t from = 0; from < width; from += STRETCH) {
        int64_t n = width - from < STRETCH ? width - from : STRETCH;
        float product = 0;
#pragma omp simd reduction(+ : product)
        for (int64_t i = 0; i < n; i++) product += gu[from + i] * (z[from + i] - mean);
        into[0] += sum_f32(gu + from, n);
        into[1] += product;
    }
}

/* The same for columns: sums at into[0 .. width), products behind them; `room` is for 2 * width numbers. */
CLONES static void products_across(const float *restrict z, const float *restrict gu, int64_t rows, int64_t width,
                                   const float *restrict mean, float *restrict room, double *restrict into) {
    float *restrict sums = room, *restrict products = room + width;
    for (int64_t i = 0; i < width; i++) sums[i] = products[i] = 0;
    for (int64_t row = 0; row < rows; row++, z += width, gu += width)
        for (int64_t i = 0; i < width; i++) {
            sums[i] += gu[i];
            products[i] += gu[i] * (z[i] - mean[i]);
        }
    for (int64_t i = 0; i < width; i++) {
        into[i] += sums[i];
        into[width + i] += products[i];
    }
}

/* gz = scale * gu + slope * (z - mean) + constant. */
CLONES static void turn_run(const float *restrict z, float *restrict gz, int64_t step, int64_t rows, int64_t width,
                            float scale, float slope, float mean, float constant) {
    for (int64_t row = 0; row < rows; row++, z += step, gz += step)
        for (int64_t i = 0; i < width; i++) gz[i] = scale * gz[i] + slope * (z[i] - mean) + constant;
}

CLONES static void turn_across(const float *restrict z, float *restrict gz, int64_t rows, int64_t width,
                               const float *restrict scale, const float *restrict slope, const float *restrict mean,
                               const float *restrict constant) {
    for (int64_t row = 0; row < rows; row++, z += width, gz += width)
        for (int64_t i = 0; i < width; i++) gz[i] = scale[i] * gz[i] + slope[i] * (z[i] - mean[i]) + constant[i];
}

/* ---- the drivers ------------------------------------------------------------------------------------------------ */

#define CHANNELS(with) ((with)->outputs * (with)->branches)
/* The channel of z that is branch 0 of output o. */
#define BASAL(with, o) ((o) / per * per * (with)->branches + (o) % per)

/* The statistics of channel k: of the batch, which also move the running ones, or the running ones. */
static void settle(const norm *with, int64_t k, const moments *batch) {
    double mean, variance;
    if (with->training) {
        mean = batch->mean;
        variance = batch->squares / batch->count;
    } else {
        mean = with->running_mean[k];
        variance = with->running_var[k];
    }
    if (with->training && with->running_mean) {
        double m = with->momentum;
        with->running_mean[k] = (float)(m * mean + (1 - m) * with->running_mean[k]);
        with->running_var[k] = (float)(m * batch->squares / (batch->count - 1) + (1 - m) * with->running_var[k]);
    }
    double inverse = 1 / sqrt(variance + with->eps), scale = inverse * (with->weight ? with->weight[k] : 1);
    with->mean[k] = (float)mean;
    with->inverse[k] = (float)inverse;
    with->scale[k] = (float)scale;
    with->shift[k] = (float)((with->bias ? with->bias[k] : 0) - mean * scale);
}

/* Channel by channel, so that what was read for its statistics may still be in the cache. */
static void norm_forward_images(const float *z, const float *residual, float *y, const norm *with, int threads) {
    const int64_t channels = CHANNELS(with), per = with->outputs / with->groups, inner = with->inner;
    const strip at = {with->samples, inner, channels * inner, with->outputs * inner, per * inner, per};
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t o = 0; o < with->outputs; o++) {
        const int64_t own = BASAL(with, o);
        for (int64_t b = 0, i = own; b < with->branches; b++, i += per) {
            moments batch = {0, 0, 0};
            if (with->training) moments_of_run(z + i * inner, channels * inner, with->samples, inner, &batch);
            settle(with, i, &batch);
        }
        norm_forward_any(z + own * inner, residual ? residual + o * inner : NULL, y + o * inner, with->scale + own,
                         with->shift + own, &at, with);
    }
}

static void norm_forward_pixels(const float *z, const float *residual, float *y, const norm *with, int64_t pieces,
                                moments *batch, float *room, int threads) {
    const int64_t channels = CHANNELS(with), per = with->outputs / with->groups, rows = with->samples * with->inner;
    (void)threads;
    if (with->training) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
        for (int64_t k = 0; k < pieces; k++) {
            int64_t from = rows * k / pieces, to = rows * (k + 1) / pieces;
            moments_across(z + from * channels, to - from, channels, room + k * 2 * channels, batch + k * channels);
        }
        for (int64_t k = channels; k < pieces * channels; k++)
            merge(batch + k % channels, batch[k].count, batch[k].mean, batch[k].squares);
    }
    for (int64_t i = 0; i < channels; i++) settle(with, i, batch + i);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t from = rows * k / pieces, to = rows * (k + 1) / pieces;
        const strip at = {to - from, per, channels, with->outputs, per, per};
        for (int64_t o = 0; o < with->outputs; o += per) {
            int64_t own = BASAL(with, o), y_from = from * with->outputs + o;
            norm_forward_any(z + from * channels + own, residual ? residual + y_from : NULL, y + y_from, with->scale + own,
                             with->shift + own, &at, with);
        }
    }
}

/* Returns 0, or 1 where memory ran out; so does backward. */
EXPORT int apical_norm_forward_f32(const float *z, const float *residual, float *y, const norm *with, int threads) {
    if (!with->last) {
        norm_forward_images(z, residual, y, with, threads);
        return 0;
    }
    const int64_t channels = CHANNELS(with), rows = with->samples * with->inner;
    const int64_t pieces = PIECES_OF(rows * channels, rows);
    moments *batch = calloc((size_t)(pieces * channels), sizeof(moments));
    float *room = malloc((size_t)(pieces * 2 * channels) * sizeof(float));
    const int failed = !batch || !room;
    if (!failed) norm_forward_pixels(z, residual, y, with, pieces, batch, room, threads);
    free(batch);
    free(room);
    return failed;
}

/* Rows of channels-last pixels whose gradients are summed up while they are in the cache. */
#define PIXELS(channels) ((channels) < 2 * STRETCH ? 2 * STRETCH / (channels) : 1)

typedef struct {
    float *gweight, *gbias, *slope, *constant;  /* a value each channel */
} settled;

/* From the sums of channel i to the gradients of its weight and bias, and to what `turn` needs. */
static void settle_gradients(const norm *with, int64_t i, double sum, double product, const settled *into) {
    const int64_t rows = with->samples * with->inner;
    double share = with->training ? -(double)with->scale[i] / (double)rows : 0, inverse = with->inverse[i];
    into->gbias[i] = (float)sum;
    into->gweight[i] = (float)(product * inverse);
    into->slope[i] = (float)(share * product * inverse * inverse);
    into->constant[i] = (float)(share * sum);
}

static void norm_backward_images(const float *z, const float *residual, const float *g, float *gz, float *gresidual,
                                 const settled *into, const norm *with, int threads) {
    const int64_t channels = CHANNELS(with), per = with->outputs / with->groups, inner = with->inner;
    const strip at = {1, inner, 0, 0, per * inner, per};
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t o = 0; o < with->outputs; o++) {
        const int64_t own = BASAL(with, o);
        double sums[4] = {0, 0, 0, 0};
        for (int64_t s = 0; s < with->samples; s++) {
            int64_t z_from = (s * channels + own) * inner, y_from = (s * with->outputs + o) * inner;
            norm_backward_any(z + z_from, residual ? residual + y_from : NULL, g + y_from, gz + z_from,
                              residual ? gresidual + y_from : NULL, with->scale + own, with->shift + own, &at, with);
            for (int64_t b = 0; b < with->branches; b++, z_from += per * inner)
                products_of_run(z + z_from, gz + z_from, inner, with->mean[own + b * per], sums + 2 * b);
        }
        for (int64_t b = 0, i = own; b < with->branches; b++, i += per) {
            settle_gradients(with, i, sums[2 * b], sums[2 * b + 1], into);
            turn_run(z + i * inner, gz + i * inner, channels * inner, with->samples, inner, with->scale[i], into->slope[i],
                     with->mean[i], into->constant[i]);
        }
    }
}

static void norm_backward_pixels(const float *z, const float *residual, const float *g, float *gz, float *gresidual,
                                 const settled *into, const norm *with, int64_t pieces, double *partial, float *room,
                                 int threads) {
    const int64_t channels = CHANNELS(with), per = with->outputs / with->groups;
    const int64_t rows = with->samples * with->inner, most = PIXELS(channels);
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t to = rows * (k + 1) / pieces;
        for (int64_t from = rows * k / pieces, n; from < to; from += n) {
            n = to - from < most ? to - from : most;
            const strip at = {n, per, channels, with->outputs, per, per};
            for (int64_t o = 0; o < with->outputs; o += per) {
                int64_t own = BASAL(with, o), z_from = from * channels + own, y_from = from * with->outputs + o;
                norm_backward_any(z + z_from, residual ? residual + y_from : NULL, g + y_from, gz + z_from,
                                  residual ? gresidual + y_from : NULL, with->scale + own, with->shift + own, &at, with);
            }
            products_across(z + from * channels, gz + from * channels, n, channels, with->mean, room + k * 2 * channels,
                            partial + k * 2 * channels);
        }
    }
    for (int64_t i = 0; i < channels; i++)
        settle_gradients(with, i, sum_of_pieces(partial + i, pieces, 2 * channels),
                         sum_of_pieces(partial + channels + i, pieces, 2 * channels), into);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t from = rows * k / pieces, to = rows * (k + 1) / pieces;
        turn_across(z + from * channels, gz + from * channels, to - from, channels, with->scale, into->slope, with->mean,
                    into->constant);
    }
}

/* gresidual where there is a residual; gweight, gbias: room for a value each channel. */
EXPORT int apical_norm_backward_f32(const float *z, const float *residual, const float *g, float *gz, float *gresidual,
                                    float *gweight, float *gbias, const norm *with, int threads) {
    const int64_t channels = CHANNELS(with), rows = with->samples * with->inner;
    const int64_t pieces = with->last ? PIECES_OF(rows * channels, rows) : 0;
    double *partial = calloc((size_t)(pieces * 2 * channels + 1), sizeof(double));
    float *room = malloc((size_t)((pieces + 1) * 2 * channels) * sizeof(float));
    if (partial && room) {
        const settled into = {gweight, gbias, room, room + channels};
        if (with->last)
            norm_backward_pixels(z, residual, g, gz, gresidual, &into, with, pieces, partial, room + 2 * channels, threads);
        else
            norm_backward_images(z, residual, g, gz, gresidual, &into, with, threads);
    }
    const int failed = !partial || !room;
    free(partial);
    free(room);
    return failed;
}
