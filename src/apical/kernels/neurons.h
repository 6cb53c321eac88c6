/* The activations of k stacked networks, alone or with the 2x2 max-pooling behind them, for float; included by ada.c.
 *
 *     y = f(z)               one branch: standard neurons
 *     y = f'(z') + f(z'')    two branches, basal and apical: pyramidal ones
 *
 * f is (leaky) ReLU, RBF, Swish or ADA, with one alpha (RBF's s, Swish's beta) for each channel; f' is (leaky) ReLU. Channels
 * stand first: z is [groups][branches][outputs][inner], y is [groups][outputs][inner], so that all values of a channel are one run.
 *
 * With pooling, only the pixel that wins its window counts from there on: forward keeps its z (`best`) and its number
 * (`winner`), backward needs nothing else. One pass over z each way, where separate steps take three.
 */

enum { RECTIFIER, RBF, SWISH, ADAPTED, FUNCTIONS };

typedef struct {
    const float *alpha, *c;                     /* one for each channel of y; c is ADA's */
    int64_t groups, branches, outputs, inner;
    int64_t function;
    int64_t height, width, n;                   /* with pooling: inner = height * width * n */
    double leak, floor, basal_leak;             /* of f below zero; what alpha is held at from below; of f' */
} neurons;

typedef struct { float value, slope, by_alpha; } neuron_point;

/* f, its derivative, and that by alpha. What e^t would leave of the normal numbers is 0; a t that is too large gives inf. */
INLINE neuron_point neuron_at(int function, float x, float alpha, float c, float leak) {
    neuron_point at = {0, 0, 0};
    if (function == RECTIFIER) {
        at.value = x < 0 ? (leak > 0 ? leak * x : 0) : x;
        at.slope = x <= 0 ? leak : 1;
    } else if (function == RBF) {
        float held = x > 1e16f ? 1e16f : x < -1e16f ? -1e16f : x;
        float t = -(held * held) / alpha;
        int vanished = t < -86.0f, large = t > 88.0f;
        float e = lifted_exp_f32(vanished ? -86.0f : large ? 88.0f : t, 0.0f);
        at.value = vanished ? 0 : large ? INFINITY : e;
        at.slope = vanished ? 0 : -2 * held / alpha * at.value;
        at.by_alpha = vanished ? 0 : -t / alpha * at.value;
    } else if (function == SWISH) {
        float t = -alpha * x;
        int closed = t > 88.0f;
        float gate = closed ? 0 : 1 / (1 + lifted_exp_f32(t < -86.0f ? -86.0f : closed ? 88.0f : t, 0.0f));
        at.value = x * gate;
        at.slope = gate * (1 - t * (1 - gate));
        at.by_alpha = at.value * x * (1 - gate);
    } else {
        ada_point_f32 ada = ada_at_f32(x, alpha, c, leak);
        at.value = ada.value;
        at.slope = ada.slope;
        at.by_alpha = FOR_ALPHA(ada, x, 1);
    }
    return at;
}

/* Calls body(function, branches, ...) with both as constants, so that each case is a loop of its own. */
#define FOR_EACH_FUNCTION(body, l, ...)                                                                   \
    switch ((l)->function * 2 + (l)->branches - 1) {                                                      \
    case RECTIFIER * 2: body(RECTIFIER, 1, l, __VA_ARGS__); break;                                        \
    case RECTIFIER * 2 + 1: body(RECTIFIER, 2, l, __VA_ARGS__); break;                                    \
    case RBF * 2: body(RBF, 1, l, __VA_ARGS__); break;                                                    \
    case RBF * 2 + 1: body(RBF, 2, l, __VA_ARGS__); break;                                                \
    case SWISH * 2: body(SWISH, 1, l, __VA_ARGS__); break;                                                \
    case SWISH * 2 + 1: body(SWISH, 2, l, __VA_ARGS__); break;                                            \
    case ADAPTED * 2: body(ADAPTED, 1, l, __VA_ARGS__); break;                                            \
    default: body(ADAPTED, 2, l, __VA_ARGS__);                                                            \
    }

/* Of the channel m of y: its numbers, and which channel of z it begins at. */
#define NUMBERS(l, m)                                                                                     \
    const float floor = (float)(l)->floor, alpha = HELD((l)->alpha[m]), c = (l)->c[m];                    \
    const float leak = (float)(l)->leak, basal_leak = (float)(l)->basal_leak
#define CHANNEL(l, m) ((m) / (l)->outputs * (l)->branches * (l)->outputs + (m) % (l)->outputs)

/* ---- without pooling ----------------------------------------------------------------------------------------------- */

/* `length` values of the channel m, from z and its apical branch `apart` further on. */
INLINE void activate(int function, int branches, const neurons *l, int64_t m, const float *restrict z, int64_t apart,
                     float *restrict y, int64_t length) {
    NUMBERS(l, m);
    const float *restrict own = z + apart;
    for (int64_t i = 0; i < length; i++) {
        float value = neuron_at(function, own[i], alpha, c, leak).value;
        y[i] = branches == 1 ? value : basal_at_f32(z[i], basal_leak) + value;
    }
}

CLONES static void activate_run(const neurons *l, int64_t m, const float *z, int64_t apart, float *y, int64_t length) {
    FOR_EACH_FUNCTION(activate, l, m, z, apart, y, length)
}

EXPORT void apical_neurons_forward_f32(const float *z, float *y, const neurons *l, int threads) {
    const int64_t apart = (l->branches - 1) * l->outputs * l->inner;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t m = 0; m < l->groups * l->outputs; m++)
        activate_run(l, m, z + CHANNEL(l, m) * l->inner, apart, y + m * l->inner, l->inner);
}

/* gz may be g where there is one branch, and z. */
INLINE void differentiate(int function, int branches, const neurons *l, int64_t m, const float *z, int64_t apart, const float *g,
                          float *gz, int64_t length, float *galpha) {
    NUMBERS(l, m);
    float by_alpha[STRETCH];
    double sum = 0;
    for (int64_t from = 0; from < length; from += STRETCH) {
        const int64_t to = from + STRETCH < length ? from + STRETCH : length;
#pragma omp simd
        for (int64_t i = from; i < to; i++) {
            float upstream = g[i];
            neuron_point at = neuron_at(function, z[apart + i], alpha, c, leak);
            if (branches == 2) gz[i] = upstream * (z[i] <= 0 ? basal_leak : 1);
            gz[apart + i] = upstream * at.slope;
            by_alpha[i - from] = upstream * at.by_alpha;
        }
        if (galpha) sum += sum_f32(by_alpha, to - from);
    }
    if (galpha) galpha[m] = (float)sum;
}

CLONES static void differentiate_run(const neurons *l, int64_t m, const float *z, int64_t apart, const float *g, float *gz,
                                     int64_t length, float *galpha) {
    FOR_EACH_FUNCTION(differentiate, l, m, z, apart, g, gz, length, galpha)
}

EXPORT void apical_neurons_backward_f32(const float *z, const float *g, float *gz, float *galpha, const neurons *l, int threads) {
    const int64_t apart = (l->branches - 1) * l->outputs * l->inner;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t m = 0; m < l->groups * l->outputs; m++) {
        const int64_t at = CHANNEL(l, m) * l->inner;
        differentiate_run(l, m, z + at, apart, g + m * l->inner, gz + at, l->inner, galpha);
    }
}

/* ---- with the max-pooling behind them -------------------------------------------------------------------------------- */

/* A window is the pixels 0 and 1 above 2 and 3; `row` values lead from one row to the next. The first of equals wins, NaN does. */
CLONES static void compete(const float *restrict a, int64_t row, int64_t n, float *restrict y, uint8_t *restrict winner) {
    for (int64_t i = 0; i < n; i++) {
        float most = a[i];
        int number = 0;
        UNROLLED for (int q = 1; q < 4; q++) {
            float value = a[q / 2 * row + q % 2 * n + i];
            int wins = (value > most) | (value != value);
            most = wins ? value : most;
            number = wins ? q : number;
        }
        y[i] = most;
        winner[i] = (uint8_t)number;
    }
}

CLONES static void pick(const float *restrict z, int64_t row, int64_t n, const uint8_t *restrict winner, float *restrict best) {
    for (int64_t i = 0; i < n; i++) {
        const int won = winner[i];
        float above = won & 1 ? z[n + i] : z[i], below = won & 1 ? z[row + n + i] : z[row + i];
        best[i] = won & 2 ? below : above;
    }
}

CLONES static void put(const float *restrict g, const uint8_t *restrict winner, int64_t row, int64_t n, float *restrict gz) {
    for (int q = 0; q < 4; q++) {
        float *restrict to = gz + q / 2 * row + q % 2 * n;
        for (int64_t i = 0; i < n; i++) to[i] = winner[i] == q ? g[i] : 0;
    }
}

#define WINDOWS(l)                                                                                        \
    const int64_t high = (l)->height / 2, wide = (l)->width / 2, n = (l)->n, row = (l)->width * n;        \
    const int64_t pooled = high * wide * n, apart = ((l)->branches - 1) * (l)->outputs

/* Two rows at a time, so that their activations stay in the cache. Returns 0, or 1 where memory ran out. */
EXPORT int apical_neurons_pool_forward_f32(const float *z, float *y, float *best, uint8_t *winner, const neurons *l, int threads) {
    WINDOWS(l);
    int failed = 0;
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1) reduction(| : failed)
    for (int64_t m = 0; m < l->groups * l->outputs; m++) {
        float *values = malloc((size_t)(2 * row) * sizeof(float));
        failed |= !values;
        for (int64_t r = 0; values && r < high; r++) {
            const float *rows = z + CHANNEL(l, m) * l->inner + 2 * r * row;
            activate_run(l, m, rows, apart * l->inner, values, 2 * row);
            for (int64_t w = 0; w < wide; w++) {
                const int64_t at = (r * wide + w) * n;
                compete(values + 2 * w * n, row, n, y + m * pooled + at, winner + m * pooled + at);
                for (int64_t b = 0; b < l->branches; b++)
                    pick(rows + b * apart * l->inner + 2 * w * n, row, n, winner + m * pooled + at,
                         best + (CHANNEL(l, m) + b * apart) * pooled + at);
            }
        }
        free(values);
    }
    return failed;
}

/* The gradient of z from that of the pooled y, by way of that of `best`, which takes its place. */
EXPORT void apical_neurons_pool_backward_f32(const float *g, float *best, const uint8_t *winner, float *gz, float *galpha,
                                             const neurons *l, int threads) {
    WINDOWS(l);
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t m = 0; m < l->groups * l->outputs; m++) {
        float *own = best + CHANNEL(l, m) * pooled;
        differentiate_run(l, m, own, apart * pooled, g + m * pooled, own, pooled, galpha);
        for (int64_t b = 0; b < l->branches; b++) {
            float *to = gz + (CHANNEL(l, m) + b * apart) * l->inner;
            if (high * 2 != l->height || wide * 2 != l->width) memset(to, 0, (size_t)l->inner * sizeof(float));
            for (int64_t w = 0; w < high * wide; w++)
                put(own + b * apart * pooled + w * n, winner + m * pooled + w * n, row, n,
                    to + w / wide * 2 * row + w % wide * 2 * n);
        }
    }
}
#undef WINDOWS
#undef CHANNEL
#undef NUMBERS
#undef FOR_EACH_FUNCTION
